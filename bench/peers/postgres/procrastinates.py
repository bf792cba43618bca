# SPDX-License-Identifier: Apache-2.0
"""procrastinate on psycopg: `batch` tasks at once; a job is fetched, and its end stored, each in a statement of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from procrastinate import App, JobContext, PsycopgConnector, RetryStrategy, SyncPsycopgConnector

from bench.peers.postgres.contest import PAYLOAD, Contest, Gate, Seen

DONE = "SELECT count(*) = %(jobs)s FROM procrastinate_jobs WHERE status = 'succeeded'"
SUBMIT_BATCH = 1_000


def _app(connector: Any, contest: Contest, seen: Seen) -> tuple[App, Any]:
    app = App(connector=connector)

    @app.task(name="bench", retry=RetryStrategy(max_attempts=1, wait=0), pass_context=True)
    async def nothing(context: JobContext, payload: dict[str, Any]) -> None:
        if contest.fails_once and context.job.attempts == 0:
            raise ConnectionError("refused")
        seen(payload)

    return app, nothing


def prepare(contest: Contest) -> None:
    """Make the tables, and fill the queue."""
    app, task = _app(SyncPsycopgConnector(conninfo=contest.url), contest, len)
    with app.open():
        app.schema_manager.apply_schema()
        for first in range(0, contest.jobs, SUBMIT_BATCH):
            count = min(SUBMIT_BATCH, contest.jobs - first)
            task.batch_defer(*[{"payload": PAYLOAD}] * count)


def work(contest: Contest, gate: Gate, seen: Seen) -> None:
    """Work until killed."""
    logging.disable(logging.CRITICAL)

    async def worked() -> None:
        app, _ = _app(PsycopgConnector(conninfo=contest.url, max_size=10), contest, seen)
        async with app.open_async():
            gate()
            await app.run_worker_async(concurrency=contest.batch, install_signal_handlers=False)

    asyncio.run(worked())


def submitter(contest: Contest) -> Callable[[dict[str, Any]], object]:
    """Return what submits one job."""
    app, task = _app(SyncPsycopgConnector(conninfo=contest.url), contest, len)
    app.open()
    return lambda payload: task.defer(payload=payload)
