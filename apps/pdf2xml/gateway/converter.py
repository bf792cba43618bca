# SPDX-License-Identifier: Apache-2.0
"""A pool of child processes that convert, one file each at a time.

A child that takes too long is killed; one that dies is replaced. Either way its file is refused, because the same file would do the
same again, and the files of others are not affected. A child that cannot start, or that the system kills for want of memory, is
a failure of the gateway itself: its file may be sent again.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from apps.pdf2xml.gateway.child import READY, Answer, Order

CONVERSIONS_MAX: Final = 500
"""After so many a child is replaced: a native library may leak."""
START_SECONDS: Final = 30.0
_ROOT: Final = Path(__file__).parents[3]


class _LostError(Exception):
    """A child died, was killed because it took too long, or did not start."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.message)
        self.answer = answer


_SLOW: Final = Answer(status=422, message="The PDF takes too long to convert.")
_BAD: Final = Answer(status=422, message="The PDF cannot be converted.")
_UNAVAILABLE: Final = Answer(status=503)


class Converter:
    """Up to `processes` children, started when they are needed."""

    def __init__(self, *, processes: int, seconds: float, memory: int) -> None:
        self._free: asyncio.Queue[_Child | None] = asyncio.Queue()
        for _ in range(processes):
            self._free.put_nowait(None)
        self._seconds = seconds
        self._memory = memory
        self._children: set[_Child] = set()

    async def convert(self, order: Order) -> Answer:
        """Convert a file in the next child that is free."""
        child = await self._free.get()
        is_kept = False
        try:
            if child is None:
                child = await _Child.start(self._memory, self._seconds)
                self._children.add(child)
                await child.get_ready()
            answer = await child.ask(order, self._seconds)
            # PDFium keeps the reason of a failure, and would give it for the next bad file, too.
            is_kept = child.count < CONVERSIONS_MAX and answer.status != 422
        except _LostError as lost:
            return lost.answer
        else:
            return answer
        finally:
            # Also when this is cancelled: what the child would answer then is not for the next order.
            self._free.put_nowait(child if is_kept else None)
            if child is not None and not is_kept:
                self._children.discard(child)
                await child.end()

    def close(self) -> None:
        """End all children."""
        for child in self._children:
            child.kill()


class _Child:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.count = 0

    @classmethod
    async def start(cls, memory: int, seconds: float) -> _Child:
        command = ("-m", "apps.pdf2xml.gateway.child", str(memory), str(int(seconds) + 1))
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, *command, stdin=pipe, stdout=pipe, cwd=_ROOT
            )
        except OSError as error:
            raise _LostError(_UNAVAILABLE) from error
        return cls(process)

    async def end(self) -> None:
        """End the process and wait until it is gone, with its pipes."""
        self.kill()
        await self._process.communicate()

    async def get_ready(self) -> None:
        try:
            async with asyncio.timeout(START_SECONDS):
                line = await self._exchange(b"")
        except TimeoutError as error:
            raise _LostError(_UNAVAILABLE) from error
        if line != READY:
            raise _LostError(_UNAVAILABLE)

    async def ask(self, order: Order, seconds: float) -> Answer:
        self.count += 1
        try:
            async with asyncio.timeout(seconds):
                line = await self._exchange(msgspec.json.encode(order) + b"\n")
                if not line:
                    # Whoever asks a child does not kill it, so the system did.
                    is_killed = await self._process.wait() == -signal.SIGKILL
                    raise _LostError(_UNAVAILABLE if is_killed else _BAD)
        except TimeoutError as error:
            raise _LostError(_SLOW) from error
        return msgspec.json.decode(line, type=Answer)

    async def _exchange(self, line: bytes) -> bytes:
        """Send something, and return the next line; nothing when the child is gone."""
        if self._process.stdin is None or self._process.stdout is None:
            return b""
        try:
            self._process.stdin.write(line)
            await self._process.stdin.drain()
            return await self._process.stdout.readline()
        except ConnectionError:
            return b""

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
