# SPDX-License-Identifier: Apache-2.0
"""Receipts: what a sink answers is kept with the letter, in the transaction that ends the delivery."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from redrive import Pipeline, Redrive, connect
from redrive.engine.delivery import recipients
from redrive.engine.delivery.outbox import RECEIPT_MAX, Delivery
from redrive.engine.delivery.recipients import record_listeners
from redrive.engine.pipeline.lanes import lanes_of
from redrive.engine.retention import Retention
from redrive.engine.runtime import CURRENT
from redrive.ops.audit import Actor
from redrive.ops.upkeep.prune import prune
from redrive.sinks import Files, SunkLetter
from redrive.store.sqlite.store import SqliteStore
from redrive.store.statements import upkeep as upkeep_sql
from redrive.testing import VirtualClock
from tests.inline import at_once
from tests.unit.build import ONCE, beside, bounded, one_stage, rows, until, work


def fail(number: int) -> int:
    return 1 // number


class Stream:
    """A sink that answers with the place of a change, as long as it is told to."""

    name = "stream"

    def __init__(self, answers: list[object]) -> None:
        self.answers = answers
        self.closed = 0

    async def deliver(self, _letter: SunkLetter) -> object:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.closed += 1


def shop(*sinks: object) -> Pipeline:
    made = one_stage(fail, retry=ONCE)
    return Pipeline("shop", made.stages, sinks=sinks)  # type: ignore[arg-type]


def delivery(store: SqliteStore, clock: VirtualClock, pipeline: Pipeline) -> Delivery:
    lanes = lanes_of(store, [pipeline])
    record_listeners(store, lanes)
    return Delivery(store, lanes, clock, ask_store=at_once, call=at_once)


def deliver(store: SqliteStore, clock: VirtualClock, pipeline: Pipeline) -> None:
    async def scene() -> None:
        await delivery(store, clock, pipeline).deliver()

    bounded(scene())


def died(store: SqliteStore, clock: VirtualClock, pipeline: Pipeline) -> Redrive:
    rd = Redrive(store)
    rd.submit(pipeline, 0)
    work(store, pipeline)
    deliver(store, clock, pipeline)
    return rd


def test_the_receipt_of_a_sink_is_shown_with_the_letter_and_in_lists(
    store: SqliteStore, clock: VirtualClock
) -> None:
    rd = died(store, clock, shop(Stream(["orders/17"])))

    assert rd.letters.show(1).letter.receipts == {"stream": "orders/17"}
    assert [each.receipts for each in rd.letters.list().letters] == [{"stream": "orders/17"}]


def test_a_later_change_replaces_the_receipt_unless_it_brings_none(
    store: SqliteStore, clock: VirtualClock
) -> None:
    pipeline = shop(Stream(["orders/17", "orders/18", None, ""]))
    rd = died(store, clock, pipeline)
    found: list[str] = []

    for diagnosis in ("transient", "data", "code_defect"):
        rd.letters.triage(rd.letters.choose(), diagnosis=diagnosis)
        deliver(store, clock, pipeline)
        found.append(rd.letters.show(1).letter.receipts["stream"])

    assert found == ["orders/18"] * 3


def test_a_delivery_that_failed_leaves_no_receipt_and_one_that_succeeds_later_does(
    store: SqliteStore, clock: VirtualClock
) -> None:
    pipeline = shop(Stream([OSError(5, "down"), "orders/1"]))

    rd = died(store, clock, pipeline)
    before = rd.letters.show(1).letter.receipts
    clock.advance(60)
    deliver(store, clock, pipeline)

    assert (before, rd.letters.show(1).letter.receipts) == ({}, {"stream": "orders/1"})


def test_a_receipt_is_redacted_and_cut(store: SqliteStore, clock: VirtualClock) -> None:
    rd = died(store, clock, shop(Stream(["password=hunter2hunter2 " + "x " * 500])))

    (receipt,) = rd.letters.show(1).letter.receipts.values()
    assert "hunter2" not in receipt
    assert len(receipt) == RECEIPT_MAX


@pytest.mark.parametrize("answer", [17, None, ["orders/17"]])
def test_an_answer_that_is_no_text_is_no_receipt(
    store: SqliteStore, clock: VirtualClock, answer: object
) -> None:
    rd = died(store, clock, shop(Stream([answer])))

    assert rd.letters.show(1).letter.receipts == {}
    assert rows(store, "count(*)", "outbox") == [(0,)]


def test_a_receipt_goes_with_its_letter(store: SqliteStore, clock: VirtualClock) -> None:
    died(store, clock, shop(Stream(["orders/17"])))
    clock.advance(10)

    prune(store, Retention(failed=1), Actor("ann"))

    assert rows(store, "count(*)", "receipts") == [(0,)]


def test_a_receipt_for_a_letter_that_was_pruned_during_delivery_is_not_kept(
    store: SqliteStore, clock: VirtualClock
) -> None:
    class Slow(Stream):
        async def deliver(self, _letter: SunkLetter) -> object:
            store.apply(upkeep_sql.prune_letters(ids=[1], status="failed", before=clock.wall() + 1))
            return "orders/17"

    died(store, clock, shop(Slow([])))

    assert rows(store, "count(*)", "receipts") == [(0,)]


def test_the_receipt_of_files_is_the_path_in_their_folder(
    store: SqliteStore, clock: VirtualClock, tmp_path: Path
) -> None:
    rd = died(store, clock, shop(Files(tmp_path)))

    (receipt,) = rd.letters.show(1).letter.receipts.values()
    assert (receipt, (tmp_path / receipt).is_file()) == ("shop/fail/1-1.json", True)


def test_a_worker_closes_its_sinks_at_its_end_and_a_sink_that_cannot_be_closed_does_no_harm(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Stuck(Stream):
        name = "stuck"

        async def close(self) -> None:  # type: ignore[override]
            raise OSError(5, "stuck")

    good, stuck = Stream(["1"]), Stuck(["2"])

    with connect(tmp_path / "jobs.db") as rd, caplog.at_level(logging.WARNING):
        rd.submit(shop(stuck, good), 0)
        rd.work([shop(stuck, good)], until_idle=True)
        assert rd.letters.show(1).letter.receipts == {"stream": "1", "stuck": "2"}

    assert good.closed == 1
    assert "sink stuck not closed" in caplog.text


def test_a_look_in_between_does_not_forget_when_a_notice_is_due_again(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipients, "PAUSE_FIRST", 0.05)
    pipeline = shop(Stream([OSError(5, "down"), "orders/1"]))
    rd = Redrive(store)
    rd.submit(pipeline, 0)
    work(store, pipeline)

    async def scene() -> None:
        lanes = lanes_of(store, [pipeline])
        made = Delivery(store, lanes, CURRENT.get().clock, ask_store=at_once, call=at_once)
        async with beside(made.run()):
            await until(lambda: rows(store, "tries", "outbox") == [(1,)])
            # A commit wakes the recipients before the notice is due again.
            for recipient in made._recipients:
                recipient.wake.set()
            await until(lambda: rows(store, "count(*)", "outbox") == [(0,)])

    bounded(scene())

    assert rd.letters.show(1).letter.receipts == {"stream": "orders/1"}
