# SPDX-License-Identifier: Apache-2.0
"""Sinks: a dead letter goes to each of them at least once, whatever the others do, and nothing about the job changes."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from redrive import Context, Event, Pipeline, Redrive, connect, stage
from redrive.engine.delivery.outbox import BATCH, HIDDEN_SECONDS, Delivery
from redrive.engine.delivery.recipients import FAILURES_MAX, PAUSE_FIRST, PAUSE_MAX, pause
from redrive.engine.pipeline.lanes import lanes_of
from redrive.errors import ConfigurationError, StoreUnavailableError
from redrive.ops.checkup.doctor import examine
from redrive.sinks import Files, SunkLetter
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.embedded import change_rows
from tests.inline import T, at_once
from tests.unit.build import STEADY, beside, bounded, jobs, rows, until, work, worker_on

from .test_hooks import deliver, hooks_of


class Basket:
    """A sink that keeps what it gets; for a while it may refuse."""

    def __init__(self, name: str = "basket", *, refusals: int = 0, payload: str = "exclude") -> None:
        self.name = name
        self.payload = payload
        self.input = "exclude"
        self.refusals = refusals
        self.tries = 0
        self.letters: list[SunkLetter] = []

    def deliver(self, letter: SunkLetter) -> None:
        self.tries += 1
        if self.refusals:
            self.refusals -= 1
            raise OSError(5, "the basket is full, password=hunter2hunter2")
        self.letters.append(letter)


def failing(**options: object) -> Pipeline:
    """Build a pipeline whose jobs fail twice for a reason that passes, and then for one that does not."""

    def call(order: dict[str, str], ctx: Context) -> int:
        if ctx.attempt < 3:
            raise ConnectionResetError(104, "reset")
        ctx.note("step", "paying")
        raise PermissionError(13, f"denied for {order['card']}, token=abcdef0123456789")

    return Pipeline("shop", [stage(retry=STEADY)(call)], **options)  # type: ignore[arg-type]


ORDER = {"card": "the number of the card"}


def flush(store: SqliteStore, clock: VirtualClock, pipeline: Pipeline) -> None:
    async def scene() -> None:
        await hooks_of(store, clock, pipeline).flush()

    bounded(scene())


def bury(store: SqliteStore, rd: Redrive, pipeline: Pipeline, count: int = 1) -> None:
    rd.submit_many(pipeline, [ORDER] * count)
    work(store, pipeline)


def test_a_dead_letter_writes_a_notice_for_each_sink_and_one_for_the_hook(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    bury(store, rd, failing(sinks=[Basket("a"), Basket("b")], on_dead=lambda _event: None))

    assert rows(store, "recipient, dispatch", "outbox") == [("a", 3), ("b", 3), ("hook", 3)]


def test_a_sink_gets_all_there_is_to_say_redacted_and_without_the_payload(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    basket = Basket()
    pipeline = failing(sinks=[basket])
    rd.submit(pipeline, ORDER, key="order-1", owner="mia")
    work(store, pipeline)
    assert deliver(store, clock, pipeline) == 1

    (letter,) = basket.letters
    assert (letter.letter_id, letter.job_id, letter.pipeline, letter.stage, letter.round) == (
        1,
        1,
        "shop",
        "call",
        1,
    )
    assert (letter.code, letter.category, letter.exception) == ("IO_DENIED", "io", "PermissionError")
    assert (letter.attempts, [each.outcome for each in letter.history]) == (3, ["retry", "retry", "dead"])
    assert (letter.key, letter.owner, letter.is_escalated, letter.follows) == ("order-1", "mia", False, None)
    assert letter.first_failure_at < letter.last_failure_at
    assert letter.fingerprint.startswith("v1:")
    assert (letter.sanitized_context["attempt"], letter.sanitized_context["notes"]) == (3, {"step": "paying"})
    assert "Traceback" in letter.last_stack
    assert letter.payload is None
    told = repr(letter)
    assert ("abcdef0123456789" in told, ORDER["card"] in told) == (False, False)
    assert rows(store, "id", "outbox") == []
    assert deliver(store, clock, pipeline) == 0


def test_only_a_sink_that_asks_for_the_payload_gets_it_and_an_erased_one_is_none(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    asks, other = Basket("asks", payload="include"), Basket("other")
    pipeline = failing(sinks=[asks, other])
    bury(store, rd, pipeline)
    deliver(store, clock, pipeline)
    bury(store, rd, pipeline)
    change_rows(store, "UPDATE jobs SET erased_at = 1, payload = ? WHERE id = 2", (b"{}",))
    deliver(store, clock, pipeline)

    assert [letter.payload for letter in asks.letters] == [ORDER, None]
    assert [letter.payload for letter in other.letters] == [None, None]


def test_a_large_payload_is_found_where_it_stands(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    basket = Basket(payload="include")
    pipeline = failing(sinks=[basket])
    large = {"card": "x" * 10_000}
    rd.submit(pipeline, large)
    work(store, pipeline)
    deliver(store, clock, pipeline)

    assert basket.letters[0].payload == large


def test_what_was_pruned_or_cannot_be_read_is_left_out(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    basket = Basket(payload="include")
    pipeline = failing(sinks=[basket])
    bury(store, rd, pipeline, 3)
    change_rows(store, "DELETE FROM dead_letters WHERE job_id = 1")
    change_rows(
        store,
        "UPDATE letter_facts SET context = ? WHERE letter_id = (SELECT id FROM letters WHERE job_id = 2)",
        (b"\0",),
    )
    change_rows(store, "UPDATE jobs SET payload = ? WHERE id = 2", (b"\0",))
    change_rows(store, "DELETE FROM attempts WHERE job_id = 3")
    change_rows(store, "DELETE FROM dead_letters WHERE job_id = 3")
    deliver(store, clock, pipeline)

    first, second = sorted(basket.letters, key=lambda letter: letter.job_id)
    assert (first.letter_id, first.code, first.last_stack, first.stage) == (None, "IO_DENIED", "", "call")
    assert first.exception == "PermissionError"
    assert (second.letter_id, second.code, second.sanitized_context, second.payload) == (
        None,
        "IO_DENIED",
        {},
        None,
    )
    assert rows(store, "id", "outbox") == []


def test_a_letter_of_a_later_round_is_told_as_that_one(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    basket = Basket()
    pipeline = failing(sinks=[basket])
    bury(store, rd, pipeline)
    change_rows(store, "UPDATE dead_letters SET state = 'replaying'")
    change_rows(
        store,
        "UPDATE jobs SET status = 'queued', round = 2, attempt = 1, finished_at = NULL, error_code = NULL, error_message = NULL",
    )
    work(store, pipeline)
    flush(store, clock, pipeline)

    assert [(letter.letter_id, letter.round, letter.follows) for letter in basket.letters] == [
        (1, 1, None),
        (2, 2, 1),
    ]
    assert len({letter.delivery for letter in basket.letters}) == 2
    assert [letter.attempts for letter in basket.letters] == [3, 6]


def test_a_sink_that_raises_is_tried_again_with_growing_pauses_and_the_others_do_not_wait(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    full, fine = Basket("full", refusals=2), Basket("fine")
    heard: list[Event] = []
    pipeline = failing(sinks=[full, fine], on_dead=heard.append)
    bury(store, rd, pipeline)

    deliver(store, clock, pipeline)
    assert (full.tries, len(fine.letters), len(heard)) == (1, 1, 1)
    for wait, tries in ((PAUSE_FIRST - 1, 1), (1, 2), (2 * PAUSE_FIRST - 1, 2), (1, 3), (PAUSE_MAX, 3)):
        clock.advance(wait)
        deliver(store, clock, pipeline)
        assert full.tries == tries

    assert len(full.letters) == 1
    assert jobs(store) == [("failed",)]
    assert "sink full with the dead letter of job 1 raised" in caplog.text
    assert "hunter2" not in caplog.text


def test_pauses_grow_to_a_limit() -> None:
    assert [pause(tries) for tries in (1, 2, 3, 7, 8, 10_000)] == [5, 10, 20, 320, PAUSE_MAX, PAUSE_MAX]


def test_a_sink_that_is_down_is_not_asked_for_every_letter(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    basket = Basket(refusals=FAILURES_MAX)
    pipeline = failing(sinks=[basket])
    bury(store, rd, pipeline, BATCH)

    async def scene() -> None:
        hooks = hooks_of(store, clock, pipeline)
        await hooks.deliver()
        assert await hooks.deliver() == 0
        assert basket.tries == FAILURES_MAX
        clock.advance(PAUSE_FIRST)
        await hooks.flush()

    bounded(scene())
    assert len({letter.job_id for letter in basket.letters}) == BATCH
    assert rows(store, "id", "outbox") == []


def test_a_letter_that_a_sink_never_takes_does_not_hold_up_the_others(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    class Picky(Basket):
        def deliver(self, letter: SunkLetter) -> None:
            if letter.job_id == 1:
                raise ValueError("not this one")
            super().deliver(letter)

    basket = Picky()
    pipeline = failing(sinks=[basket])
    bury(store, rd, pipeline, 5)
    for _ in range(20):
        deliver(store, clock, pipeline)
        clock.advance(PAUSE_MAX)

    assert sorted(letter.job_id for letter in basket.letters) == [2, 3, 4, 5]
    assert rows(store, "job_id, tries", "outbox") == [(1, 20)]


def test_a_batch_that_takes_too_long_is_given_back_in_time(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    class Slow(Basket):
        def deliver(self, letter: SunkLetter) -> None:
            clock.advance(HIDDEN_SECONDS / 5)
            super().deliver(letter)

    basket = Slow()
    pipeline = failing(sinks=[basket])
    bury(store, rd, pipeline, 10)
    deliver(store, clock, pipeline)
    assert len(basket.letters) == 3

    flush(store, clock, pipeline)
    assert sorted(letter.job_id for letter in basket.letters) == list(range(1, 11))


def test_a_notice_for_a_sink_that_the_code_no_longer_has_is_left(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    bury(store, rd, failing(sinks=[Basket("gone")]))
    clock.advance(3_600)
    deliver(store, clock, failing(sinks=[Basket("other")], on_dead=lambda _event: None))
    assert rows(store, "recipient, tries", "outbox") == [("gone", 0)]

    back = Basket("gone")
    deliver(store, clock, failing(sinks=[back]))
    assert len(back.letters) == 1


def raises_ending(_letter: SunkLetter) -> None:
    raise SystemExit(3)


async def cancels_itself(_letter: SunkLetter) -> None:
    raise asyncio.CancelledError


async def hangs_up(_letter: SunkLetter) -> None:
    raise OSError(5, "no")


@pytest.mark.parametrize("strange", [raises_ending, cancels_itself, hangs_up])
def test_nothing_a_sink_raises_ends_the_delivery(
    store: SqliteStore,
    rd: Redrive,
    clock: VirtualClock,
    strange: Callable[[SunkLetter], Awaitable[None] | None],
) -> None:
    class Strange:
        name = "strange"

        def deliver(self, letter: SunkLetter) -> Awaitable[None] | None:
            return strange(letter)

    fine = Basket()
    pipeline = failing(sinks=[Strange(), fine])
    bury(store, rd, pipeline, 2)
    deliver(store, clock, pipeline)

    assert len(fine.letters) == 2
    assert rows(store, "recipient, tries", "outbox") == [("strange", 1), ("strange", 1)]


def test_an_async_sink_is_awaited_and_a_success_is_not_told_to_sinks(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    got: list[int] = []

    class Later:
        name = "later"

        async def deliver(self, letter: SunkLetter) -> None:
            await asyncio.sleep(0)
            got.append(letter.job_id)

    @stage
    def call(number: int) -> float:
        return 1 / number

    pipeline = Pipeline("shop", [call], sinks=[Later()])
    rd.submit_many(pipeline, [1, 0])
    work(store, pipeline)
    deliver(store, clock, pipeline)

    assert got == [2]


def test_a_sink_comes_up_again_while_the_worker_runs(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only at the next look around, which is far away: when its pause is over."""
    monkeypatch.setattr("redrive.engine.delivery.recipients.PAUSE_FIRST", 0.01)
    monkeypatch.setattr("redrive.engine.delivery.outbox.LOOK_SECONDS", 10_000.0)
    basket = Basket(refusals=1)
    pipeline = failing(sinks=[basket])
    bury(store, rd, pipeline)

    async def scene() -> None:
        async with beside(hooks_of(store, clock, pipeline).run()):
            await until(lambda: basket.tries)
            clock.advance(1)
            await until(lambda: basket.letters)

    bounded(scene())


def test_a_sink_that_hangs_holds_up_neither_the_hook_nor_the_other_sinks(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    heard: list[Event] = []
    fine = Basket()

    class Hanging:
        name = "hanging"

        async def deliver(self, _letter: SunkLetter) -> None:
            await asyncio.Event().wait()

    pipeline = failing(sinks=[Hanging(), fine], on_dead=heard.append)

    def have_heard(count: int) -> bool:
        return len(heard) == len(fine.letters) == count

    async def scene() -> None:
        hooks = hooks_of(store, clock, pipeline)
        async with beside(hooks.run()):
            for count in (1, 2):
                rd.submit(pipeline, ORDER)
                await worker_on(store, pipeline, on_commit=hooks.committed).run(until_idle=True)
                await until(partial(have_heard, count))

    bounded(scene())
    assert rows(store, "recipient", "outbox") == [("hanging",), ("hanging",)]


def test_a_worker_delivers_before_it_ends(tmp_path: Path) -> None:
    threads: set[str] = set()

    class Named(Basket):
        def deliver(self, letter: SunkLetter) -> None:
            threads.add(threading.current_thread().name)
            super().deliver(letter)

    basket = Named()
    pipeline = Pipeline(
        "shop",
        [stage(name="fail")(lambda number: 1 / number)],  # type: ignore[misc]  # a lambda has no types to infer
        sinks=[Files(tmp_path / "letters"), basket],
    )
    with connect(tmp_path / "jobs.db") as rd:
        rd.submit_many(pipeline, [0] * 30)
        rd.work([pipeline], until_idle=True)

    written = list((tmp_path / "letters").rglob("*.json"))
    assert len(written) == len(basket.letters) == 30
    assert {json.loads(file.read_text(encoding="utf-8"))["code"] for file in written} == {
        basket.letters[0].code
    }
    assert threading.main_thread().name not in threads


def test_a_store_that_does_not_answer_delays_a_sink_but_loses_nothing(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    basket = Basket()
    pipeline = failing(sinks=[basket])
    bury(store, rd, pipeline)
    asked: list[object] = []

    async def ask(question: Callable[[], T]) -> T:
        asked.append(question)
        if len(asked) == 3:
            raise StoreUnavailableError(database="x", cause="gone")
        return question()

    async def scene() -> None:
        hooks = Delivery(store, lanes_of(store, [pipeline]), clock, ask_store=ask, call=at_once)
        with pytest.raises(StoreUnavailableError):
            await hooks.deliver()
        clock.advance(HIDDEN_SECONDS)
        await hooks.deliver()

    with caplog.at_level(logging.WARNING):
        bounded(scene())
    assert len(basket.letters) == 1


@pytest.mark.parametrize(
    "sinks",
    [
        [object()],
        [Basket("")],
        [Basket("hook")],
        [Basket("a"), Basket("a")],
        [Basket("a\nb")],
        [Basket("\ud800")],
        [type("Nameless", (), {"deliver": print})()],
        [type("Mute", (), {"name": "mute"})()],
        [type("Odd", (), {"name": 3, "deliver": print})()],
    ],
)
def test_what_is_no_sink_is_refused(sinks: list[object]) -> None:
    with pytest.raises(ConfigurationError, match=r"Pipeline\(shop\)\.sinks"):
        failing(sinks=sinks)


def untold(store: SqliteStore, *known: Pipeline) -> list[str]:
    return [each.sentence for each in examine(store, known=known) if each.about == "sinks"]


def test_the_doctor_tells_of_sinks_that_fail_and_of_those_nobody_has_any_more(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    pipeline = failing(sinks=[Basket("full", refusals=9), Basket("gone")])
    bury(store, rd, pipeline)
    later = failing(sinks=[Basket("full", refusals=9)])
    assert untold(store, pipeline) == []
    assert untold(store, later) == [
        "1 notice undelivered to the sink gone, which the code of shop does not have"
    ]

    for _ in range(3):
        deliver(store, clock, later)
        clock.advance(PAUSE_MAX)
    clock.advance(3_600)
    assert untold(store) == [
        "1 notice undelivered to the sink full of shop, after 3 attempts",
        "1 notice undelivered to the sink gone of shop, due for 1.5 h and never tried",
    ]
