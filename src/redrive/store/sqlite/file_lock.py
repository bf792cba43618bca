# SPDX-License-Identifier: Apache-2.0
"""The lock beside the database: processes take turns at writing instead of racing for SQLite's own lock.

Only writers take it, and the file is created by the first of them. Whoever waits logs after a few seconds which process holds the
lock, and gets an error in the end: a holder that was suspended must not block all others for ever.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from redrive.errors import StoreUnavailableError
from redrive.store.protocol import ChangeSignal
from redrive.store.sqlite.change_signal import change_signal

logger = logging.getLogger("redrive.store")

WARN_SECONDS: Final = 3.0
"""How long to wait for the lock before the holder is logged."""
WAIT_SECONDS: Final = 15.0
"""How long to wait for it at most: a worker that is stopped must end while a supervisor still waits for it."""
WAKE: Final = b"\n"
"""Written to wake idle workers."""
NUMBER_BYTES: Final = 8
LOCKS: Final = Path("/proc/locks")


class FileLock:
    """A lock on a file that everybody who writes to one database takes. Used by one thread at a time."""

    def __init__(self, database: str) -> None:
        self._database = database
        self._path = f"{database}.lock"
        self._descriptor: int | None = None
        self._wait: _Wait | None = None
        """The wait that is under way, also one that its caller gave up."""
        self._waits: SimpleQueue[_Wait | None] | None = None
        self._mark = WAKE

    @contextmanager
    def held(self) -> Generator[None]:
        """Hold the lock; raises StoreUnavailableError when another process does not release it."""
        descriptor = self._opened()
        self._acquire(descriptor)
        try:
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            # Wakes idle workers (`change_signal`); only now, because they want the lock next. A full disk must not hurt a commit.
            with suppress(OSError):
                os.pwrite(descriptor, self._mark, 0)
            self._mark = WAKE

    def note(self, job: int) -> None:
        """Note the last job id that was given out, when the lock is released: a file that has given out fewer was put back."""
        self._mark = WAKE + job.to_bytes(NUMBER_BYTES, "big")

    def noted(self) -> int:
        """Return the last job id that anybody noted; 0 if nobody has."""
        return int.from_bytes(os.pread(self._opened(), NUMBER_BYTES, len(WAKE)), "big")

    def signal(self) -> ChangeSignal | None:
        """Return a signal for what anybody writes under this lock."""
        self._opened()
        return change_signal(self._path)

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None and (self._wait is None or not self._wait.leave(closes=True)):
            os.close(self._descriptor)
        self._descriptor = self._wait = None
        if self._waits is not None:
            self._waits.put(None)
            self._waits = None

    def _opened(self) -> int:
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        return self._descriptor

    def _acquire(self, descriptor: int) -> None:
        if self._wait is None or not self._wait.resume():
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._wait = self._start_wait(descriptor)
            else:
                self._wait = None
                return
        if not self._wait.is_over.wait(WARN_SECONDS):
            logger.warning(
                "%s: waiting to write; %s holds the lock %s", self._database, holder(descriptor), self._path
            )
            if not self._wait.is_over.wait(WAIT_SECONDS - WARN_SECONDS) and self._wait.leave():
                raise StoreUnavailableError(
                    database=self._database,
                    cause=f"{holder(descriptor)} has held the lock {self._path} for {WAIT_SECONDS:g} s",
                    hint="That process is in a long write or suspended: resume it or end it.",
                )
        self._wait = None

    def _start_wait(self, descriptor: int) -> _Wait:
        """Wait on a thread of its own: the system's call has no time limit."""
        if self._waits is None:
            self._waits = SimpleQueue()
            threading.Thread(
                target=_serve, args=(self._waits,), name="redrive-file-lock", daemon=True
            ).start()
        wait = _Wait(descriptor)
        self._waits.put(wait)
        return wait


class _Wait:
    """One wait for the lock, on the thread for waiting; its caller may leave it, and resume it later."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._mutex = threading.Lock()
        self._is_left = False
        self._closes = False
        self.is_over = threading.Event()

    def run(self) -> None:
        """Take the lock; release it at once when its wait was cancelled."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        with self._mutex:
            if self._is_left:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
                if self._closes:
                    os.close(self._descriptor)
            self.is_over.set()

    def leave(self, *, closes: bool = False) -> bool:
        """Cancel the wait; return False when the lock was taken already. `closes`: the file is closed then, not before."""
        with self._mutex:
            if self.is_over.is_set():
                return False
            self._is_left, self._closes = True, closes
            return True

    def resume(self) -> bool:
        """Restart the wait; return False when the lock was released already."""
        with self._mutex:
            if self.is_over.is_set():
                return False
            self._is_left = False
            return True


def _serve(waits: SimpleQueue[_Wait | None]) -> None:
    while (wait := waits.get()) is not None:
        wait.run()


def holder(descriptor: int) -> str:
    """Return which process holds the lock on an open file, as far as the system shows it."""
    try:
        inode = os.fstat(descriptor).st_ino
        for line in LOCKS.read_text(encoding="ascii").splitlines():
            # 1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF; a line with an arrow is somebody who waits.
            fields = line.split()
            if fields[1] == "FLOCK" and int(fields[5].rsplit(":", 1)[1]) == inode and int(fields[4]) > 0:
                return f"process {fields[4]}"
    except (OSError, ValueError, IndexError):
        pass
    return "another process"
