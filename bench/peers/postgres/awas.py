# SPDX-License-Identifier: Apache-2.0
"""awa: a worker in Rust that calls Python for each job, `batch` at once; filled by its COPY."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

from awa import AsyncClient, RetryAfter

from bench.peers.postgres.contest import PAYLOAD, Contest, Gate, Seen


@dataclass
class Nothing:
    """What a job is given."""

    text: str


DONE = "SELECT NOT EXISTS (SELECT 1 FROM awa.jobs WHERE state NOT IN ('completed', 'failed', 'cancelled'))"
SUBMIT_BATCH = 1_000


def prepare(contest: Contest) -> None:
    """Make the tables, and fill the queue."""

    async def filled() -> None:
        client = AsyncClient(contest.url)
        await client.migrate()
        for first in range(0, contest.jobs, SUBMIT_BATCH):
            count = min(SUBMIT_BATCH, contest.jobs - first)
            await client.insert_many_copy([Nothing(**PAYLOAD)] * count, queue="bench")

    asyncio.run(filled())


def work(contest: Contest, gate: Gate, seen: Seen) -> None:
    """Work until killed."""
    logging.disable(logging.CRITICAL)

    async def worked() -> None:
        client = AsyncClient(contest.url)

        @client.task(Nothing, queue="bench")
        async def nothing(job: Any) -> Any:
            if contest.fails_once and job.attempt == 1:
                return RetryAfter(0)
            seen({"text": job.args.text})
            return None

        gate()
        await client.start([("bench", contest.batch)])
        await asyncio.Event().wait()

    asyncio.run(worked())
