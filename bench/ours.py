# SPDX-License-Identifier: Apache-2.0
"""redrive as a contender, through its public face: no-op stages, sync and async, one or three, failing once or not at all."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from bench.measure import per_job
from redrive import Backoff, Context, Pipeline, Redrive, RetryPolicy, connect, stage
from redrive.engine.pipeline.stage import Stage
from redrive.store.sqlite.store import SqliteStore

JOBS = 20_000
CONCURRENCY = 256
PAYLOAD = {"text": "x" * 190}
AGAIN = RetryPolicy(2, Backoff.fixed(0))


@stage
def nothing(value: dict[str, str]) -> int:
    """Do nothing, on a thread."""
    return len(value)


@stage
async def anothing(value: dict[str, str]) -> int:
    """Do nothing, on the loop."""
    return len(value)


def passed(value: dict[str, str]) -> dict[str, str]:
    """Pass the value on, on a thread."""
    return value


async def apassed(value: dict[str, str]) -> dict[str, str]:
    """Pass the value on, on the loop."""
    return value


@stage(retry=AGAIN)
def second_time(value: dict[str, str], context: Context) -> int:
    """Fail the first time, on a thread."""
    if context.attempt == 1:
        raise ConnectionError("refused")
    return len(value)


@stage(retry=AGAIN)
async def asecond_time(value: dict[str, str], context: Context) -> int:
    """Fail the first time, on the loop."""
    if context.attempt == 1:
        raise ConnectionError("refused")
    return len(value)


def pipeline_of(*, stages: int = 1, is_async: bool = True, fails_once: bool = False) -> Pipeline:
    """Return a pipeline of no-op stages; the last one returns a number, those before it the whole value."""
    if fails_once:
        return lined("bench", asecond_time if is_async else second_time)
    names = [f"stage-{place}" for place in range(1, stages)]
    if is_async:
        return lined("bench", *(stage(name=name)(apassed) for name in names), anothing)
    return lined("bench", *(stage(name=name)(passed) for name in names), nothing)


def lined(name: str, *stages: object) -> Pipeline:
    """Build a pipeline; a stage of a known type is not yet one of the type that `Pipeline` asks for."""
    return Pipeline(name, cast("Sequence[Stage[..., object]]", stages))


def opened(path: Path, synchronous: str = "FULL") -> Redrive:
    """Connect; anything but the default has no public name."""
    return connect(path) if synchronous == "FULL" else Redrive(SqliteStore(path, synchronous=synchronous))


def drain(
    folder: Path,
    *,
    is_async: bool,
    synchronous: str = "FULL",
    stages: int = 1,
    fails_once: bool = False,
    jobs: int = JOBS,
) -> float:
    """Work until idle on a queue that was filled before."""
    pipeline = pipeline_of(stages=stages, is_async=is_async, fails_once=fails_once)
    with opened(folder / "ours.db", synchronous) as rd:
        rd.submit_many(pipeline, itertools.repeat(PAYLOAD, jobs))
        spent = per_job(jobs, lambda: rd.work([pipeline], until_idle=True, concurrency=CONCURRENCY))
        assert rd.jobs.counts() == {"complete": jobs}, rd.jobs.counts()
    return spent


def submit(folder: Path, *, synchronous: str = "FULL", jobs: int = 50_000) -> float:
    """Store many jobs with one call."""
    pipeline = pipeline_of()
    with opened(folder / "ours.db", synchronous) as rd:
        return per_job(jobs, lambda: rd.submit_many(pipeline, itertools.repeat(PAYLOAD, jobs)))


def submit_each(folder: Path, *, jobs: int = 2_000) -> float:
    """Store one job after another, each durable before the next."""
    pipeline = pipeline_of()

    def work() -> None:
        for _ in range(jobs):
            rd.submit(pipeline, PAYLOAD)

    with connect(folder / "ours.db") as rd:
        return per_job(jobs, work)
