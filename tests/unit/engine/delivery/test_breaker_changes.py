# SPDX-License-Identifier: Apache-2.0
"""A change of a breaker is recorded with its cause, logged once, and delivered to the hook and to sinks."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from redrive import Breaker, Pipeline, Redrive, connect, stage
from redrive.core.units import instant
from redrive.engine.delivery.outbox import Delivery
from redrive.engine.delivery.recipients import PAUSE_FIRST, record_listeners
from redrive.engine.pipeline.lanes import lanes_of
from redrive.errors import ConfigurationError
from redrive.ops.audit import Actor
from redrive.ops.breakers import breaker_changes, move
from redrive.sinks import BreakerChange, SunkLetter
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.embedded import change_rows, read_rows
from tests.inline import at_once
from tests.unit.build import STEADY, beside, bounded, rows, turns, until, work

API = Breaker("api", consecutive=2, open_for=60, ramp=0)


class Pager:
    """A sink that receives changes of breakers, too."""

    name = "pager"

    def __init__(self) -> None:
        self.changes: list[BreakerChange] = []

    def deliver(self, letter: SunkLetter) -> None:
        raise AssertionError(letter)

    def deliver_breaker(self, change: BreakerChange) -> None:
        self.changes.append(change)


class Basket:
    """A sink that receives letters only."""

    name = "basket"

    def deliver(self, letter: SunkLetter) -> None:
        raise AssertionError(letter)


def calling(clock: VirtualClock, back_at: float, name: str = "shop", **options: object) -> Pipeline:
    """Build a pipeline of two stages behind one breaker whose dependency is down until `back_at`."""

    async def call(number: int) -> int:
        if clock.wall() < back_at:
            raise ConnectionRefusedError(111, "refused")
        return number

    stages = [stage(name=each, breaker=API, retry=STEADY)(call) for each in ("first", "second")]
    return Pipeline(name, stages, **options)  # type: ignore[arg-type]


def deliver(store: SqliteStore, clock: VirtualClock, pipeline: Pipeline) -> None:
    async def scene() -> None:
        delivery = Delivery(store, lanes_of(store, [pipeline]), clock, ask_store=at_once, call=at_once)
        while await delivery.deliver():
            pass

    bounded(scene())


def trip(store: SqliteStore, rd: Redrive, clock: VirtualClock, **options: object) -> Pipeline:
    """Let a dependency be down for two probes, with all that listens."""
    pipeline = calling(clock, clock.wall() + 100, **options)  # type: ignore[arg-type]
    record_listeners(store, lanes_of(store, [pipeline]))
    rd.submit_many(pipeline, range(4))
    work(store, pipeline)
    assert rd.jobs.counts() == {"complete": 4}
    return pipeline


PATH = [
    ("closed", "open", "failures", "NETWORK_REFUSED"),
    ("open", "half_open", "probe", None),
    ("half_open", "open", "probe", "NETWORK_REFUSED"),
    ("open", "half_open", "probe", None),
    ("half_open", "closed", "probe", None),
]


def test_a_worker_records_each_change_of_phase_with_its_cause_and_no_ordinary_sample(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    trip(store, rd, clock)

    found = breaker_changes(store)
    assert [(each.before, each.after, each.cause, each.code) for each in found] == PATH
    assert {(each.breaker, each.actor) for each in found} == {("api", "w1")}
    assert [each.at for each in found] == sorted(each.at for each in found)
    assert found[0].sentence == "too many calls failed, the last one with NETWORK_REFUSED"
    assert rows(store, "id", "outbox") == []


def test_the_worker_that_changes_a_breaker_logs_it_once(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="redrive.worker"):
        trip(store, rd, clock)

    lines = [(each.levelname, each.message) for each in caplog.records if "breaker api" in each.message]
    assert lines == [
        ("WARNING", "breaker api: closed -> open: too many calls failed, the last one with NETWORK_REFUSED"),
        ("INFO", "breaker api: open -> half_open: a probe was sent"),
        ("WARNING", "breaker api: half_open -> open: its probe failed with NETWORK_REFUSED"),
        ("INFO", "breaker api: open -> half_open: a probe was sent"),
        ("INFO", "breaker api: half_open -> closed: its probes succeeded"),
    ]


def test_the_hook_and_the_sinks_that_ask_for_it_receive_each_change_once_and_in_order(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    heard: list[BreakerChange] = []
    pager = Pager()
    pipeline = trip(store, rd, clock, on_breaker=heard.append, sinks=[pager, Basket()])
    clock.advance(60)
    deliver(store, clock, pipeline)

    for changes in (heard, pager.changes):
        assert [(each.before, each.after, each.cause, each.code) for each in changes] == PATH
        assert len({each.delivery for each in changes}) == len(PATH)
        assert {each.sent_at for each in changes} == {instant(clock.wall())}
    assert [each.delivery for each in heard] == [each.delivery for each in pager.changes]
    assert rows(store, "id", "outbox") == []


def test_a_change_by_hand_names_the_operator_and_reaches_the_hook(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    heard: list[BreakerChange] = []
    pipeline = calling(clock, 0, on_breaker=heard.append)
    record_listeners(store, lanes_of(store, [pipeline]))
    for verb in ("isolate", "isolate", "close", "open"):
        move(store, "api", verb, Actor("mia", "ticket 42"), is_new=True)
    deliver(store, clock, pipeline)

    assert [(each.before, each.after, each.cause, each.actor, each.sentence) for each in heard] == [
        ("closed", "isolated", "operator", "mia", "mia isolated it: ticket 42"),
        ("isolated", "closed", "operator", "mia", "mia closed it: ticket 42"),
        ("closed", "open", "operator", "mia", "mia opened it: ticket 42"),
    ]


def test_a_hook_that_raises_is_called_again_before_later_changes(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str] = []
    problems = [OSError(5, "no")]

    def hear(change: BreakerChange) -> None:
        if problems:
            raise problems.pop()
        heard.append(change.after)

    pipeline = calling(clock, 0, on_breaker=hear)
    record_listeners(store, lanes_of(store, [pipeline]))
    for verb in ("open", "close"):
        move(store, "api", verb, Actor("mia"), is_new=True)
    deliver(store, clock, pipeline)
    assert heard == []
    assert "hook on_breaker of change 1 of a breaker raised" in caplog.text

    clock.advance(PAUSE_FIRST)
    deliver(store, clock, pipeline)
    assert heard == ["open", "closed"]


def test_pipelines_that_share_a_breaker_all_hear_of_it(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    heard: list[str] = []
    for name in ("shop", "bank"):
        pipeline = calling(clock, 0, name=name, on_breaker=lambda change: heard.append(change.after))
        record_listeners(store, lanes_of(store, [pipeline]))
    silent = calling(clock, 0, name="silent")
    record_listeners(store, lanes_of(store, [silent]))
    move(store, "api", "open", Actor("mia"), is_new=True)
    for name in ("shop", "bank", "silent"):
        deliver(
            store, clock, calling(clock, 0, name=name, on_breaker=lambda change: heard.append(change.after))
        )

    assert heard == ["open", "open"]
    assert rows(store, "id", "outbox") == []


def test_a_breaker_whose_name_begins_like_that_of_a_pipeline_is_another(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    pipeline = calling(clock, 0, on_breaker=lambda _: None)
    record_listeners(store, lanes_of(store, [pipeline]))
    for name in ("api", "api[example.org]", "api2", "api2[example.org]"):
        move(store, name, "open", Actor("mia"), is_new=True)

    heard = read_rows(
        store, "SELECT breaker FROM outbox JOIN breaker_changes changes ON changes.id = change_id"
    )
    assert sorted(heard) == [("api",), ("api[example.org]",)]


def test_only_the_last_changes_are_kept(store: SqliteStore, rd: Redrive, dialect: str) -> None:
    move(store, "api", "open", Actor("mia"), is_new=True)
    if dialect == "sqlite":
        change_rows(store, "UPDATE sqlite_sequence SET seq = 9999 WHERE name = 'breaker_changes'")
    else:
        read_rows(store, "SELECT setval('breaker_changes_id_seq', 9999)")
    move(store, "api", "close", Actor("mia"))
    assert sorted(each.id for each in breaker_changes(store)) == [1, 10_000]

    move(store, "api", "open", Actor("mia"))
    assert sorted(each.id for each in breaker_changes(store)) == [10_000, 10_001]


def test_what_is_no_function_is_refused(clock: VirtualClock) -> None:
    with pytest.raises(ConfigurationError, match=r"Pipeline\(shop\)\.on_breaker"):
        calling(clock, 0, on_breaker="page me")


def test_a_worker_delivers_a_change_that_it_made_without_waiting_to_look_around(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.engine.delivery.outbox.LOOK_SECONDS", 10_000.0)
    heard: list[str] = []
    pipeline = calling(clock, 0, on_breaker=lambda change: heard.append(change.after))
    record_listeners(store, lanes_of(store, [pipeline]))
    changes = 0

    async def scene() -> None:
        nonlocal changes
        delivery = Delivery(
            store,
            lanes_of(store, [pipeline]),
            clock,
            ask_store=at_once,
            call=at_once,
            breaker_changes=lambda: changes,
        )
        async with beside(delivery.run()):
            await turns()
            move(store, "api", "open", Actor("mia"), is_new=True)
            delivery.committed([])
            await turns()
            assert heard == []
            changes = 1
            delivery.committed([])
            await until(lambda: heard)

    bounded(scene())
    assert heard == ["open"]


def test_a_service_delivers_what_happens_to_its_breakers(tmp_path: Path) -> None:
    heard: list[str] = []

    @stage(breaker=Breaker("api", consecutive=1, open_for=0.01), retry=STEADY)
    def call(number: int) -> int:
        if not heard:
            raise ConnectionRefusedError(111, "refused")
        return number

    pipeline = Pipeline("shop", [call], on_breaker=lambda change: heard.append(change.after))
    with connect(tmp_path / "jobs.db") as rd:
        rd.submit(pipeline, 1)
        rd.work([pipeline], until_idle=True, hold_max=20)

    assert (heard[0], heard[-1]) == ("open", "closed")
