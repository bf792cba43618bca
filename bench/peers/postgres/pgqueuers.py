# SPDX-License-Identifier: Apache-2.0
"""pgqueuer on asyncpg and uvloop: a worker takes `batch` jobs at a time and deletes them when they are done, with a line in its log.

A retry is a `RetryRequested` with no delay, which it stores.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.errors import RetryRequested
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.peers.postgres.contest import PAYLOAD, Contest, Gate, Seen

DONE = "SELECT count(*) = 0 FROM pgqueuer"
SUBMIT_BATCH = 1_000


def prepare(contest: Contest) -> None:
    """Make the tables, and fill the queue."""

    async def filled() -> None:
        connection = await asyncpg.connect(contest.url)
        queries = Queries(AsyncpgDriver(connection))
        await queries.install()
        body = json.dumps(PAYLOAD).encode()
        for first in range(0, contest.jobs, SUBMIT_BATCH):
            count = min(SUBMIT_BATCH, contest.jobs - first)
            await queries.enqueue(["bench"] * count, [body] * count, [0] * count)
        await connection.close()

    asyncio.run(filled())


def work(contest: Contest, gate: Gate, seen: Seen) -> None:
    """Work until killed."""
    logging.disable(logging.CRITICAL)

    async def worked() -> None:
        app = PgQueuer.from_asyncpg_connection(await asyncpg.connect(contest.url))

        @app.entrypoint("bench")
        async def nothing(job: Job) -> None:
            if contest.fails_once and job.attempts == 0:
                raise RetryRequested(delay=timedelta(0))
            seen(json.loads(job.payload or b"{}"))

        gate()
        await app.run(batch_size=contest.batch)

    uvloop.run(worked())


def submitter(contest: Contest) -> Callable[[dict[str, Any]], object]:
    """Return what submits one job."""
    loop = asyncio.new_event_loop()
    queries = Queries(AsyncpgDriver(loop.run_until_complete(asyncpg.connect(contest.url))))
    return lambda payload: loop.run_until_complete(queries.enqueue("bench", json.dumps(payload).encode()))
