# SPDX-License-Identifier: Apache-2.0
"""Limits by hand: listed, set, paused and resumed; and what waits for them, in stats, explanations and the checkup."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from redrive import ConfigurationError, Limit, Redrive
from redrive.core.limit_state import LimitState, Share
from redrive.engine.replay.rules import record_rules
from redrive.errors import RedriveError, StoreUnavailableError
from redrive.ops import limits
from redrive.ops.audit import Actor, operations
from redrive.ops.checkup.work import check_work
from redrive.ops.jobs.explain import explain
from redrive.store.protocol import Store
from redrive.store.sqlite.store import SqliteStore
from redrive.store.statements import jobs as job_sql
from redrive.store.statements import workers as worker_sql
from tests.unit.build import one_stage, work

ANN = Actor("ann", "too slow")


async def echo(value: int) -> int:
    return value


PIPELINE = one_stage(
    echo,
    limits=[
        Limit("openai", rate="500/min", burst=50, concurrency=64),
        Limit("tenant", concurrency=4, key=lambda job: job.owner),
        Limit("learned", adaptive=True),
    ],
)


@pytest.fixture
def known(rd: Redrive, store: Store) -> Redrive:
    record_rules(store, [PIPELINE])
    return rd


def put(store: Store, name: str, state: LimitState, key: str = "") -> None:
    store.apply(worker_sql.add_limit(name=name, key=key, state=msgspec.json.encode(state), now=0.0))


def test_limits_are_listed_as_the_workers_recorded_and_used_them(known: Redrive, store: Store) -> None:
    now = 1e9
    put(store, "tenant", LimitState(shares={"w1": Share(3, 4, now)}), "acme")
    put(store, "gone", LimitState())

    listed = {(each.name, each.key): each for each in known.limits.list()}

    assert sorted(listed) == [
        ("gone", ""),
        ("learned", ""),
        ("openai", ""),
        ("tenant", ""),
        ("tenant", "acme"),
    ]
    openai = listed["openai", ""]
    assert (openai.rate, openai.burst, openai.tokens, openai.concurrency) == ("500/min", 50, 50, 64)
    assert (openai.status, openai.is_set) == ("open", False)
    assert listed["tenant", "acme"].slots == 3
    assert listed["learned", ""].rate == "10/s"


def test_other_numbers_hold_until_they_are_set_again(known: Redrive, store: Store) -> None:
    set_ = known.limits.set("openai", rate="60/min", burst=2, concurrency=3, actor="ann")
    assert (set_.rate, set_.burst, set_.concurrency, set_.is_set) == ("1/s", 2, 3, True)

    known.submit_many(PIPELINE, range(12))
    work(store, PIPELINE)
    times = [each.started_at for job in range(1, 13) for each in store.query(job_sql.attempts(job=job))]
    assert max(times) - min(times) >= 9.9

    assert known.limits.set("openai").rate == "500/min"
    assert [each.verb for each in operations(store)] == ["set", "set"]


def test_a_paused_limit_lets_nothing_start_and_is_seen_everywhere(known: Redrive, store: Store) -> None:
    job = known.submit(PIPELINE, 1)
    assert known.limits.pause("openai").status == "paused"

    assert work(store, PIPELINE, hold_max=1) == "held"
    (waiting,) = limits.limited_work(store, {("shop", "echo"): 1})
    assert (waiting.limit, waiting.why) == ("openai", "is paused by hand")
    assert any("limit openai, which is paused by hand" in line for line in explain(store, job.id).sentences)
    assert any("redrive limit resume openai" in str(found) for found in check_work(store))

    known.limits.resume("openai")
    assert work(store, PIPELINE) == "idle"


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (LimitState(paused_until=1e9 + 60), "as the dependency asked"),
        (LimitState(tokens=-5, at=1e9), "no tokens left"),
        (LimitState(shares={"w1": Share(64, 64, 0)}), "all 64 slots"),
    ],
)
def test_what_a_job_waits_for_is_said_in_words(
    known: Redrive, store: Store, state: LimitState, why: str
) -> None:
    job = known.submit(PIPELINE, 1)
    put(store, "openai", state)

    assert any(why in line for line in explain(store, job.id).sentences)
    assert why in limits.limited_work(store, {("shop", "echo"): 1})[0].why


def test_a_job_waits_for_its_own_key(known: Redrive, store: Store) -> None:
    job = known.submit(PIPELINE, 1, owner="acme")
    keyed_by = '["tenant"]'
    store.apply(
        worker_sql.set_keyed_by(keyed_by=keyed_by, lane=1),
        worker_sql.put_keys(keys=[(1, '["acme"]')], lane=1, keyed_by=keyed_by),
    )
    put(store, "tenant", LimitState(is_paused=True), "acme")
    put(store, "tenant", LimitState(is_paused=True), "other")

    waits = limits.waits_of(store, job.id, "shop", "echo")
    assert waits == ["limit tenant for acme, which is paused by hand"]
    store.apply(
        worker_sql.drop_keys(lane=1),
        worker_sql.put_keys(keys=[(1, "!KeyError")], lane=1, keyed_by=keyed_by),
    )
    assert limits.waits_of(store, job.id, "shop", "echo") == []


def test_resuming_ends_a_wait_that_the_dependency_asked_for(known: Redrive, store: Store) -> None:
    put(store, "openai", LimitState(tokens=0, at=1e9 + 600, paused_until=1e9 + 600))
    assert known.limits.list()[1].status == "waiting"
    assert any("as the dependency asked" in str(found) for found in check_work(store))

    assert known.limits.resume("openai").status == "open"
    assert any("none paused" in str(found) for found in check_work(store))


def test_wrong_names_keys_and_numbers_are_refused(known: Redrive) -> None:
    with pytest.raises(RedriveError, match="openai"):
        known.limits.pause("opnai")
    with pytest.raises(ConfigurationError, match="has no keys"):
        known.limits.pause("openai", key="acme")
    for numbers in ({"rate": "fast"}, {"burst": 0}, {"concurrency": 0}):
        with pytest.raises(ConfigurationError, match="limit openai"):
            known.limits.set("openai", **numbers)


def test_a_key_of_a_limit_whose_code_is_gone_can_still_be_changed(known: Redrive, store: Store) -> None:
    put(store, "former", LimitState(is_paused=True), "acme")

    assert known.limits.resume("former", key="acme").status == "open"
    with pytest.raises(RedriveError, match="former"):
        known.limits.resume("former", key="other")


def test_a_change_that_others_always_overtake_ends_with_an_error() -> None:
    class Busy(SqliteStore):
        def apply(self, *steps: Any) -> Any:
            return None if any(each.name == "add_limit" for each in steps) else super().apply(*steps)

    store = Busy(":memory:")
    record_rules(store, [PIPELINE])
    with pytest.raises(StoreUnavailableError, match="100 times"):
        limits.pause(store, "openai", ANN)
    store.close()
