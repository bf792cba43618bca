# SPDX-License-Identifier: Apache-2.0
"""The real engine against a real server with a rate limit: with a limit of our own it hardly ever refuses, and nothing is slower.

Times are compared with the shortest possible one, (N - burst) / rate, between the first call and the last; nothing else is timed.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Generator
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError

import pytest

from redrive import Backoff, Limit, Pipeline, RetryPolicy, connect, stage

RATE, BURST, JOBS = 20.0, 10, 70
IDEAL = (JOBS - BURST) / RATE


class Server(ThreadingHTTPServer):
    """Answers 200 or, when its bucket is empty, 429 with Retry-After."""

    request_queue_size = 256

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        self.tokens, self.at = float(BURST), time.monotonic()
        self.served: list[float] = []
        self.refused = 0

    def take(self) -> float | None:
        """Take a token; return how long to wait for one if there is none."""
        with self.lock:
            now = time.monotonic()
            self.tokens, self.at = min(BURST, self.tokens + (now - self.at) * RATE), now
            if self.tokens < 1:
                self.refused += 1
                return (1 - self.tokens) / RATE
            self.tokens -= 1
            self.served.append(now)
            return None


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server

    def do_GET(self) -> None:
        wait = self.server.take()
        self.send_response(200 if wait is None else 429)
        if wait is not None:
            self.send_header("Retry-After", f"{wait:.3f}")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_args: object) -> None:
        """Keep quiet."""


@pytest.fixture(scope="module")
def server() -> Generator[Server]:
    made = Server()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def drained(server: Server, folder: Path, *limits: Limit) -> float:
    """Send every job to the server; return how long that took, from the first call that was served to the last."""
    server.reset()

    async def call(number: int) -> int:
        # A client of a few lines: on a busy machine a large one would be what is measured.
        reader, writer = await asyncio.open_connection("127.0.0.1", server.server_port)
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        status, _, rest = (await reader.read()).partition(b"\r\n")
        writer.close()
        if b" 429 " in status:
            raise HTTPError("http://server.test/", 429, "Too Many Requests", message_from_bytes(rest), None)
        return number

    retry = RetryPolicy(100, Backoff.fixed(0.5), respect_retry_after=bool(limits))
    pipeline = Pipeline("calls", [stage(retry=retry, limits=limits)(call)])
    with connect(folder / "jobs.db") as rd:
        rd.submit_many(pipeline, range(JOBS))
        rd.work([pipeline], concurrency=32, until_idle=True)
        assert rd.jobs.counts() == {"complete": JOBS}
    assert len(server.served) == JOBS
    return server.served[-1] - server.served[0]


def best_of_three(server: Server, folder: Path, limit: Limit, enough: float) -> tuple[float, int]:
    """Drain until it was quick enough, three times at most: another program may take the machine for a second at any time."""
    found: list[tuple[float, int]] = []
    while len(found) < 3 and not any(took <= enough for took, _ in found):
        (place := folder / f"{limit.adaptive}-{len(found)}").mkdir()
        found.append((drained(server, place, limit), server.refused))
    return min(found)


@pytest.mark.untraced
def test_with_a_limit_nearly_nothing_is_refused_and_nothing_is_lost(server: Server, tmp_path: Path) -> None:
    drained(server, tmp_path)
    by_backoff = server.refused
    limited, refused = best_of_three(
        server, tmp_path, Limit("server", rate=RATE, burst=BURST), enough=1.25 * IDEAL
    )
    learned, refused_meanwhile = best_of_three(
        server, tmp_path, Limit("server", adaptive=True), enough=1.5 * IDEAL
    )

    assert by_backoff >= 60
    assert refused <= 0.05 * by_backoff
    assert limited <= 1.25 * IDEAL
    assert learned <= 1.5 * IDEAL
    assert refused_meanwhile < 0.5 * by_backoff
