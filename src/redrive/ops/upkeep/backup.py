# SPDX-License-Identifier: Apache-2.0
"""Copies the database while workers keep writing, with a line in the operator log.

How a copy is made is the store's: see `Maintenance.backup`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from redrive.ops.audit import Actor, Subject
from redrive.store.location import version_of
from redrive.store.maintenance import OnPages
from redrive.store.protocol import Store
from redrive.store.versions import newest


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupReport:
    """What was copied."""

    source: str
    target: str
    bytes: int
    jobs: int


def backup(store: Store, target: Path, by: Actor, *, on_pages: OnPages | None = None) -> BackupReport:
    """Copy the database of a store into a new file and check the copy; an error leaves no partial copy.

    Raises:
        ConfigurationError: the file exists already, or the store has no file.
        StoreUnavailableError: the copy could not be made, or failed its check.
    """
    jobs = store.maintenance.backup(target, on_pages)
    # A database with an older schema, which is copied before it is migrated, stays as it is.
    if version_of(target) == newest():
        store.apply(by.log("backup", Subject("file", str(target))))
    source = str(store.maintenance.file)
    return BackupReport(source=source, target=str(target), bytes=target.stat().st_size, jobs=jobs)
