# SPDX-License-Identifier: Apache-2.0
"""A signal that wakes an idle worker when any process has written to the database, so that nobody has to look all the time.

Every writer touches the lock file beside the database after its commit (`file_lock`), and the system reports that: inotify on
Linux. The signal is a hint: it may come without a change, and where the system has none the caller compares the store's change
counter from time to time. The change itself is always read from the database.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from typing import Final

from redrive.store.protocol import ChangeSignal

IN_MODIFY: Final = 0x2
"""The inotify event of a file that was written to."""
EVENTS_MAX: Final = 65_536
"""Bytes of events that are read at once."""


def change_signal(path: str) -> ChangeSignal | None:
    """Return a signal for writes to a file that exists; None if the system has none, or no room for one more."""
    # A C library without inotify has no function of its name.
    with suppress(OSError, AttributeError):
        return InotifySignal(path)
    return None


class InotifySignal:
    """A signal by inotify, which the standard library does not have."""

    def __init__(self, path: str) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = _checked(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        try:
            _checked(libc.inotify_add_watch(self._descriptor, os.fsencode(path), IN_MODIFY))
        except OSError:
            self.close()
            raise

    def fileno(self) -> int:
        """See `ChangeSignal.fileno`."""
        return self._descriptor

    def clear(self) -> None:
        """See `ChangeSignal.clear`."""
        with suppress(BlockingIOError):
            os.read(self._descriptor, EVENTS_MAX)

    def close(self) -> None:
        """See `ChangeSignal.close`."""
        os.close(self._descriptor)


def _checked(answer: int) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer
