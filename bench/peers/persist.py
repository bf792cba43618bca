# SPDX-License-Identifier: Apache-2.0
"""persist-queue: a WAL file with synchronous=FULL, which is how it opens it; items are pickled.

`SQLiteAckQueue` marks an item when it is handed out and again when it is done, each in a commit of its own; that is a queue with
durable completion, and several consumers. `SQLiteQueue(auto_commit=False)` deletes what was handed out when `task_done` is called:
one consumer, no claim, no result, no trace. Called for each item it is one commit per job; called for every 256 it shows what a
bare cursor over a table costs.
"""

from __future__ import annotations

from pathlib import Path

from persistqueue import SQLiteAckQueue, SQLiteQueue

from bench.measure import per_job
from bench.ours import PAYLOAD


def drain_acked(folder: Path, *, jobs: int = 1_500) -> float:
    """Get and acknowledge one item after another."""
    queue = SQLiteAckQueue(str(folder))
    for _ in range(jobs):
        queue.put(PAYLOAD)

    def work() -> None:
        while not queue.empty():
            item = queue.get(block=False, raw=True)
            len(item["data"])
            queue.ack(id=item["pqid"])

    spent = per_job(jobs, work)
    assert queue.acked_count() == jobs
    return spent


def drain_deleted(folder: Path, *, batch: int, jobs: int = 4_000) -> float:
    """Get items, and delete them `batch` at a time."""
    queue = SQLiteQueue(str(folder), auto_commit=False)
    for _ in range(jobs):
        queue.put(PAYLOAD)
    queue.task_done()

    def work() -> None:
        for place in range(1, jobs + 1):
            len(queue.get(block=False))
            if place % batch == 0:
                queue.task_done()
        queue.task_done()

    spent = per_job(jobs, work)
    assert SQLiteQueue(str(folder), auto_commit=False).empty()
    return spent
