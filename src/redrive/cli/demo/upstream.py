# SPDX-License-Identifier: Apache-2.0
"""The demo's dependency: an HTTP server on loopback with injected faults, the same ones for the same seed.

Which fault an article meets depends on its number. The model's outage starts after a share of the calls and lasts until enough
calls were refused. A revoked key is refused until it is accepted again. The server counts the notifications it received; the demo
compares them with the store.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import msgspec

GOOD_KEY: Final = "sk-demo-2f7a91c4e8b05d36"
WRONG_KEY: Final = "sk-demo-revoked-90c1b7d2"

PLACES: Final = 200
_SPREAD: Final = 73
"""Coprime to the number of places, so that neighbours meet different faults."""
# The fault of each place. The first seven end in a dead letter, the others in a retry; other places have none.
_FAULTS: Final[dict[int, str]] = {
    0: "gone",
    1: "refused",
    2: "wrong key",
    3: "garbled",
    4: "unreachable",
    **dict.fromkeys((5, 6), "wrong key"),
    **dict.fromkeys(range(7, 17), "limited"),
    **dict.fromkeys(range(17, 27), "reset"),
    **dict.fromkeys(range(27, 33), "hiccup"),
    **dict.fromkeys(range(33, 36), "response lost"),
}
LATENCY: Final = {"fetch": 0.01, "llm": 0.06, "notify": 0.005}
"""Seconds a successful response takes, by path."""
REQUEST_SECONDS: Final = 30.0


def fault_of(number: int, seed: int) -> str | None:
    """Return the fault that an article meets, or None."""
    return _FAULTS.get((number * _SPREAD + seed) % PLACES)


@dataclass(frozen=True, slots=True)
class Response:
    """One response; status 0 resets the connection instead."""

    status: int
    text: str | None = "fine"
    retry_after: int | None = None


RESET: Final = Response(0)


@dataclass(slots=True)
class Outage:
    """When the model is down: after so many calls, until some seconds have passed and enough calls were refused."""

    after_calls: int
    seconds: float
    refusals_min: int
    calls: int = 0
    refusals: int = 0
    began_at: float | None = None
    is_over: bool = False

    def refuses(self, now: float) -> bool:
        """Count one call; return whether it is refused."""
        self.calls += 1
        if self.is_over or self.calls <= self.after_calls:
            return False
        if self.began_at is None:
            self.began_at = now
        self.is_over = now - self.began_at >= self.seconds and self.refusals >= self.refusals_min
        self.refusals += not self.is_over
        return not self.is_over


class FaultyUpstream:
    """The server; `running` starts it on its own thread."""

    def __init__(self, *, seed: int, outage: Outage) -> None:
        self._seed = seed
        self.outage = outage
        self.notified: Counter[str] = Counter()
        """Notifications received, by idempotency key."""
        self.url = ""
        """Its address, once it runs."""
        self._seen: Counter[str] = Counter()
        self._keys = {GOOD_KEY}
        self._is_ready = threading.Event()

    @contextmanager
    def running(self) -> Generator[FaultyUpstream]:
        """Serve until the block ends."""
        thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="upstream", daemon=True)
        thread.start()
        self._is_ready.wait()
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._is_over.set)
            thread.join()

    def accept_key(self, key: str) -> None:
        """Accept this key from now on."""
        self._keys.add(key)

    def respond(self, path: str, headers: dict[str, str], now: float) -> Response:
        """Return the response to a request, and count a notification."""
        what, _, number = path.strip("/").partition("/")
        self._seen[path] += 1
        fault, is_first = fault_of(int(number), self._seed), self._seen[path] == 1
        if headers.get("authorization", "").removeprefix("Bearer ") not in self._keys:
            return Response(401)
        if what == "fetch":
            return _fetched(fault, is_first=is_first)
        if what == "llm":
            return Response(503) if self.outage.refuses(now) else _summarised(fault, is_first=is_first)
        if fault == "hiccup" and is_first:
            return Response(500)
        self.notified[headers.get("idempotency-key", "")] += 1
        return RESET if fault == "response lost" and is_first else Response(200, "notified")

    async def _serve(self) -> None:
        self._loop, self._is_over = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._serve_request, "127.0.0.1", 0, backlog=512)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._is_ready.set()
        await self._is_over.wait()
        server.close()

    async def _serve_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A killed client leaves its connection broken; nobody waits for that response.
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(REQUEST_SECONDS):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            path = head[0].split(" ")[1]
            headers = {
                name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])
            }
            response = self.respond(path, headers, self._loop.time())
            if response.status == 200:
                await asyncio.sleep(LATENCY[path.split("/")[1]])
            await _send(writer, response)
        writer.close()


def _fetched(fault: str | None, *, is_first: bool) -> Response:
    if fault == "gone":
        return Response(404)
    if fault == "unreachable" or (fault == "reset" and is_first):
        return RESET
    return Response(200, "Once upon a time")


def _summarised(fault: str | None, *, is_first: bool) -> Response:
    if fault == "refused":
        return Response(400)
    if fault == "garbled":
        return Response(200, None)
    if fault == "limited" and is_first:
        return Response(429, retry_after=1)
    return Response(200, "a tale")


async def _send(writer: asyncio.StreamWriter, response: Response) -> None:
    if response.status == 0:
        # With a linger of zero, closing the connection resets it.
        line: socket.socket = writer.get_extra_info("socket")
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        return
    body = msgspec.json.encode({"text": response.text})
    head = [
        f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    if response.retry_after is not None:
        head.append(f"Retry-After: {response.retry_after}")
    writer.write("\r\n".join([*head, "", ""]).encode() + body)
    await writer.drain()
