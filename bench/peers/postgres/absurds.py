# SPDX-License-Identifier: Apache-2.0
"""absurd: a task with checkpointed steps; its tables come from `absurdctl`. A task of one stage has one step.

Its asynchronous worker, with `batch` tasks at a time on one connection, is the faster of the two that it has.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from absurd_sdk import Absurd, AsyncAbsurd

from bench.peers.postgres.contest import PAYLOAD, Contest, Gate, Seen

DONE = "SELECT count(*) = %(jobs)s FROM absurd.t_default WHERE state = 'completed'"


def prepare(contest: Contest) -> None:
    """Make the tables, and fill the queue."""
    control = Path(sys.executable).parent / "absurdctl"
    given = {**os.environ, "ABSURD_DATABASE_URL": contest.url}
    subprocess.run([control, "init"], env=given, check=True, capture_output=True)
    app = Absurd(contest.url)
    app.create_queue("default")
    for _ in range(contest.jobs):
        app.spawn("bench", PAYLOAD, queue="default")
    app.close()


def work(contest: Contest, gate: Gate, seen: Seen) -> None:
    """Work until killed."""
    logging.disable(logging.CRITICAL)
    app = AsyncAbsurd(contest.url, queue_name="default")

    @app.register_task(name="bench")
    async def nothing(payload: dict[str, Any], context: Any) -> int:
        async def passed() -> dict[str, Any]:
            return payload

        if contest.fails_once and context._task["attempt"] == 1:
            raise ConnectionError("refused")
        for place in range(contest.stages):
            await context.step(f"stage-{place}", passed)
        seen(payload)
        return len(payload)

    gate()
    asyncio.run(app.start_worker(concurrency=contest.batch, poll_interval=0.01))


def submitter(contest: Contest) -> Callable[[dict[str, Any]], object]:
    """Return what submits one job."""
    app = Absurd(contest.url)
    return lambda payload: app.spawn("bench", payload, queue="default")
