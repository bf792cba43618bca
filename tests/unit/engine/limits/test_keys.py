# SPDX-License-Identifier: Apache-2.0
"""Limits by key: every key has its own, and keys take turns, however many jobs one of them has."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from redrive import Limit, Pipeline, Redrive, stage
from redrive.engine.limits.keys import JobKeys, JobView
from redrive.engine.pipeline.lanes import lanes_of
from redrive.engine.worker.worker import Ending
from redrive.store.records import ClaimRequest, ExchangeRequest, LaneId, NewJob
from redrive.store.sqlite.store import SqliteStore
from redrive.store.statements import release as release_sql
from redrive.store.statements import workers as worker_sql
from redrive.store.statements.text import statements_of
from redrive.testing import VirtualClock
from tests.unit.build import ONCE, attempts, bounded, jobs, letters, one_stage, work, worker_on

BY_OWNER = Limit("tenant", concurrency=4, key=lambda job: job.owner)


def submit(store: SqliteStore, pipeline: Pipeline, owner: str | None, count: int, value: object = 1) -> None:
    lane = store.lanes(pipeline.name, [one.name for one in pipeline.stages])[0]
    payload = str(value).encode()
    store.submit([NewJob(lane=lane, payload=payload, run_at=1e9, owner=owner) for _ in range(count)], 1e9)


def owners_in_order(store: SqliteStore) -> list[str]:
    return [
        str(row[0])
        for row in store.read("SELECT owner FROM attempts JOIN jobs ON jobs.id = job_id ORDER BY seq")
    ]


async def echo(value: int) -> int:
    return value


@pytest.mark.untraced
@pytest.mark.sqlite
def test_a_small_tenant_waits_for_a_few_dispatches_and_not_for_a_large_one(
    store: SqliteStore, rd: Redrive
) -> None:
    pipeline = one_stage(echo, limits=BY_OWNER)
    submit(store, pipeline, "large", 5_000)
    submit(store, pipeline, "small", 10)

    work(store, pipeline, concurrency=8)

    order = owners_in_order(store)
    assert len(order) == 5_010
    assert max(place for place, owner in enumerate(order) if owner == "small") < 40


def test_no_key_has_more_calls_at_once_than_it_may(store: SqliteStore, rd: Redrive) -> None:
    running: Counter[int] = Counter()
    most: Counter[int] = Counter()

    async def call(value: int) -> int:
        running[value] += 1
        most[value] = max(most[value], running[value])
        for _ in range(3):
            await asyncio.sleep(0)
        running[value] -= 1
        return value

    pipeline = one_stage(call, limits=Limit("tenant", concurrency=2, key=lambda job: job.input % 3))
    rd.submit_many(pipeline, [number % 3 for number in range(60)])
    work(store, pipeline, concurrency=32)

    assert rd.jobs.counts() == {"complete": 60}
    assert dict(most) == {0: 2, 1: 2, 2: 2}


def test_every_key_has_a_rate_of_its_own(store: SqliteStore, rd: Redrive, clock: VirtualClock) -> None:
    pipeline = one_stage(echo, limits=Limit("tenant", rate=10, burst=1, key=lambda job: job.owner))
    for owner in ("ann", "bob", None):
        submit(store, pipeline, owner, 21)
    work(store, pipeline)

    times = [float(str(row[0])) for row in attempts(store, "started_at")]
    assert rd.jobs.counts() == {"complete": 63}
    assert 1.9 <= max(times) - min(times) <= 2.6


def test_a_stage_may_have_limits_with_and_without_keys(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    limits = [
        Limit("api", rate=20, burst=1),
        BY_OWNER,
        Limit("kind", concurrency=9, key=lambda job: job.input),
    ]
    pipeline = one_stage(echo, limits=limits)
    for owner in ("ann", "bob"):
        submit(store, pipeline, owner, 20)
    work(store, pipeline)

    times = sorted(float(str(row[0])) for row in attempts(store, "started_at"))
    assert rd.jobs.counts() == {"complete": 40}
    assert times[-1] - times[0] >= 1.9
    assert sorted({str(row[0]) for row in jobs(store, "lane_key")}) == ['["ann","1"]', '["bob","1"]']


def test_a_key_function_that_fails_fails_its_job_alone(store: SqliteStore, rd: Redrive) -> None:
    def key(job: JobView) -> Any:
        return {1: "good", 2: ["no key"]}[job.input]

    pipeline = one_stage(echo, limits=Limit("tenant", concurrency=4, key=key), retry=ONCE)
    rd.submit_many(pipeline, [1, 2, 3, 1])
    work(store, pipeline)

    assert rd.jobs.counts() == {"complete": 2, "failed": 2}
    messages = sorted(str(row[0]) for row in letters(store, "message"))
    assert "KeyError" in messages[0]
    assert "TypeError" in messages[1]


def test_a_job_that_moves_on_or_is_replayed_gets_another_key(store: SqliteStore, rd: Redrive) -> None:
    failing = [True]

    async def second(value: int) -> int:
        if failing[0]:
            raise ValueError(value)
        return value

    stages = [
        stage(name="one", limits=BY_OWNER)(echo),
        stage(
            name="two", limits=Limit("kind", concurrency=1, key=lambda job: f"kind-{job.input}"), retry=ONCE
        )(second),
        stage(name="three")(echo),
    ]
    pipeline = Pipeline("shop", stages)
    submit(store, pipeline, "ann", 2, 7)
    work(store, pipeline)
    assert set(jobs(store, "status, lane_key")) == {("failed", '["kind-7"]')}

    failing[0] = False
    store.apply(release_sql.replay_jobs(ids=[1, 2], now=1e9, first_lane=None))
    assert set(jobs(store, "status, lane_key")) == {("queued", None)}
    work(store, pipeline)

    assert set(jobs(store, "status, lane_key")) == {("complete", None)}


def test_keys_that_were_for_something_else_are_dropped_when_a_worker_starts(
    store: SqliteStore, rd: Redrive
) -> None:
    before = one_stage(echo, limits=BY_OWNER)
    submit(store, before, "ann", 1)
    keyed_by = '["tenant"]'
    store.apply(
        worker_sql.set_keyed_by(keyed_by=keyed_by, lane=1),
        worker_sql.put_keys(keys=[(1, '["ann"]')], lane=1, keyed_by=keyed_by),
    )
    assert jobs(store, "lane_key") == [('["ann"]',)]

    work(store, one_stage(echo))

    assert jobs(store, "status, lane_key") == [("complete", None)]
    assert store.query(worker_sql.keyed_by(lane=1)) == [None]


def test_a_worker_whose_keys_are_no_longer_wanted_writes_none(store: SqliteStore, rd: Redrive) -> None:
    before, after = one_stage(echo, limits=BY_OWNER), one_stage(echo)
    keys = JobKeys(store, lanes_of(store, [before]))
    submit(store, before, "ann", 3)

    async def scene() -> Ending:
        worker = worker_on(store, after)
        keys.mark(LaneId(1))
        return await worker.run(until_idle=True)

    assert bounded(scene()) == "idle"
    assert set(jobs(store, "status, lane_key")) == {("complete", None)}


def test_a_job_that_is_leased_when_its_key_is_dropped_comes_back_without(
    store: SqliteStore, rd: Redrive
) -> None:
    before, after = one_stage(echo, limits=BY_OWNER), one_stage(echo)
    submit(store, before, "ann", 1)
    keys = JobKeys(store, lanes_of(store, [before]))
    keys.mark(LaneId(1))
    store.start_worker("w0", 1e9, 30.0)
    want = ClaimRequest((LaneId(1),), 1, keys={LaneId(1): {'["ann"]': 1}})
    (job,) = store.exchange(ExchangeRequest("w0", [], want, now=1e9, token=1)).claimed

    JobKeys(store, lanes_of(store, [after]))
    store.apply(worker_sql.return_job(job=job.id, token=job.token, dispatch=job.dispatch))

    assert work(store, after) == "idle"
    assert jobs(store, "status, lane_key") == [("complete", None)]


@pytest.mark.parametrize("has_keys", [False, True])
def test_a_worker_repairs_the_keys_of_its_lanes_after_another_release_was_there(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, has_keys: bool
) -> None:
    keyed, plain = one_stage(echo, limits=BY_OWNER), one_stage(echo)
    mine, other = (keyed, plain) if has_keys else (plain, keyed)
    submit(store, mine, "ann", 3)

    async def scene() -> Ending:
        worker = worker_on(store, mine)
        keys = JobKeys(store, lanes_of(store, [other]))
        if not has_keys:
            keys.mark(LaneId(1))
        return await worker.run(until_idle=True)

    assert bounded(scene()) == "idle"
    assert rd.jobs.counts() == {"complete": 3}


def test_many_keys_whose_jobs_are_not_due_keep_no_other_waiting_and_no_worker_busy(
    rd: Redrive, clock: VirtualClock
) -> None:
    class Counting(SqliteStore):
        looks = 0

        def query(self, *asked: Any) -> Any:
            self.looks += getattr(asked[0], "name", None) == "keys_of_lane"
            return super().query(*asked)

    store = Counting(":memory:")
    rd = Redrive(store)
    pipeline = one_stage(echo, limits=Limit("tenant", rate=100, key=lambda job: f"k{job.input:03}"))
    for number in range(150):
        rd.submit(pipeline, number, delay=100)
    rd.submit(pipeline, 999, delay=5)
    work(store, pipeline)

    assert rd.jobs.counts() == {"complete": 151}
    begun = min(float(str(row[0])) for row in attempts(store, "started_at"))
    assert 5 <= begun - 1e9 <= 8
    assert store.looks < 1_000


@pytest.mark.untraced
def test_more_keys_than_one_claim_considers_are_all_served(store: SqliteStore, rd: Redrive) -> None:
    pipeline = one_stage(echo, limits=Limit("tenant", concurrency=1, key=lambda job: job.input))
    rd.submit_many(pipeline, range(300))
    work(store, pipeline, concurrency=16)

    assert rd.jobs.counts() == {"complete": 300}


@pytest.mark.sqlite
@pytest.mark.parametrize(
    ("statement", "parameters"),
    [
        ("claim_of_key", (1, "w1", 0.0, 1, 10, "a")),
        ("keys_of_lane", (1, "a", 0.0, 64)),
        ("jobs_without_key", (1, 10)),
        ("last_jobs_without_key", (1, 10)),
        ("drop_keys", (1,)),
    ],
)
def test_what_is_asked_about_keys_is_found_in_the_index(
    store: SqliteStore, statement: str, parameters: tuple[object, ...]
) -> None:
    plan = store.read("EXPLAIN QUERY PLAN " + statements_of("sqlite")[statement], parameters)
    steps = [str(row[-1]) for row in plan]

    assert any("INDEX jobs_ready (lane_id=?" in step for step in steps)
    assert not any("SCAN jobs" in step or "TEMP B-TREE" in step for step in steps)
