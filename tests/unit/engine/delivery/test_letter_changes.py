# SPDX-License-Identifier: Apache-2.0
"""Sinks receive every change of a dead letter: at least once, in order for each letter, written in the transaction of the change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from redrive import Context, Event, Pipeline, Redrive, ReplayRules, stage
from redrive.engine.delivery.outbox import Delivery
from redrive.engine.delivery.recipients import PAUSE_MAX, record_listeners
from redrive.engine.pipeline.lanes import lanes_of
from redrive.engine.replay.rules import record_rules
from redrive.ops.audit import Actor
from redrive.ops.checkup.doctor import examine
from redrive.ops.jobs.retry import retry_job
from redrive.sinks import Files, SunkLetter
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.inline import at_once
from tests.unit.build import ONCE, bounded, rows, work


class Basket:
    """A sink that keeps the changes it gets; it refuses those named."""

    name = "basket"

    def __init__(self, *, refused: str | None = None) -> None:
        self.refused = refused
        self.changes: list[SunkLetter] = []

    def deliver(self, letter: SunkLetter) -> None:
        if letter.event == self.refused:
            raise OSError(5, "no")
        self.changes.append(letter)

    @property
    def heard(self) -> list[tuple[int | None, str, str]]:
        return [(each.letter_id, each.event, each.state) for each in self.changes]


def shop(*sinks: object, fails_in: tuple[int, ...] = (1,), name: str = "shop", **options: object) -> Pipeline:
    """Build a pipeline whose jobs fail for good in these rounds."""

    @stage(retry=ONCE)
    def call(number: int, ctx: Context) -> int:
        if ctx.round in fails_in:
            raise PermissionError(13, "denied")
        return number

    return Pipeline(name, [call], sinks=sinks, replay=ReplayRules(evidence="optional"), **options)  # type: ignore[arg-type]


def serve(store: SqliteStore, clock: VirtualClock, pipeline: Pipeline) -> None:
    """Work as a service does, and deliver all that is due."""
    lanes = lanes_of(store, [pipeline])
    record_listeners(store, lanes)
    record_rules(store, [pipeline])
    work(store, pipeline)

    async def scene() -> None:
        delivery = Delivery(store, lanes, clock, ask_store=at_once, call=at_once)
        while await delivery.deliver():
            pass

    bounded(scene())


def test_a_sink_receives_every_change_of_a_letter_in_order(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    basket = Basket()
    pipeline = shop(basket)
    job = rd.submit(pipeline, 1)
    serve(store, clock, pipeline)
    letters = rd.letters
    clock.advance(60)
    letters.triage(letters.choose(ids=[1]), diagnosis="data", actor="ops")
    letters.assign(letters.choose(ids=[1]), assignee="mia", actor="ops")
    letters.discard(letters.choose(ids=[1]), actor="ops")
    letters.restore(letters.choose(ids=[1]), actor="ops")
    letters.remediate(
        letters.choose(ids=[1]), diagnosis="data", evidence="ticket 4", is_safe=True, actor="ops"
    )
    clock.advance(60)
    retry_job(store, job.id, Actor("ops"))
    serve(store, clock, pipeline)

    assert basket.heard == [
        (1, "born", "open"),
        (1, "triaged", "triaged"),
        (1, "assigned", "triaged"),
        (1, "discarded", "discarded"),
        (1, "restored", "open"),
        (1, "triaged", "triaged"),
        (1, "ready", "ready"),
        (1, "replaying", "replaying"),
        (1, "resolved", "resolved"),
    ]
    assert len({each.delivery for each in basket.changes}) == len(basket.changes)
    assert len({each.identity for each in basket.changes}) == 1
    times = [each.changed_at for each in basket.changes]
    assert times == sorted(times)
    assert (times[1] - times[0]).total_seconds() == pytest.approx(60, abs=1)
    assert (times[7] - times[1]).total_seconds() == pytest.approx(60, abs=1)
    last = basket.changes[-1]
    assert (last.diagnosis, last.assignee, last.evidence, last.round) == ("data", "mia", "ticket 4", 1)
    assert rows(store, "id", "outbox") == []


def test_a_letter_that_returns_is_heard_of_and_the_one_that_follows_it_is_escalated(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    basket = Basket()
    heard: list[Event] = []
    pipeline = shop(basket, fails_in=(1, 2), on_dead=heard.append)
    job = rd.submit(pipeline, 1)
    serve(store, clock, pipeline)
    retry_job(store, job.id, Actor("ops"))
    serve(store, clock, pipeline)

    assert [each for each in basket.heard if each[0] == 1] == [
        (1, "born", "open"),
        (1, "replaying", "replaying"),
        (1, "returned", "returned"),
    ]
    assert [(each.event, each.follows) for each in basket.changes if each.is_escalated] == [("born", 1)]
    assert len({each.identity for each in basket.changes}) == 2
    assert [event.is_escalated for event in heard] == [False, True]


def test_the_end_of_a_letter_has_the_attempts_of_its_own_round_and_those_before(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    basket = Basket()
    pipeline = shop(basket, fails_in=(1, 2))
    job = rd.submit(pipeline, 1)
    serve(store, clock, pipeline)
    retry_job(store, job.id, Actor("ops"))
    serve(store, clock, pipeline)

    heard = {(each.letter_id, each.event): (each.dispatch, each.attempts) for each in basket.changes}
    assert heard == {
        (1, "born"): (1, 1),
        (1, "replaying"): (1, 1),
        (1, "returned"): (1, 1),
        (2, "born"): (2, 2),
    }


def test_a_change_is_called_what_was_done_and_has_the_time_at_which_it_was(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    basket = Basket()
    pipeline = shop(basket)
    job = rd.submit(pipeline, 1)
    serve(store, clock, pipeline)
    letters = rd.letters
    clock.advance(60)
    letters.assign(letters.choose(ids=[1]), assignee="mia", actor="ops")
    for diagnosis in ("data", "transient"):
        clock.advance(60)
        letters.triage(letters.choose(ids=[1]), diagnosis=diagnosis, actor="ops")
    retry_job(store, job.id, Actor("ops"))
    clock.advance(60)
    letters.assign(letters.choose(ids=[1]), assignee="kim", actor="ops")
    serve(store, clock, pipeline)

    born = basket.changes[0].changed_at
    assert [
        (each.event, each.state, round((each.changed_at - born).total_seconds())) for each in basket.changes
    ] == [
        ("born", "open", 0),
        ("assigned", "open", 60),
        ("triaged", "triaged", 120),
        ("triaged", "triaged", 180),
        ("replaying", "replaying", 180),
        ("assigned", "replaying", 240),
        ("resolved", "resolved", 240),
    ]


def test_a_change_that_a_sink_refuses_holds_up_later_ones_of_its_letter_and_no_other_letter(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    basket = Basket(refused="born")
    pipeline = shop(basket)
    rd.submit_many(pipeline, [1, 2])
    serve(store, clock, pipeline)
    rd.letters.discard(rd.letters.choose(ids=[1]), actor="ops")
    clock.advance(PAUSE_MAX)
    serve(store, clock, pipeline)
    assert basket.heard == []

    basket.refused = None
    clock.advance(PAUSE_MAX)
    serve(store, clock, pipeline)
    assert sorted(basket.heard) == [(1, "born", "open"), (1, "discarded", "discarded"), (2, "born", "open")]
    assert basket.heard.index((1, "born", "open")) < basket.heard.index((1, "discarded", "discarded"))


def test_a_file_follows_its_letter(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, tmp_path: Path
) -> None:
    pipeline = shop(Files(tmp_path))
    job = rd.submit(pipeline, 1)
    serve(store, clock, pipeline)
    retry_job(store, job.id, Actor("ops"))
    serve(store, clock, pipeline)

    (file,) = tmp_path.rglob("*.json")
    assert json.loads(file.read_text(encoding="utf-8"))["state"] == "resolved"


def test_only_pipelines_with_sinks_write_notices(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    other = shop(Basket(), name="other")
    serve(store, clock, other)
    job = rd.submit(shop(), 1)
    serve(store, clock, shop())
    retry_job(store, job.id, Actor("ops"))
    serve(store, clock, shop())
    assert rows(store, "id", "outbox") == []

    serve(store, clock, shop(name="other"))
    assert rows(store, "recipient", "listeners") == []


def test_a_letter_that_is_imported_is_heard_of(store: SqliteStore, rd: Redrive, clock: VirtualClock) -> None:
    elsewhere = Redrive(SqliteStore(":memory:"))
    elsewhere.submit(shop(), 1)
    assert isinstance(elsewhere.store, SqliteStore)
    work(elsewhere.store, shop())
    lines = list(elsewhere.letters.export())
    elsewhere.close()
    basket = Basket()
    serve(store, clock, shop(basket))
    rd.letters.import_(lines, actor="ops")
    serve(store, clock, shop(basket))

    assert basket.heard == [(1, "imported", "open")]
    assert basket.changes[0].code == "IO_DENIED"


def test_a_change_that_was_made_just_now_is_not_late(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    basket = Basket()
    pipeline = shop(basket)
    rd.submit(pipeline, 1)
    serve(store, clock, pipeline)
    clock.advance(86_400)
    rd.letters.discard(rd.letters.choose(ids=[1]), actor="ops")

    assert [each.sentence for each in examine(store) if each.about == "sinks"] == []
