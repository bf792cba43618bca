# SPDX-License-Identifier: Apache-2.0
"""A local server that speaks OpenAI's chat completions: with a key, a token bucket, Retry-After, and faults.

Which fault a text meets depends on the text alone: of a thousand, some are refused for good, and some fail the first time.
`running` serves on a thread; `python -m apps.forge.example.endpoint` serves in a process of its own, and prints its address.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import socket
import struct
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

import msgspec

KEY: Final = "sk-forge-local-4f1d9a27c0"
LABELS: Final = {
    "question": ("?", "how", "why", "what", "when"),
    "complaint": ("broken", "refund", "late", "never", "wrong"),
    "praise": ("great", "thank", "love", "perfect", "fast"),
}
OTHER: Final = "other"


@dataclass(slots=True)
class TokenBucket:
    """Allows `rate` calls a second, and `burst` at once."""

    rate: float
    burst: float
    _tokens: float = field(init=False)
    _at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._tokens = self.burst

    def take(self, now: float) -> float:
        """Take a token; return 0, or the seconds until there is one."""
        self._tokens = min(self.burst, self._tokens + (now - self._at) * self.rate)
        self._at = now
        if self._tokens >= 1:
            self._tokens -= 1
            return 0.0
        return (1 - self._tokens) / self.rate


@dataclass(slots=True, kw_only=True)
class Endpoint:
    """The server. `refused` and `flaky` are how many texts of a thousand fail for good, and once."""

    rate: float = 1_000.0
    burst: float = 100.0
    refused: int = 10
    flaky: int = 50
    key: str = KEY
    url: str = ""
    """Its address, once it runs."""
    answers: Counter[int] = field(default_factory=Counter)
    """How often each status was sent; 0 is a connection that was reset."""
    calls: Counter[str] = field(default_factory=Counter)
    """How often each text was answered well."""
    allowed: int | None = None
    """After so many good answers, the others are kept back until `gate` is set; `at_gate` counts those."""
    gate: threading.Event = field(default_factory=threading.Event)
    at_gate: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _failed: set[str] = field(default_factory=set)
    _bucket: TokenBucket = field(init=False)
    _loop: asyncio.AbstractEventLoop | None = None
    _is_over: asyncio.Event | None = None

    def __post_init__(self) -> None:
        self._bucket = TokenBucket(self.rate, self.burst)

    @contextmanager
    def running(self) -> Generator[Endpoint]:
        """Serve on a thread until the block ends."""
        is_ready = threading.Event()
        thread = threading.Thread(
            target=lambda: asyncio.run(self.serve(is_ready.set)), name="endpoint", daemon=True
        )
        thread.start()
        is_ready.wait()
        try:
            yield self
        finally:
            self.gate.set()
            if self._loop is not None and self._is_over is not None:
                self._loop.call_soon_threadsafe(self._is_over.set)
            thread.join()

    async def serve(self, on_ready: Callable[[], None]) -> None:
        """Serve until it is over; `on_ready` is called when the address is known."""
        self._loop, self._is_over = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, backlog=512)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        on_ready()
        await self._is_over.wait()
        server.close()

    def answer(self, key: str, body: bytes, now: float) -> tuple[int, dict[str, object], float]:
        """Return status, body and Retry-After for a request; status 0 resets the connection."""
        if key != self.key:
            return 401, _error("Incorrect API key provided.", "invalid_api_key"), 0.0
        wait = self._bucket.take(now)
        if wait:
            return 429, _error("Rate limit reached for requests.", "rate_limit_exceeded"), wait
        try:
            text = str(msgspec.json.decode(body)["messages"][-1]["content"])
        except (msgspec.DecodeError, LookupError, TypeError):
            return 400, _error("The request has the wrong form.", "invalid_request_error"), 0.0
        number = zlib.crc32(text.encode("utf-8", "replace")) % 1_000
        if number < self.refused:
            return 400, _error("The text was refused by our policy.", "content_policy_violation"), 0.0
        if number < self.refused + self.flaky and text not in self._failed:
            self._failed.add(text)
            return (503, 500, 0)[number % 3], _error("The server is overloaded.", "server_error"), 0.0
        self.calls[text] += 1
        return 200, _completion(text), 0.0

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A killed client leaves its connection broken; nobody waits for that answer.
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while await self._answered(reader, writer):
                pass
        writer.close()

    async def _answered(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; return whether the connection stays open."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])
        }
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        if head[0].split(" ")[:2] != ["POST", "/v1/chat/completions"]:
            status, content, wait = 404, _error("Unknown path.", "not_found"), 0.0
        else:
            key = headers.get("authorization", "").removeprefix("Bearer ")
            status, content, wait = self.answer(key, body, time.monotonic())
        self.answers[status] += 1
        if not status:
            # An RST instead of a FIN.
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            return False
        is_kept = self.allowed is not None and self.answers[HTTPStatus.OK] > self.allowed
        if status == HTTPStatus.OK and is_kept and not self.gate.is_set():
            self.at_gate.release()
            await asyncio.to_thread(self.gate.wait)
        text = msgspec.json.encode(content)
        delay = f"Retry-After: {math.ceil(wait)}\r\n" if wait else ""
        writer.write(
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json\r\n{delay}"
            f"Content-Length: {len(text)}\r\n\r\n".encode()
            + text
        )
        await writer.drain()
        return True


def _error(message: str, code: str) -> dict[str, object]:
    return {"error": {"message": message, "type": code, "param": None, "code": code}}


def _completion(text: str) -> dict[str, object]:
    """Label a text by the first word that is typical for a label."""
    lowered = text.lower()
    hits = {label: sum(word in lowered for word in words) for label, words in LABELS.items()}
    label = max(hits, key=lambda each: hits[each])
    found = {"label": label if hits[label] else OTHER, "confidence": min(0.99, 0.5 + 0.2 * hits[label])}
    message = {"role": "assistant", "content": msgspec.json.encode(found).decode()}
    used = {
        "prompt_tokens": len(text) // 4 + 40,
        "completion_tokens": 12,
        "total_tokens": len(text) // 4 + 52,
    }
    return {
        "id": f"chatcmpl-{zlib.crc32(text.encode('utf-8', 'replace')):08x}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": "forge-local",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": used,
    }


def main() -> None:
    """Serve until standard input ends, so that the server never outlives whoever started it."""
    parser = argparse.ArgumentParser(description="A local server with OpenAI's chat completions.")
    parser.add_argument("--rate", type=float, default=1_000.0, help="calls a second")
    parser.add_argument("--burst", type=float, default=100.0, help="calls at once")
    given = parser.parse_args()
    with Endpoint(rate=given.rate, burst=given.burst).running() as endpoint:
        sys.stdout.write(f"{endpoint.url}\n")
        sys.stdout.flush()
        sys.stdin.read()
        counts = {str(status): count for status, count in sorted(endpoint.answers.items())}
        # Whoever started it may be gone.
        with suppress(BrokenPipeError):
            sys.stdout.write(f"{msgspec.json.encode(counts).decode()}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
