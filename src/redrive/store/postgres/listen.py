# SPDX-License-Identifier: Apache-2.0
"""A signal that wakes an idle worker when somebody has submitted jobs: a connection of its own that listens, on a thread.

The signal is a hint: it may come without a change, and after a connection was lost it comes once, because something may have been
missed. What other workers settle is not announced: announcing makes commits wait for each other. An idle worker looks for that from
time to time anyway.
"""

from __future__ import annotations

import os
import select
import threading
from contextlib import suppress
from typing import Final

import psycopg

from redrive.errors import StoreError
from redrive.store.postgres.connection import Link, Server

AGAIN_SECONDS: Final = 1.0
"""How long to wait before a lost connection is made again."""


def channel_of(schema: str) -> str:
    """Return the name under which new jobs are announced."""
    return f"redrive_{schema}"[:63]


class ListenSignal:
    """A signal by LISTEN."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._channel = channel_of(server.address.schema)
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._stop_read, self._stop_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._link: Link | None = self._listening()
        self._thread = threading.Thread(target=self._listen, name="redrive-listen", daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        """See `ChangeSignal.fileno`."""
        return self._read

    def clear(self) -> None:
        """See `ChangeSignal.clear`."""
        with suppress(BlockingIOError):
            os.read(self._read, 65_536)

    def close(self) -> None:
        """See `ChangeSignal.close`."""
        os.write(self._stop_write, b"x")
        self._thread.join()
        for descriptor in (self._read, self._write, self._stop_read, self._stop_write):
            os.close(descriptor)

    def _listening(self) -> Link:
        link = self._server.connect()
        link.execute(f'LISTEN "{self._channel}"'.encode())
        return link

    def _listen(self) -> None:
        while not self._is_stopped(0):
            try:
                if self._link is None:
                    self._link = self._listening()
                    self._report()
                self._hear(self._link)
            except (psycopg.Error, StoreError, OSError):
                self._drop()
                if self._is_stopped(AGAIN_SECONDS):
                    break
        self._drop()

    def _hear(self, link: Link) -> None:
        """Report what comes until it is stopped, or the connection is lost."""
        while True:
            if self._stop_read in _readable(None, self._stop_read, link.fileno()):
                return
            link.pgconn.consume_input()
            is_heard = False
            while link.pgconn.notifies() is not None:
                is_heard = True
            if is_heard:
                self._report()

    def _report(self) -> None:
        with suppress(BlockingIOError):
            os.write(self._write, b"x")

    def _is_stopped(self, seconds: float) -> bool:
        return bool(_readable(seconds, self._stop_read))

    def _drop(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()


def _readable(seconds: float | None, *descriptors: int) -> set[int]:
    """Wait until one of these is readable, or for so many seconds; return which are."""
    waiting = select.poll()
    for descriptor in descriptors:
        waiting.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in waiting.poll(None if seconds is None else seconds * 1_000)}
