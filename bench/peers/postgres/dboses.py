# SPDX-License-Identifier: Apache-2.0
"""DBOS on PostgreSQL: a queue of workflows, looked at every 10 ms. One stage is a workflow without steps, which is durable itself; three
stages are three steps. A step's retry is not stored.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from dbos import DBOS, DBOSClient, DBOSConfig

from bench.peers.postgres.contest import PAYLOAD, Contest, Gate, Seen

DONE = "SELECT count(*) = %(jobs)s FROM dbos.workflow_status WHERE status = 'SUCCESS'"


def _launch(contest: Contest, seen: Seen) -> Callable[..., Any]:
    logging.disable(logging.CRITICAL)
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": contest.url.replace("postgresql://", "postgresql+psycopg://"),
        "application_version": "1",
        "log_level": "CRITICAL",
    }
    DBOS(config=config)

    @DBOS.step()
    def passed(value: dict[str, Any]) -> dict[str, Any]:
        return value

    @DBOS.step(retries_allowed=True, max_attempts=2, interval_seconds=0)
    def second_time(value: dict[str, Any]) -> dict[str, Any]:
        status = DBOS.step_status
        if status is not None and status.current_attempt == 0:
            raise ConnectionError("refused")
        return value

    @DBOS.workflow(name="bench")
    def nothing(value: dict[str, Any]) -> int:
        for _ in range(contest.stages if contest.stages > 1 else 0):
            value = passed(value)
        if contest.fails_once:
            value = second_time(value)
        seen(value)
        return len(value)

    DBOS.launch()
    return nothing


def prepare(contest: Contest) -> None:
    """Make the tables, and fill the queue."""
    workflow = _launch(contest, len)
    for _ in range(contest.jobs):
        DBOS.enqueue_workflow("bench", workflow, PAYLOAD)
    DBOS.destroy()


def work(contest: Contest, gate: Gate, seen: Seen) -> None:
    """Work until killed."""
    _launch(contest, seen)
    gate()
    DBOS.register_queue("bench", polling_interval_sec=0.01)
    threading.Event().wait()


def submitter(contest: Contest) -> Callable[[dict[str, Any]], object]:
    """Return what submits one job."""
    client = DBOSClient(system_database_url=contest.url.replace("postgresql://", "postgresql+psycopg://"))
    return lambda payload: client.enqueue(
        {"workflow_name": "bench", "queue_name": "bench", "app_version": "1"}, payload
    )
