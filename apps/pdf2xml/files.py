# SPDX-License-Identifier: Apache-2.0
"""The files of an installation: uploaded sources and results, under names that cannot leave their folder.

A file has its final name only when it is complete and durable, so whoever finds one can use it. A source is named by its
job's key, which is the same for the same file of the same owner; a result by its job and upload. Every use of a source
renews its time, and a purge deletes what was not used for long enough and belongs to no open job.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import time
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from redrive import Fail

_NAME: Final = re.compile(r"[0-9a-f]{32}\.[0-9a-f]{64}\.[a-z0-9_-]{1,40}\.[0-9]{1,12}")
DRAFT_SECONDS: Final = 3_600.0
"""A draft that was not touched for so long is of a process that died."""


def key_of(owner: str, sha256: str, mapping: str, size: int) -> str:
    """Return what makes two uploads the same work; it is the name of the source, too."""
    return f"{owner}.{sha256}.{mapping}.{size}"


@dataclass(frozen=True, slots=True)
class Files:
    """The folders `sources`, `results` and `drafts` below one folder, on one file system."""

    folder: Path

    def prepare(self) -> None:
        """Create the folders."""
        for place in (self.sources, self.results, self.drafts):
            place.mkdir(parents=True, exist_ok=True, mode=0o700)

    @property
    def sources(self) -> Path:
        """Uploaded files."""
        return self.folder / "sources"

    @property
    def results(self) -> Path:
        """Finished XML."""
        return self.folder / "results"

    @property
    def drafts(self) -> Path:
        """What is being written."""
        return self.folder / "drafts"

    def new_draft(self) -> Path:
        """Return a name that nobody else uses."""
        return self.drafts / secrets.token_hex(16)

    def source(self, key: str) -> Path:
        """Return where the source of a key is."""
        if not _NAME.fullmatch(key):
            raise Fail(code="UNKNOWN", message="the payload names no source")
        return self.sources / f"{key}.pdf"

    def result(self, job: int, token: str) -> Path:
        """Return where the result of a job is; `token` is its upload's."""
        return self.results / f"{job}-{token}.xml"

    def keep(self, draft: Path, final: Path) -> None:
        """Give a durable draft its final name, durably; a draft that cannot get it is removed."""
        try:
            draft.replace(final)
        except OSError:
            draft.unlink(missing_ok=True)
            raise
        handle = os.open(final.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def sources_kept(self) -> AbstractContextManager[None]:
        """Keep purges from deleting a source, in all processes, until a job needs it."""
        return self._locked(fcntl.LOCK_SH)

    def sources_locked(self) -> AbstractContextManager[None]:
        """Keep everybody from taking a source into use, in all processes, while it is deleted."""
        return self._locked(fcntl.LOCK_EX)

    @contextmanager
    def _locked(self, how: int) -> Generator[None]:
        handle = os.open(self.sources, os.O_RDONLY)
        try:
            fcntl.flock(handle, how)
            yield
        finally:
            os.close(handle)

    def touch(self, source: Path) -> bool:
        """Renew the time of a source; return whether it is there."""
        try:
            os.utime(source)
        except FileNotFoundError:
            return False
        return True

    def old(self, folder: Path, age: float) -> Iterator[Path]:
        """Return the files of a folder that were not touched for `age` seconds."""
        return (path for path in folder.iterdir() if self.is_old(path, age))

    def is_old(self, path: Path, age: float) -> bool:
        """Return whether a file is there, and was not touched for `age` seconds."""
        # Another process may purge at the same time.
        with suppress(FileNotFoundError):
            return path.stat().st_mtime <= time.time() - age
        return False
