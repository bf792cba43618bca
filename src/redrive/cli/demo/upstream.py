# SPDX-License-Identifier: Apache-2.0
"""The demo's dependency: an HTTP server on loopback that misbehaves, the same way for the same seed.

What goes wrong with an article follows from its number; the outage of the model starts after a share of the calls and lasts until
it was felt; a revoked key is refused until it is let in. The server keeps the ledger of what took effect, against which the demo
checks the engine's own account. Only for the demo: it listens on loopback, on a port the system picks.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

import msgspec

GOOD_KEY: Final = "sk-demo-2f7a91c4e8b05d36"
WRONG_KEY: Final = "sk-demo-revoked-90c1b7d2"

PLACES: Final = 200
_SPREAD: Final = 73
"""Prime to the number of places, so that neighbours get into different trouble."""
# What befalls the articles of each place; the first seven end in a dead letter, the others heal, what is not listed is fine.
_TROUBLE: Final[dict[int, str]] = {
    0: "gone",
    1: "refused",
    2: "wrong key",
    3: "garbled",
    4: "unreachable",
    **dict.fromkeys((5, 6), "wrong key"),
    **dict.fromkeys(range(7, 17), "limited"),
    **dict.fromkeys(range(17, 27), "reset"),
    **dict.fromkeys(range(27, 33), "hiccup"),
    **dict.fromkeys(range(33, 36), "answer lost"),
}
LATENCY: Final = {"fetch": 0.01, "llm": 0.06, "notify": 0.005}
"""Seconds a good answer takes, by path."""
HEAD_SECONDS: Final = 30.0


def trouble_of(number: int, seed: int) -> str | None:
    """Return what befalls an article, or None."""
    return _TROUBLE.get((number * _SPREAD + seed) % PLACES)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer; status 0 breaks the connection instead."""

    status: int
    text: str | None = "fine"
    retry_after: int | None = None


RESET: Final = Answer(0)


@dataclass(slots=True)
class Outage:
    """When the model is down: after so many calls, until some seconds have passed and enough calls felt it."""

    after_calls: int
    seconds: float
    refusals_min: int
    calls: int = 0
    refusals: int = 0
    began_at: float | None = None
    is_over: bool = False

    def refuses(self, now: float) -> bool:
        """Take in one call; say whether it is refused."""
        self.calls += 1
        if self.is_over or self.calls <= self.after_calls:
            return False
        if self.began_at is None:
            self.began_at = now
        self.is_over = now - self.began_at >= self.seconds and self.refusals >= self.refusals_min
        self.refusals += not self.is_over
        return not self.is_over


@dataclass(slots=True)
class Ledger:
    """What the upstream saw: notifications by idempotency key, and answers by status."""

    notified: Counter[str] = field(default_factory=Counter)
    answers: Counter[int] = field(default_factory=Counter)


class FlakyUpstream:
    """The server; `running` starts it on a thread of its own."""

    def __init__(self, *, seed: int, outage: Outage) -> None:
        self._seed = seed
        self.outage = outage
        self.ledger = Ledger()
        self.url = ""
        """Where it listens, once it runs."""
        self._seen: Counter[str] = Counter()
        self._keys = {GOOD_KEY}
        self._is_ready = threading.Event()

    @contextmanager
    def running(self) -> Generator[FlakyUpstream]:
        """Serve until the block ends."""
        thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="upstream", daemon=True)
        thread.start()
        self._is_ready.wait()
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._is_over.set)
            thread.join()

    def let_in(self, key: str) -> None:
        """Accept this key from now on."""
        self._keys.add(key)

    def answer_to(self, path: str, headers: dict[str, str], now: float) -> Answer:
        """Decide what a request gets, and write down what it does."""
        what, _, number = path.strip("/").partition("/")
        self._seen[path] += 1
        trouble, is_first = trouble_of(int(number), self._seed), self._seen[path] == 1
        if headers.get("authorization", "").removeprefix("Bearer ") not in self._keys:
            return Answer(401)
        if what == "fetch":
            return _fetched(trouble, is_first=is_first)
        if what == "llm":
            return Answer(503) if self.outage.refuses(now) else _summarised(trouble, is_first=is_first)
        if trouble == "hiccup" and is_first:
            return Answer(500)
        self.ledger.notified[headers.get("idempotency-key", "")] += 1
        return RESET if trouble == "answer lost" and is_first else Answer(200, "told")

    async def _serve(self) -> None:
        self._loop, self._is_over = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._take, "127.0.0.1", 0, backlog=512)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._is_ready.set()
        await self._is_over.wait()
        server.close()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A client that was killed leaves its connection broken; nobody waits for that answer any more.
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(HEAD_SECONDS):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            path = head[0].split(" ")[1]
            headers = {
                name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])
            }
            answer = self.answer_to(path, headers, self._loop.time())
            self.ledger.answers[answer.status] += 1
            if answer.status == 200:
                await asyncio.sleep(LATENCY[path.split("/")[1]])
            await _send(writer, answer)
        writer.close()


def _fetched(trouble: str | None, *, is_first: bool) -> Answer:
    if trouble == "gone":
        return Answer(404)
    if trouble == "unreachable" or (trouble == "reset" and is_first):
        return RESET
    return Answer(200, "Once upon a time")


def _summarised(trouble: str | None, *, is_first: bool) -> Answer:
    if trouble == "refused":
        return Answer(400)
    if trouble == "garbled":
        return Answer(200, None)
    if trouble == "limited" and is_first:
        return Answer(429, retry_after=1)
    return Answer(200, "a tale")


async def _send(writer: asyncio.StreamWriter, answer: Answer) -> None:
    if answer.status == 0:
        # A linger of zero makes the end of the connection a reset instead of a polite one.
        line: socket.socket = writer.get_extra_info("socket")
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        return
    body = msgspec.json.encode({"text": answer.text})
    head = [
        f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    if answer.retry_after is not None:
        head.append(f"Retry-After: {answer.retry_after}")
    writer.write("\r\n".join([*head, "", ""]).encode() + body)
    await writer.drain()
