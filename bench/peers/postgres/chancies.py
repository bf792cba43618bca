# SPDX-License-Identifier: Apache-2.0
"""chancy with its executor for coroutines: `batch` jobs at once, and polling again as soon as one has ended."""

from __future__ import annotations

import asyncio
import logging

from chancy import Chancy, Queue, Worker, job

from bench.peers.postgres.contest import PAYLOAD, Contest, Gate, Seen

DONE = "SELECT count(*) = %(jobs)s FROM chancy_jobs WHERE state = 'succeeded'"
SUBMIT_BATCH = 1_000


STAGE: list[Seen] = []
"""What the job calls, which its library finds by its name."""


@job(queue="bench")
async def nothing(*, text: str) -> None:
    """Do nothing."""
    STAGE[0]({"text": text})


def prepare(contest: Contest) -> None:
    """Make the tables, and fill the queue."""

    async def filled() -> None:
        async with Chancy(contest.url) as chancy:
            await chancy.migrate()
            await chancy.declare(
                Queue(
                    "bench",
                    concurrency=contest.batch,
                    executor="chancy.executors.asyncex.AsyncExecutor",
                    polling_interval=1,
                    eager_polling=True,
                )
            )
            for first in range(0, contest.jobs, SUBMIT_BATCH):
                count = min(SUBMIT_BATCH, contest.jobs - first)
                made = nothing.job.with_kwargs(**PAYLOAD)
                async for _ in chancy.push_many([made] * count):
                    pass

    asyncio.run(filled())


def work(contest: Contest, gate: Gate, seen: Seen) -> None:
    """Work until killed."""
    logging.disable(logging.CRITICAL)
    STAGE.append(seen)

    async def worked() -> None:
        async with Chancy(contest.url) as chancy:
            gate()
            async with Worker(chancy, register_signal_handlers=False):
                await asyncio.Event().wait()

    asyncio.run(worked())
