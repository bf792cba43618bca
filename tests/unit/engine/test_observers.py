# SPDX-License-Identifier: Apache-2.0
"""Observers: what they see, that they see nothing of outcomes that do not count, and that they cannot hurt a job."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import closing

import pytest

from redrive import Backoff, Pipeline, RetryPolicy, connect, stage
from redrive.engine import observers
from redrive.engine.observers import AttemptFacts, CommitFacts, Observer, Observers
from redrive.engine.pipeline.lanes import Lane
from redrive.store.records import Exchange, JobId, Settlement, WorkerFacts
from redrive.store.sqlite.store import SqliteStore
from redrive.testing.conformance.build import NOW, settlement, taken


@stage(retry=RetryPolicy(2, Backoff.fixed(0)))
async def fetch(number: int) -> int:
    if number == 13:
        raise ConnectionResetError(104, "reset")
    return number


@stage
def halve(number: int) -> float:
    return 10 / number


SHOP = Pipeline("shop", [fetch, halve])


class Seen(Observer):
    """Keeps what it sees."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[int, str, str, str | None]] = []
        self.attempts: list[tuple[str, str | None]] = []
        self.workers: list[object] = []

    def worker_started(self, name: str, facts: WorkerFacts) -> None:
        self.workers.append((name.partition("-")[0], facts.pipelines))

    def worker_ended(self, ending: str) -> None:
        self.workers.append(ending)

    def committed(self, commit: CommitFacts) -> None:
        assert commit.seconds >= 0
        for one in commit.settled():
            stage_name = commit.lanes[one.job.lane].stage.name
            self.outcomes.append((one.job.id, stage_name, one.outcome, one.code))


class Attempts(Observer):
    """Keeps what it sees of single attempts."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, object]] = []

    def attempt_started(self, facts: AttemptFacts) -> Attempts:
        self.steps.append(
            ("started", (facts.job_id, facts.pipeline, facts.stage, facts.attempt, facts.dispatch))
        )
        return self

    def returned(self) -> None:
        self.steps.append(("returned", None))

    def settled(self, outcome: str, code: str | None) -> None:
        self.steps.append((outcome, code))


class Broken(Observer):
    """Raises whatever it is asked."""

    def committed(self, commit: CommitFacts) -> None:
        raise RuntimeError("the disk of the metrics is full")

    def attempt_started(self, facts: AttemptFacts) -> None:
        raise RuntimeError("no span today")

    def trace_of_caller(self) -> str | None:
        raise RuntimeError("no trace today")


@pytest.fixture
def installed() -> Generator[Callable[[Observer], None]]:
    made: list[Observer] = []

    def install(observer: Observer) -> None:
        observers.install(observer)
        made.append(observer)

    yield install
    for one in made:
        observers.uninstall(one)


def test_an_observer_sees_workers_outcomes_and_limits(installed: Callable[[Observer], None]) -> None:
    seen = Seen()
    installed(seen)
    installed(seen)

    with connect(":memory:") as rd:
        rd.submit_many(SHOP, [1, 13, 0])
        rd.work([SHOP], until_idle=True)

    assert sorted(seen.outcomes) == [
        (1, "fetch", "ok", None),
        (1, "halve", "ok", None),
        (2, "fetch", "dead", "NETWORK_RESET"),
        (2, "fetch", "retry", "NETWORK_RESET"),
        (3, "fetch", "ok", None),
        (3, "halve", "dead", "BUG_CODE"),
    ]
    assert seen.workers == [("worker", ("shop",)), "idle"]


def test_an_observer_sees_that_a_limit_is_used_up(installed: Callable[[Observer], None]) -> None:
    is_limited = threading.Event()

    class Limits(Observer):
        def limited(self, lanes: Sequence[Lane]) -> None:
            if [lane.stage.name for lane in lanes] == ["wait"]:
                is_limited.set()

    @stage(concurrency=1)
    def wait(_number: int) -> bool:
        return is_limited.wait(60)

    installed(Limits())
    flow = Pipeline("limited", [wait])

    with connect(":memory:") as rd:
        jobs = [rd.submit(flow, number) for number in (1, 2)]
        rd.work([flow], until_idle=True)
        assert [job.result() for job in jobs] == [True, True]


def test_each_attempt_is_seen_from_its_start_to_its_settlement(installed: Callable[[Observer], None]) -> None:
    seen = Attempts()
    installed(seen)

    with connect(":memory:") as rd:
        rd.submit(SHOP, 0)
        rd.work([SHOP], until_idle=True)

    assert seen.steps == [
        ("started", (1, "shop", "fetch", 1, 1)),
        ("returned", None),
        ("ok", None),
        ("started", (1, "shop", "halve", 1, 2)),
        ("returned", None),
        ("dead", "BUG_CODE"),
    ]


def test_an_observer_that_raises_hurts_no_job_and_is_logged_once(
    installed: Callable[[Observer], None], caplog: pytest.LogCaptureFixture
) -> None:
    installed(Broken())

    with caplog.at_level(logging.ERROR), connect(":memory:") as rd:
        rd.submit_many(SHOP, [1, 2, 3])
        rd.work([SHOP], until_idle=True)
        counts = rd.jobs.counts()

    assert counts == {"complete": 3}
    lines = [
        record.getMessage() for record in caplog.records if "observer Broken failed" in record.getMessage()
    ]
    worker_lines = [line for line in lines if "no trace today" not in line]
    assert len(worker_lines) == 1


def test_without_observers_nothing_is_asked() -> None:
    nobody = Observers()

    assert not nobody
    assert nobody.trace_of_caller() is None
    assert nobody.health_page("/metrics") is None
    assert nobody.resume_trace("00-1") == []
    observers.uninstall(Seen())


def test_outcomes_that_were_refused_are_not_shown_as_settled() -> None:
    with closing(SqliteStore(":memory:")) as store:
        store.start_worker("w1", NOW, 30.0)
        one = settlement(taken(store))

    def shown(*, lost: tuple[JobId, ...] = (), broken: tuple[JobId, ...] = ()) -> list[Settlement]:
        answer = Exchange(lost=lost, broken=broken, claimed=())
        return list(CommitFacts(batch=[one], answer=answer, lanes={}, seconds=0.1).settled())

    assert shown() == [one]
    assert shown(lost=(one.job.id,)) == shown(broken=(one.job.id,)) == []
