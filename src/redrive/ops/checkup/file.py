# SPDX-License-Identifier: Apache-2.0
"""Checks the database: its size, schema version and clock; of a file also its place, permissions and disk.

Never opens the file: closing it would drop SQLite's locks on it.
"""

from __future__ import annotations

import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from redrive.core.units import format_duration, format_size
from redrive.engine.runtime import CURRENT
from redrive.ops.checkup.findings import Finding, fine, problem, warning
from redrive.store.protocol import Store
from redrive.store.statements import upkeep as upkeep_sql
from redrive.store.versions import newest

MIB: Final = 1024 * 1024
GIB: Final = 1024 * MIB
NETWORK_FILE_SYSTEMS: Final = frozenset(
    "nfs nfs4 cifs smb smb3 smbfs afs ncpfs 9p fuse.sshfs fuse.s3fs fuse.gcsfuse fuse.rclone glusterfs fuse.glusterfs ceph"
    " lustre".split()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits beyond which a finding is not ok."""

    size_max: float = 10.0 * GIB
    """Bytes of the database."""
    free_min: float = 200.0 * MIB
    """Bytes that must be free on its disk."""
    log_max: float = 1.0 * GIB
    """Bytes of the write-ahead log; a long read transaction makes it grow."""
    skew_max: float = 60.0
    """Seconds by which stored times may be in the future."""


def check_file(store: Store, limits: Limits) -> Iterator[Finding]:
    """Yield the findings about the database of a store, and about its file if it has one."""
    path, used = store.maintenance.file, store.query(upkeep_sql.database_size())[0]
    if path:
        yield from _place(path)
    yield _size(used, limits)
    if path:
        yield from _disk(path, used, limits)
    yield _schema(store)
    yield _clock(store, limits)


def _place(path: Path) -> Iterator[Finding]:
    mode = stat.S_IMODE(path.stat().st_mode)
    kind = file_system_of(path, _mounts())
    if kind in NETWORK_FILE_SYSTEMS:
        yield problem(
            "database",
            f"{path} is on a network file system ({kind}), where SQLite's locks are not reliable",
            "Move it to a local disk, and run every worker on that machine.",
        )
    if mode & 0o077:
        yield warning(
            "database",
            f"{path} is readable by other users (mode {mode:04o}); it contains payloads",
            f"chmod 600 {path}",
        )
    else:
        yield fine("database", f"{path} is readable by its owner only")


def _size(used: int, limits: Limits) -> Finding:
    if used > limits.size_max:
        return warning(
            "size",
            f"the database has {format_size(used)}; jobs are kept until they are pruned",
            "redrive prune --complete 30d --cancelled 7d --skipped 7d (try --dry-run first).",
        )
    return fine("size", f"the database has {format_size(used)}")


def _disk(path: Path, used: int, limits: Limits) -> Iterator[Finding]:
    log_path = path.with_name(f"{path.name}-wal")
    log = log_path.stat().st_size if log_path.exists() else 0
    free = shutil.disk_usage(path.parent).free
    if log > limits.log_max:
        yield warning(
            "size",
            f"its write-ahead log has {format_size(log)}: a read transaction has been open for a long time",
            "Look for a long backup or a program that keeps a transaction open.",
        )
    if free < limits.free_min:
        yield problem(
            "disk",
            f"only {format_size(free)} free on the disk of the database",
            "Free space now: when the disk is full, workers cannot store results.",
        )
    elif free < used:
        yield warning(
            "disk",
            f"{format_size(free)} free, less than the database has",
            "Free space: a backup on this disk would not fit.",
        )
    else:
        yield fine("disk", f"{format_size(free)} free")


def _schema(store: Store) -> Finding:
    found, known = store.query(upkeep_sql.schema_version())[0], newest()
    if found == known:
        return fine("schema", f"schema version {found}, as this redrive needs")
    return problem("schema", f"schema version {found}; this redrive needs {known}", "redrive migrate")


def _clock(store: Store, limits: Limits) -> Finding:
    (latest,) = store.query(upkeep_sql.latest_instant())
    now = CURRENT.get().clock.wall()
    if latest is None:
        return fine("clock", "nothing is stored yet to compare with")
    ahead = latest - now
    if ahead > limits.skew_max:
        return problem(
            "clock",
            f"the latest stored time is {format_duration(ahead)} ahead of this machine's clock",
            "Synchronise the clocks of all machines with NTP; leases and due times depend on them.",
        )
    return fine("clock", "no stored time is in the future")


def file_system_of(path: Path, mounts: str) -> str | None:
    """Return the type of the file system of a path, by the longest mount point above it; None when unknown."""
    best, kind = "", None
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ")
        is_above = str(path) == point or str(path).startswith(point.rstrip("/") + "/")
        if is_above and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind


def _mounts() -> str:
    try:
        return Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
