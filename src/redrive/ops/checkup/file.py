# SPDX-License-Identifier: Apache-2.0
"""Checks of the database as a file: where it lies, who can read it, its size, its version, the clock, the disk.

Only looks. The file itself is never opened here, only asked about: closing it would drop SQLite's locks on it.
"""

from __future__ import annotations

import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from redrive.engine.runtime import CURRENT
from redrive.ops.checkup.findings import Finding, age, fine, problem, size, warning
from redrive.ops.jobs.inspect import counts
from redrive.store.protocol import Store
from redrive.store.sqlite.migrations import newest

MIB: Final = 1024 * 1024
GIB: Final = 1024 * MIB
NETWORK_FILE_SYSTEMS: Final = frozenset(
    "nfs nfs4 cifs smb smb3 smbfs afs ncpfs 9p fuse.sshfs fuse.s3fs fuse.gcsfuse fuse.rclone glusterfs fuse.glusterfs ceph"
    " lustre".split()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """From when on a file is worth a word."""

    size_max: float = 10.0 * GIB
    """Bytes of the database from which on pruning is advised."""
    free_min: float = 200.0 * MIB
    """Bytes that must be free beside it."""
    log_max: float = 1.0 * GIB
    """Bytes of the write-ahead log from which on somebody reads for too long."""
    skew_max: float = 60.0
    """Seconds by which stored times may lie in the future."""


def check_file(store: Store, limits: Limits) -> Iterator[Finding]:
    """Yield what there is to say about the file behind a store."""
    path = str(store.query("database_file")[0][0] or "")
    if path:
        yield from _place(Path(path))
        yield from _sizes(Path(path), limits)
    yield _schema(store)
    yield _clock(store, limits)


def check_deep(store: Store) -> Iterator[Finding]:
    """Yield what only reading everything can tell: whether the file is sound, and the counters are right."""
    wrong = [str(row[0]) for row in store.query("integrity") if row[0] != "ok"]
    if wrong:
        yield problem(
            "integrity",
            f"the database is damaged: {'; '.join(wrong[:3])}",
            "Stop the workers, keep a copy of all its files, and go back to the last backup.",
        )
    else:
        yield fine("integrity", "every page and index is sound")
    for table, parent, count in store.query("broken_references"):
        yield problem(
            "integrity",
            f"{count} rows of {table} belong to no row of {parent}",
            "Report this with the output of `redrive doctor --deep -o json`.",
        )
    yield _tallies(store)


def _place(path: Path) -> Iterator[Finding]:
    mode = stat.S_IMODE(path.stat().st_mode)
    kind = file_system_of(path, _mounts())
    if kind in NETWORK_FILE_SYSTEMS:
        yield problem(
            "database",
            f"{path} lies on a network file system ({kind}), where SQLite's locks do not hold",
            "Move it to a local disk, and let every worker run on that machine.",
        )
    if mode & 0o077:
        yield warning(
            "database",
            f"{path} can be read by others (mode {mode:04o}); it holds payloads",
            f"chmod 600 {path}",
        )
    else:
        yield fine("database", f"{path} is readable by its owner alone")


def _sizes(path: Path, limits: Limits) -> Iterator[Finding]:
    held = path.stat().st_size
    log_path = path.with_name(f"{path.name}-wal")
    log = log_path.stat().st_size if log_path.exists() else 0
    free = shutil.disk_usage(path.parent).free
    if held > limits.size_max:
        yield warning(
            "size",
            f"the database has {size(held)}; nothing is pruned unless you say so",
            "redrive prune --complete 30d --cancelled 7d (try --dry-run first).",
        )
    else:
        yield fine("size", f"the database has {size(held)}")
    if log > limits.log_max:
        yield warning(
            "size",
            f"its write-ahead log has {size(log)}: something reads for a very long time",
            "Look for a long backup, or a program that keeps a transaction open.",
        )
    if free < limits.free_min:
        yield problem(
            "disk",
            f"only {size(free)} are free beside the database",
            "Make room now: when the disk is full, nothing can be settled.",
        )
    elif free < held:
        yield warning(
            "disk",
            f"{size(free)} are free, less than the database has",
            "Make room: a backup on this disk would not fit.",
        )
    else:
        yield fine("disk", f"{size(free)} are free")


def _schema(store: Store) -> Finding:
    found, known = cast("int", store.query("schema_version")[0][0]), newest()
    if found == known:
        return fine("schema", f"schema version {found}, as this redrive knows it")
    return problem("schema", f"schema version {found}, and this redrive knows {known}", "redrive migrate")


def _clock(store: Store, limits: Limits) -> Finding:
    latest = store.query("latest_instant")[0][0]
    now = CURRENT.get().clock.wall()
    if latest is None:
        return fine("clock", "nothing is stored yet to compare it with")
    ahead = cast("float", latest) - now
    if ahead > limits.skew_max:
        return problem(
            "clock",
            f"what was stored last lies {age(ahead)} in the future of this machine's clock",
            "Set the clock by NTP on every machine; leases and due times depend on it.",
        )
    return fine("clock", "nothing stored lies in the future")


def _tallies(store: Store) -> Finding:
    recounted: dict[tuple[str, str], dict[str, int]] = {}
    for pipeline, stage, status, found in store.query("recount"):
        recounted.setdefault((str(pipeline), str(stage)), {})[str(status)] = cast("int", found)
    tallied = counts(store)
    wrong = [
        f"{pipeline}.{stage} {status}: {told.get(status, 0)} told, {real.get(status, 0)} there"
        for pipeline, stage in sorted(recounted.keys() | tallied.keys())
        for told in (tallied.get((pipeline, stage), {}),)
        for real in (recounted.get((pipeline, stage), {}),)
        for status in sorted(told.keys() | real.keys())
        if told.get(status, 0) != real.get(status, 0)
    ]
    if wrong:
        return problem(
            "counters",
            f"counters differ from the jobs: {'; '.join(wrong[:5])}",
            "Run it again while no worker writes; if they still differ, report it.",
        )
    return fine("counters", "every counter agrees with a recount")


def file_system_of(path: Path, mounts: str) -> str | None:
    """Return the kind of file system a path lies on, by the longest mount point above it; None when nobody tells."""
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
