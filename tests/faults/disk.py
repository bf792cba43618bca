# SPDX-License-Identifier: Apache-2.0
"""A disk that remembers: what SQLite writes and syncs is recorded, and any state that a power cut may leave can be made from it.

SQLite reaches files through a table of functions (its VFS); the ones that change a file are replaced, through ctypes, by some that
record the call and pass it on. A power cut keeps everything up to a file's last sync, and of what came after it any part: every
write, each of its sectors and every change of size may have reached the disk or not.
"""

from __future__ import annotations

import _sqlite3
import ctypes
import random
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SECTOR = 512
OK = 0

_pointer, _int, _int64 = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
# Paths are passed on as they came, not as a copy: SQLite keeps what belongs to a path in the memory beside it.
OPEN = ctypes.CFUNCTYPE(_int, _pointer, _pointer, _pointer, _int, _pointer)
DELETE = ctypes.CFUNCTYPE(_int, _pointer, _pointer, _int)
WRITE = ctypes.CFUNCTYPE(_int, _pointer, _pointer, _int, _int64)
TRUNCATE = ctypes.CFUNCTYPE(_int, _pointer, _int64)
SYNC = ctypes.CFUNCTYPE(_int, _pointer, _int)


class Vfs(ctypes.Structure):
    """SQLite's `sqlite3_vfs`, as far as it is needed."""

    _fields_ = (
        ("version", _int),
        ("file_size", _int),
        ("path_max", _int),
        ("next", _pointer),
        ("name", ctypes.c_char_p),
        ("app_data", _pointer),
        ("open", _pointer),
        ("delete", _pointer),
    )


class Methods(ctypes.Structure):
    """SQLite's `sqlite3_io_methods`: what can be done with an open file."""

    _fields_ = (
        ("version", _int),
        ("close", _pointer),
        ("read", _pointer),
        ("write", _pointer),
        ("truncate", _pointer),
        ("sync", _pointer),
        ("others", _pointer * 13),
    )


@dataclass(frozen=True)
class Written:
    """So many bytes at a place of a file."""

    file: str
    offset: int
    data: bytes


@dataclass(frozen=True)
class Resized:
    """A file cut to a size."""

    file: str
    size: int


@dataclass(frozen=True)
class Synced:
    """A file, all of which is safe now."""

    file: str


@dataclass(frozen=True)
class Created:
    """A name that is new in the folder."""

    file: str


@dataclass(frozen=True)
class Deleted:
    """A name that is gone from the folder."""

    file: str
    is_synced: bool
    """Whether the folder was synced after it."""


@dataclass(frozen=True)
class Fact:
    """Something somebody relied on from here on."""

    kind: str
    job: int
    stage: str = ""


Event = Written | Resized | Synced | Created | Deleted | Fact


class Recorder:
    """Records what SQLite does to the files of one folder, with the facts in between."""

    def __init__(self, folder: Path) -> None:
        self._folder = f"{folder.resolve()}/"
        self.events: list[Event] = []
        self._kept: list[object] = []
        """What SQLite has pointers to."""

    def relies_on(self, kind: str, job: int, stage: str = "") -> None:
        """Note a fact that must be on disk by now."""
        self.events.append(Fact(kind, job, stage))

    @contextmanager
    def recording(self) -> Generator[None]:
        """Record everything until the end of the block; every connection must be closed by then."""
        library = ctypes.CDLL(_sqlite3.__file__)
        library.sqlite3_vfs_find.restype = ctypes.POINTER(Vfs)
        vfs = library.sqlite3_vfs_find(None).contents
        before = vfs.open, vfs.delete
        opened, deleted = self._open(OPEN(vfs.open)), self._delete(DELETE(vfs.delete))
        self._kept += [opened, deleted]
        vfs.open, vfs.delete = _address(opened), _address(deleted)
        try:
            yield
        finally:
            vfs.open, vfs.delete = before

    def _name(self, path: int | None) -> str | None:
        text = ctypes.string_at(path).decode() if path else ""
        return text.removeprefix(self._folder) if text.startswith(self._folder) else None

    def _open(self, real: Callable[..., int]) -> Any:
        def opened(vfs: int, path: int | None, file: int, flags: int, out: int) -> int:
            name = self._name(path)
            is_new = name is not None and not Path(self._folder, name).exists()
            result = real(vfs, path, file, flags, out)
            if result == OK and name is not None:
                if is_new:
                    self.events.append(Created(name))
                self._replace_methods(name, file)
            return result

        return OPEN(opened)

    def _delete(self, real: Callable[..., int]) -> Any:
        def deleted(vfs: int, path: int, sync: int) -> int:
            result = real(vfs, path, sync)
            name = self._name(path)
            if result == OK and name is not None:
                self.events.append(Deleted(name, is_synced=bool(sync)))
            return result

        return DELETE(deleted)

    def _replace_methods(self, name: str, file: int) -> None:
        place = ctypes.cast(file, ctypes.POINTER(ctypes.POINTER(Methods)))
        methods = Methods.from_buffer_copy(place.contents.contents)
        write, truncate, sync = WRITE(methods.write), TRUNCATE(methods.truncate), SYNC(methods.sync)

        def written(handle: int, data: int, size: int, offset: int) -> int:
            self.events.append(Written(name, offset, ctypes.string_at(data, size)))
            return int(write(handle, data, size, offset))

        def resized(handle: int, size: int) -> int:
            self.events.append(Resized(name, size))
            return int(truncate(handle, size))

        def synced(handle: int, flags: int) -> int:
            result = int(sync(handle, flags))
            if result == OK:
                self.events.append(Synced(name))
            return result

        replaced = WRITE(written), TRUNCATE(resized), SYNC(synced)
        methods.write, methods.truncate, methods.sync = map(_address, replaced)
        place[0] = ctypes.pointer(methods)
        self._kept += [replaced, methods]


def _address(function: object) -> int | None:
    return ctypes.cast(function, _pointer).value  # type: ignore[arg-type]  # a function is a pointer to ctypes.


@dataclass
class File:
    """A file on the disk: what is safe of it, and what was done since."""

    safe: bytearray = field(default_factory=bytearray)
    since: list[Written | Resized] = field(default_factory=list)
    is_named: bool = False
    """Whether its name in the folder is safe."""
    syncs_folder: bool = False
    """Whether SQLite syncs the folder with it: after the first sync of a new log or journal."""
    is_deleted: bool = False

    def after_cut(self, chance: random.Random) -> bytes | None:
        """Return one state that a power cut may leave; None when there is no such file."""
        if (self.is_deleted or not self.is_named) and chance.random() < 0.5:
            return None
        kept = chance.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        left = bytearray(self.safe)
        for event in self.since:
            if isinstance(event, Resized) or chance.random() < 0.7:
                if chance.random() < kept:
                    apply(left, event)
            else:
                for part in sectors(event):
                    if chance.random() < kept:
                        apply(left, part)
        return bytes(left)


def apply(content: bytearray, event: Written | Resized) -> None:
    if isinstance(event, Resized):
        del content[event.size :]
        return
    content.extend(bytes(max(0, event.offset - len(content))))
    content[event.offset : event.offset + len(event.data)] = event.data


def sectors(event: Written) -> Generator[Written]:
    """Yield the parts of a write that reach the disk one by one."""
    at, end = event.offset, event.offset + len(event.data)
    while at < end:
        until = min(end, (at // SECTOR + 1) * SECTOR)
        yield Written(event.file, at, event.data[at - event.offset : until - event.offset])
        at = until


class Disk:
    """The files after so many events."""

    def __init__(self, events: list[Event]) -> None:
        self._events = events
        self._done = 0
        self.files: dict[str, File] = {}
        self.facts: list[Fact] = []

    def advance(self, to: int) -> None:
        """Let the events up to this one happen."""
        for event in self._events[self._done : to]:
            self._happen(event)
        self._done = max(self._done, to)

    def cut(self, folder: Path, chance: random.Random) -> None:
        """Write what a power cut leaves into a folder."""
        for name, file in self.files.items():
            content = file.after_cut(chance)
            if content is not None:
                (folder / name).write_bytes(content)

    def _happen(self, event: Event) -> None:
        if isinstance(event, Fact):
            self.facts.append(event)
            return
        if isinstance(event, Created):
            self.files[event.file] = File(syncs_folder=True)
            return
        # The database itself is created empty before SQLite opens it.
        file = self.files.setdefault(event.file, File())
        if isinstance(event, Deleted):
            file.is_deleted = True
            if event.is_synced:
                del self.files[event.file]
        elif isinstance(event, Synced):
            for done in file.since:
                apply(file.safe, done)
            file.since.clear()
            if file.syncs_folder:
                file.syncs_folder = False
                self._sync_folder()
        else:
            file.since.append(event)

    def _sync_folder(self) -> None:
        self.files = {name: file for name, file in self.files.items() if not file.is_deleted}
        for file in self.files.values():
            file.is_named = True
