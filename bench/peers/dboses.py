# SPDX-License-Identifier: Apache-2.0
"""DBOS with its SQLite system database, in WAL and with synchronous=FULL, nearly twice as fast as the journal it starts with.

A workflow of one stage is a workflow without steps, because the workflow itself is durable; three stages are three steps. Two ways
are measured: calling the workflow in a loop, which stores it, runs it and stores its result, and a queue that was filled before,
looked at every 10 ms. Threads or `start_workflow` in place of the loop were slower. A step's retry is not stored; it happens in
the process, with `interval_seconds=0`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from dbos import DBOS, DBOSConfig

from bench.measure import per_job, wait_until
from bench.ours import PAYLOAD

Payload = dict[str, str]
DONE = "SELECT count(*) FROM workflow_status WHERE status = 'SUCCESS'"


def drain(
    folder: Path, *, is_queued: bool, stages: int = 1, fails_once: bool = False, jobs: int = 400
) -> float:
    """Run workflows of no-op steps, or of one step that fails once."""
    db = sqlite3.connect(folder / "dbos.db", isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    workflow = _failing_once() if fails_once else _workflow(stages)
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": f"sqlite:///{folder / 'dbos.db'}",
        "log_level": "CRITICAL",
    }
    DBOS(config=config)
    DBOS.launch()
    if is_queued:
        for _ in range(jobs):
            DBOS.enqueue_workflow("bench", workflow, PAYLOAD)

    def work() -> None:
        if is_queued:
            DBOS.register_queue("bench", polling_interval_sec=0.01)
            wait_until(lambda: db.execute(DONE).fetchone()[0] >= jobs)
            return
        for _ in range(jobs):
            workflow(PAYLOAD)

    spent = per_job(jobs, work)
    assert db.execute(DONE).fetchone()[0] == jobs
    return spent


def _workflow(stages: int) -> Callable[[Payload], int]:
    @DBOS.step()
    def passed(value: Payload) -> Payload:
        return value

    @DBOS.workflow()
    def nothing(value: Payload) -> int:
        for _ in range(stages if stages > 1 else 0):
            value = passed(value)
        return len(value)

    return nothing


def _failing_once() -> Callable[[Payload], int]:
    @DBOS.step(retries_allowed=True, max_attempts=2, interval_seconds=0)
    def second_time(value: Payload) -> int:
        status = DBOS.step_status
        assert status is not None
        if status.current_attempt == 0:
            raise ConnectionError("refused")
        return len(value)

    @DBOS.workflow()
    def workflow(value: Payload) -> int:
        return second_time(value)

    return workflow
