# SPDX-License-Identifier: Apache-2.0
"""A pool of child processes that convert, one file each at a time.

A child that takes too long is killed; one that dies is replaced. Either way its file is refused, because the same file would do the
same again, and the files of others are not affected.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from apps.pdf2xml.gateway.child import Answer, Order

CONVERSIONS_MAX: Final = 500
"""After so many a child is replaced: a native library may leak."""
_ROOT: Final = Path(__file__).parents[3]


class _LostError(Exception):
    """A child died, or was killed because it took too long."""

    def __init__(self, *, is_slow: bool) -> None:
        super().__init__("The PDF takes too long to convert." if is_slow else "The PDF cannot be converted.")


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
            answer = await child.ask(order, self._seconds)
            is_kept = child.count < CONVERSIONS_MAX
        except _LostError as lost:
            return Answer(status=422, message=str(lost))
        else:
            return answer
        finally:
            # Also when this is cancelled: what the child would answer then is not for the next order.
            if child is not None and not is_kept:
                child.kill()
                self._children.discard(child)
            self._free.put_nowait(child if is_kept else None)

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
        return cls(
            await asyncio.create_subprocess_exec(sys.executable, *command, stdin=pipe, stdout=pipe, cwd=_ROOT)
        )

    async def ask(self, order: Order, seconds: float) -> Answer:
        if self._process.stdin is None or self._process.stdout is None:
            raise _LostError(is_slow=False)
        self.count += 1
        try:
            async with asyncio.timeout(seconds):
                self._process.stdin.write(msgspec.json.encode(order) + b"\n")
                await self._process.stdin.drain()
                line = await self._process.stdout.readline()
        except TimeoutError as error:
            raise _LostError(is_slow=True) from error
        except OSError as error:
            raise _LostError(is_slow=False) from error
        if not line:
            raise _LostError(is_slow=False)
        return msgspec.json.decode(line, type=Answer)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
