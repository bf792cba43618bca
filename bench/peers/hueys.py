# SPDX-License-Identifier: Apache-2.0
"""Huey with its SQLite storage: a WAL file, results kept, `fsync=True` for FULL.

It is drained by its own consumer with threads, or, with no workers, by a tight loop of `dequeue` and `execute` as the consumer
makes it. Huey knows FULL and OFF alone; NORMAL is set on its connection. A task leaves the queue before it runs, so a crash in
the middle loses it; what is durable when it completes is its result. Its logging is off.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path

from huey import Huey  # type: ignore[import-untyped]
from huey.api import Task  # type: ignore[import-untyped]
from huey.storage import SqliteStorage  # type: ignore[import-untyped]

from bench.measure import per_job, wait_until
from bench.ours import PAYLOAD

Payload = dict[str, str]


class _NormalStorage(SqliteStorage):  # type: ignore[misc]
    """Huey's storage with synchronous=NORMAL."""

    def _create_connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection = super()._create_connection()
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection


def drain(
    folder: Path,
    *,
    workers: int,
    synchronous: str = "FULL",
    stages: int = 1,
    fails_once: bool = False,
    jobs: int = 2_000,
) -> float:
    """Drain tasks of one stage, chains made with `then`, or tasks with `retries=1` that fail once."""
    huey = _opened(folder, synchronous)
    enqueue = _failing_once(huey) if fails_once else _chained(huey, stages)
    for _ in range(jobs):
        enqueue()
    return per_job(jobs, lambda: _work(huey, workers, results=jobs * stages))


def submit(folder: Path, *, jobs: int = 10_000) -> float:
    """Enqueue one task after another, at NORMAL."""
    huey = _opened(folder, "NORMAL")
    enqueue = _chained(huey, 1)

    def work() -> None:
        for _ in range(jobs):
            enqueue()

    return per_job(jobs, work)


def _opened(folder: Path, synchronous: str) -> Huey:
    logging.disable(logging.CRITICAL)
    storage = SqliteStorage if synchronous == "FULL" else _NormalStorage
    return Huey("bench", storage_class=storage, filename=str(folder / "huey.db"), fsync=True)


def _chained(huey: Huey, stages: int) -> Callable[[], object]:
    # A dictionary that a task returns becomes the keywords of the next one.
    @huey.task()  # type: ignore[untyped-decorator]
    def passed(text: str) -> Payload:
        return {"text": text}

    @huey.task()  # type: ignore[untyped-decorator]
    def nothing(text: str) -> int:
        return len(text)

    def enqueue() -> object:
        first, *others = [passed] * (stages - 1) + [nothing]
        chain = first.s(**PAYLOAD)
        for task in others:
            chain = chain.then(task)
        return huey.enqueue(chain)

    return enqueue


def _failing_once(huey: Huey) -> Callable[[], object]:
    @huey.task(retries=1, context=True)  # type: ignore[untyped-decorator]
    def second_time(value: Payload, task: Task) -> int:
        if task.retries == 1:
            raise ConnectionError("refused")
        return len(value)

    return lambda: second_time(PAYLOAD)


def _work(huey: Huey, workers: int, results: int) -> None:
    if not workers:
        while (task := huey.dequeue()) is not None:
            huey.execute(task)
        assert huey.result_count() == results, huey.result_count()
        return
    consumer = huey.create_consumer(workers=workers, periodic=False, initial_delay=0.001, max_delay=0.01)
    consumer.start()
    wait_until(lambda: huey.result_count() >= results)
