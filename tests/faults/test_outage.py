# SPDX-License-Identifier: Apache-2.0
"""An outage of two hours, in virtual time: the breaker holds ten thousand jobs, and nobody pays for it."""

from __future__ import annotations

import asyncio

from redrive import Backoff, Breaker, Context, Jitter, Pipeline, Redrive, RetryPolicy, stage
from redrive.engine.worker.worker import Worker
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock, virtual_time
from tests.inline import inline_parts

from .ledger import breaches

JOBS = 10_000
CONSECUTIVE = 5
DOWN_AFTER = 1_000
OUTAGE = 7_200.0
OPEN_FOR = 60.0


def upstream(clock: VirtualClock, effects: list[tuple[int, str]]) -> Pipeline:
    """A stage whose dependency goes down when a thousand calls have been answered."""
    policy = RetryPolicy(3, Backoff.exponential(1, cap=60, jitter=Jitter.full()))
    back_at: list[float] = []

    @stage(retry=policy, breaker=Breaker("api", consecutive=CONSECUTIVE, open_for=OPEN_FOR))
    async def call(number: int, ctx: Context) -> int:
        await asyncio.sleep(0)
        if len(effects) >= DOWN_AFTER:
            back_at[:] = back_at or [clock.wall() + OUTAGE]
            if clock.wall() < back_at[0]:
                raise ConnectionRefusedError(111, "refused")
        effects.append((ctx.job_id, "call"))
        return number

    return Pipeline("flow", [call])


def test_an_outage_of_two_hours_buries_nobody_and_burns_no_more_than_what_failed_before_the_breaker_opened() -> (
    None
):
    store, effects = SqliteStore(":memory:"), list[tuple[int, str]]()
    with virtual_time() as clock:
        pipeline = upstream(clock, effects)
        submitted = set(Redrive(store).submit_many(pipeline, range(JOBS)))
        began_at = clock.wall()

        async def scene() -> str:
            worker = Worker(store, [pipeline], inline_parts(), names=iter(["w1"]), concurrency=256)
            return await worker.run(until_idle=True)

        assert asyncio.run(scene()) == "idle"
        took = clock.wall() - began_at

    assert breaches(store._db, effects, submitted) == []
    assert store.read("SELECT status, count(*) FROM jobs GROUP BY 1") == [("complete", JOBS)]
    assert store.read("SELECT count(*) FROM dead_letters") == [(0,)]
    ((burned,),) = store.read("SELECT count(*) FROM attempts WHERE burned AND outcome <> 'ok'")
    assert int(str(burned)) < CONSECUTIVE
    ((before, probes),) = store.read(
        "SELECT sum(started_at < ?1), sum(started_at >= ?1) FROM attempts WHERE outcome = 'hold'",
        (began_at + OPEN_FOR,),
    )
    # While it is down, one probe goes out per `open_for` and nothing else.
    assert int(str(before)) <= 512
    assert OUTAGE / OPEN_FOR - 5 <= int(str(probes)) <= OUTAGE / OPEN_FOR + 1
    assert OUTAGE <= took <= OUTAGE + 1_200
