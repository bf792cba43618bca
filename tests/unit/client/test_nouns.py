# SPDX-License-Identifier: Apache-2.0
"""The nouns of a connection that the command line has as well: jobs, pipelines, breakers, events and the doctor."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from redrive import Breaker, Pipeline, Redrive, ReplayRules, RetryPolicy, connect, stage
from redrive.errors import ConfigurationError, JobNotFoundError, UnknownNameError
from redrive.ops.breakers import BreakerEvent
from redrive.ops.jobs.facts import Attempt
from redrive.ops.jobs.inspect import Event
from redrive.store.statements.jobs import JobEvent
from tests.databases import Address
from tests.unit.build import bounded


@stage(retry=RetryPolicy(1), breaker=Breaker("bank", consecutive=5))
def pay(amount: int) -> int:
    if amount < 0:
        raise PermissionError("no credit")
    return amount


SHOP = Pipeline("shop", [pay], replay=ReplayRules(evidence="optional"))


def test_jobs_are_listed_shown_explained_and_counted(rd: Redrive) -> None:
    good, bad = rd.submit(SHOP, 1, owner="ann"), rd.submit(SHOP, -1)
    rd.work([SHOP], until_idle=True)

    assert [line.id for line in rd.jobs.list(status="failed")] == [bad.id]
    assert [line.id for line in rd.jobs.list(owner="ann", pipeline="shop", stage="pay")] == [good.id]
    assert [line.id for line in rd.jobs.list(before=bad.id)] == [good.id]
    assert rd.jobs.show(bad.id).letters[0].code == "IO_DENIED"
    assert rd.jobs.explain(bad.id) == bad.explain()
    assert rd.jobs.timeline(bad.id)[-1].what == "failed"
    assert rd.jobs.counts() == rd.jobs.counts(pipeline="shop") == {"complete": 1, "failed": 1}
    assert rd.jobs.counts(pipeline="other") == {}
    with pytest.raises(ConfigurationError, match="Did you mean complete"):
        rd.jobs.list(status="completed")


def test_a_handle_cancels_retries_and_has_typed_attempts_and_events(rd: Redrive) -> None:
    queued, failed = rd.submit(SHOP, 2, priority=9), rd.submit(SHOP, -1)

    assert queued.cancel(actor="ann", reason="not wanted") == "cancelled"
    assert queued.cancel() == "cancelled"
    rd.work([SHOP], until_idle=True)
    assert failed.retry(actor="ann", pipelines=[SHOP]) == "queued"
    rd.work([SHOP], until_idle=True)

    first, second = failed.attempts()
    assert (type(first), first.outcome, first.round, second.round) == (Attempt, "dead", 1, 2)
    assert isinstance(failed.events()[0], JobEvent)
    assert [act.verb for act in rd.events.operations(job=queued.id)] == ["cancel"]
    assert [act.verb for act in rd.events.operations(job=failed.id)] == ["retry"]
    assert [act.verb for act in rd.events.operations(limit=1)] == ["retry"]


def test_methods_about_one_job_refuse_what_is_none(rd: Redrive) -> None:
    for ask in (
        rd.jobs.show,
        rd.jobs.explain,
        rd.jobs.timeline,
        rd.jobs.cancel,
        rd.jobs.retry,
        rd.jobs.erase,
    ):
        with pytest.raises(JobNotFoundError):
            ask(7)
        with pytest.raises(ConfigurationError, match="whole number"):
            ask("7")  # type: ignore[arg-type]
    with pytest.raises(JobNotFoundError):
        rd.events.list(job=7)


def test_values_are_erased_by_job(rd: Redrive) -> None:
    job = rd.submit(SHOP, 1)
    rd.work([SHOP], until_idle=True)

    assert rd.jobs.erase(job.id, reason="asked for").is_new
    assert not rd.jobs.erase(job.id).is_new


def test_pipelines_are_listed_paused_and_resumed(rd: Redrive) -> None:
    rd.submit(SHOP, 1)

    assert rd.pipelines.pause("shop", actor="ann")
    assert not rd.pipelines.pause("shop")
    (facts,) = rd.pipelines.list()
    assert (facts.name, facts.queued, facts.paused_at is not None) == ("shop", 1, True)
    assert rd.pipelines.resume("shop")
    assert rd.pipelines.workers() == []
    with pytest.raises(UnknownNameError, match="Did you mean shop"):
        rd.pipelines.pause("shpo")


def test_breakers_are_moved_by_hand_and_that_is_an_event(rd: Redrive) -> None:
    with pytest.raises(UnknownNameError):
        rd.breakers.open("bank")

    assert rd.breakers.open("bank", new=True, actor="ann", reason="it is down").phase == "open"
    assert rd.breakers.isolate("bank").phase == "isolated"
    assert [each.name for each in rd.breakers.list()] == ["bank"]
    assert rd.breakers.close("bank").phase == "closed"

    changes = rd.events.list()
    assert [(type(each), each.after) for each in changes if isinstance(each, BreakerEvent)] == [
        (BreakerEvent, "open"),
        (BreakerEvent, "isolated"),
        (BreakerEvent, "closed"),
    ]


def test_events_are_listed_and_followed_from_now_on(rd: Redrive) -> None:
    rd.submit_many(SHOP, [1, 2])
    rd.work([SHOP], until_idle=True)
    news = rd.events.follow(pipeline="shop")
    job = rd.submit(SHOP, -1)
    rd.work([SHOP], until_idle=True)

    event = next(news)

    assert isinstance(event, Event)
    assert (event.job, event.outcome) == (job.id, "dead")
    assert len(rd.events.list(limit=2)) == 2
    assert [each.sentence for each in rd.events.list(job=job.id)] == [event.sentence]


def test_events_are_followed_from_async_code(address: Address) -> None:
    async def scene() -> Event | BreakerEvent:
        async with connect(address("jobs")) as rd:
            waiting = asyncio.ensure_future(anext(rd.events.follow(pipeline="shop")))
            # It starts on a thread, and only what comes after that is news.
            while not waiting.done():
                await rd.submit(SHOP, 1)
                await rd.work([SHOP], until_idle=True)
            return await waiting

    event = bounded(scene())

    assert isinstance(event, Event)
    assert event.outcome == "ok"


def test_the_doctor_is_asked_from_code(rd: Redrive) -> None:
    rd.submit(SHOP, 1)

    findings = rd.doctor(SHOP, deep=True)

    assert {"schema", "clock"} <= {finding.about for finding in findings}
    assert len(findings) > len(rd.doctor())


def test_a_job_is_found_by_its_key_whatever_became_of_it(rd: Redrive) -> None:
    failed = rd.submit(SHOP, -1, key="a")
    rd.work([SHOP], until_idle=True)
    assert (found := rd.jobs.find(SHOP, "a")) is not None
    assert found.id == failed.id

    holder = rd.submit(SHOP, 1, key="a")

    assert (found := rd.jobs.find("shop", "a")) is not None
    assert found.id == holder.id
    assert [line.id for line in rd.jobs.list(key="a")] == [holder.id, failed.id]
    assert [line.id for line in rd.jobs.list(key="a", status="failed")] == [failed.id]
    assert (rd.jobs.find("shop", "b"), rd.jobs.find("other", "a")) == (None, None)


def test_a_job_is_found_by_its_key_from_async_code(address: Address) -> None:
    async def scene() -> None:
        async with connect(address("jobs")) as rd:
            job = await rd.submit(SHOP, 1, key="a")
            found = await rd.jobs.find(SHOP, "a")
            assert found is not None
            assert (found.id, await found.children()) == (job.id, [])
            assert await rd.jobs.find(SHOP, "b") is None

    bounded(scene())


def test_a_job_waits_as_long_as_its_delay(rd: Redrive) -> None:
    job = rd.submit(SHOP, 1, delay=timedelta(hours=1))

    facts = job.facts
    assert (facts.run_at - facts.created_at).total_seconds() == pytest.approx(3600, abs=5)
    with pytest.raises(ConfigurationError, match="cannot be combined with run_at"):
        rd.submit(SHOP, 1, delay=1, run_at=facts.run_at)
    with pytest.raises(ConfigurationError, match="delay"):
        rd.submit(SHOP, 1, delay=-1)
