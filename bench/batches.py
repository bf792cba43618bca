# SPDX-License-Identifier: Apache-2.0
"""What a batch saves: the same jobs, with a call for each and with one call for 64 of them; microseconds per job.

Embedding asks a local HTTP server that takes 5 ms for an answer, however many texts it is asked for. Writing inserts rows into an
SQLite database of its own, durably, one transaction for a call. Both workers have eight slots.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from bench.measure import Figure, per_job
from bench.ours import lined
from bench.processes import race
from redrive import Batch, Pipeline, connect, stage

ROUNDS = 3
SLOTS = 8
JOBS = 4_000
ANSWER_SECONDS = 0.005


class _Embeddings(BaseHTTPRequestHandler):
    """Answers with the length of each text."""

    protocol_version = "HTTP/1.1"
    # Otherwise the two parts of an answer wait for an acknowledgement between them.
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        texts: list[str] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(ANSWER_SECONDS)
        answer = json.dumps([len(text) for text in texts]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_args: object) -> None:
        """Log nothing."""


@contextlib.contextmanager
def _embedding(_folder: Path) -> Iterator[Callable[[list[str]], list[int]]]:
    """Serve embeddings; yields a client with a connection for each thread."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Embeddings) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        local = threading.local()

        def embed(texts: list[str]) -> list[int]:
            connection = getattr(local, "connection", None)
            if connection is None:
                connection = local.connection = http.client.HTTPConnection(
                    "127.0.0.1", server.server_address[1]
                )
            connection.request("POST", "/", json.dumps(texts))
            answer: list[int] = json.loads(connection.getresponse().read())
            return answer

        yield embed
        server.shutdown()


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[Callable[[list[str]], list[int]]]:
    """Open a database; yields a function that inserts rows in one durable transaction."""
    db = sqlite3.connect(folder / "target.db", check_same_thread=False, isolation_level=None)
    db.executescript(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE texts (id INTEGER PRIMARY KEY, text)"
    )
    lock = threading.Lock()

    def write(texts: list[str]) -> list[int]:
        with lock:
            db.execute("BEGIN IMMEDIATE")
            db.executemany("INSERT INTO texts (text) VALUES (?)", ((text,) for text in texts))
            db.execute("COMMIT")
        return [len(text) for text in texts]

    yield write
    db.close()


WORK = {"embed": _embedding, "write": _writing}


def _pipeline(call: Callable[[list[str]], list[int]], batch: Batch | None) -> Pipeline:
    def alone(text: str) -> int:
        (length,) = call([text])
        return length

    return lined(
        "bench", stage(name="call")(alone) if batch is None else stage(name="call", batch=batch)(call)
    )


def drain(folder: Path, *, work: str, size: int | None, jobs: int = JOBS) -> float:
    """Work until idle on a queue that was filled before."""
    with WORK[work](folder) as call, connect(folder / "ours.db") as rd:
        pipeline = _pipeline(call, None if size is None else Batch(size=size))
        rd.submit_many(pipeline, itertools.repeat("a text of a few words", jobs))
        spent = per_job(jobs, lambda: rd.work([pipeline], until_idle=True, concurrency=SLOTS))
        assert rd.jobs.counts() == {"complete": jobs}, rd.jobs.counts()
    return spent


def run() -> list[Figure]:
    """Run both groups; takes about a minute."""
    return [
        figure
        for work in WORK
        for figure in race(
            work,
            {
                "a call for 64 jobs": [partial(drain, work=work, size=64)] * ROUNDS,
                "a call for 8 jobs": [partial(drain, work=work, size=8)] * ROUNDS,
                "a call for each job": [partial(drain, work=work, size=None)] * ROUNDS,
            },
        )
    ]
