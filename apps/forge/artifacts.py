# SPDX-License-Identifier: Apache-2.0
"""Large artefacts as files named by their content, so that rows carry a digest and not the bytes.

The same content is one file, however often and by however many samples it is kept. A file appears under its name only when it is
complete, so a process that dies leaves no half of one.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from pathlib import Path
from typing import Final

from redrive import RedriveError

_DIGEST: Final = re.compile("[0-9a-f]{64}")


class Artifacts:
    """The artefacts of one run, in a folder. Stages get it by type."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, content: bytes) -> str:
        """Store content, durably, and return its digest."""
        digest = hashlib.sha256(content).hexdigest()
        path = self._path(digest)
        if path.exists():
            return digest
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".new-", delete=False) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(file.name).replace(path)
        return digest

    def read(self, digest: str) -> bytes:
        """Return the content with this digest.

        Raises:
            RedriveError: it is no digest, it is not there, or the file was changed.
        """
        if not _DIGEST.fullmatch(digest):
            # A path: what it leads to may be endless, or anybody's.
            problem, hint = "what is to be read is not the digest of an artefact", "Use what keep() returned."
            raise RedriveError(problem, hint=hint)
        try:
            content = self._path(digest).read_bytes()
        except OSError:
            problem, hint = f"the artefact {digest} is not in {self._folder}", "Restore it, or run again."
            raise RedriveError(problem, hint=hint) from None
        if hashlib.sha256(content).hexdigest() != digest:
            problem, hint = f"the artefact {digest} was changed", "Restore the file, or run again."
            raise RedriveError(problem, hint=hint)
        return content

    def _path(self, digest: str) -> Path:
        return self._folder / digest[:2] / digest[2:]
