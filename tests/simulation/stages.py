# SPDX-License-Identifier: Apache-2.0
"""The batch stage of the simulated pipelines."""

from __future__ import annotations

import random
from contextlib import ExitStack

from redrive import Batch, Context, RetryPolicy, stage
from redrive.store.records import JobId
from redrive.testing import VirtualClock

from .watch import PROCESS, Watch


def batch_stage(
    watch: Watch,
    chance: random.Random,
    ledger: list[tuple[int, str]],
    clock: VirtualClock,
    policy: RetryPolicy,
) -> object:
    """Build a stage that fails for one job, for all of them, and so that it has to be halved."""

    @stage(retry=policy, batch=Batch(size=4, wait=2, on_error="split"))
    async def embed(texts: list[str], contexts: list[Context]) -> list[str | Exception]:
        made = [JobId(ctx.job_id) for ctx in contexts]
        with ExitStack() as stack:
            for job in made:
                stack.enter_context(watch.running(PROCESS.get(), job))
            await clock.asleep(chance.random() * 10)
            draw = chance.random()
            if draw < 0.1:
                raise ConnectionResetError(104, "reset")
            if draw < 0.2:
                raise KeyError(f"bug with {texts}")
            results: list[str | Exception] = []
            for job, text in zip(made, texts, strict=True):
                draw = chance.random()
                if draw < 0.1:
                    results.append(TimeoutError("too slow"))
                elif draw < 0.12:
                    results.append(KeyError(f"bug with {text}"))
                else:
                    # A call ends for all of its jobs: what was cancelled meanwhile has its effect all the same.
                    ledger.append((job, "embed"))
                    results.append(text)
            return results

    return embed
