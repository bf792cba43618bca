# SPDX-License-Identifier: Apache-2.0
"""What goes wrong around hooks: errors that cannot be shown, and those that nobody expected, end no telling."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import pytest

from redrive import Event, Redrive
from redrive.engine.delivery import outbox as module
from redrive.engine.delivery.messages import event_of
from redrive.engine.delivery.outbox import HIDDEN_SECONDS, Delivery
from redrive.engine.pipeline.lanes import lanes_of
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.inline import T, at_once
from tests.unit.build import beside, bounded, rows, until, work

from .test_hooks import deliver, failing


class UnshowableError(Exception):
    """An error as people write them: it shows itself with something that it never got."""

    def __repr__(self) -> str:
        return f"UnshowableError({self.status})"  # type: ignore[attr-defined]

    __str__ = __repr__


def test_a_hook_whose_error_cannot_be_shown_is_told_of_what_comes_after_it(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[int] = []

    def hook(event: Event) -> None:
        heard.append(event.job_id)
        if event.job_id == 1:
            raise UnshowableError

    pipeline = failing(on_dead=hook)
    rd.submit_many(pipeline, [1, 2])
    work(store, pipeline)

    assert deliver(store, clock, pipeline) == 2
    assert heard == [1, 2]
    assert rows(store, "job_id, tries", "outbox") == [(1, 1)]
    assert "hook on_dead of job 1 raised UnshowableError" in caplog.text


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_nothing_that_goes_wrong_between_the_store_and_a_hook_ends_the_telling(
    store: SqliteStore,
    rd: Redrive,
    clock: VirtualClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    nth: int,
) -> None:
    """Nobody would be told any more until the worker is started again, and nobody would know."""
    heard: list[Event] = []
    pipeline = failing(on_dead=heard.append)
    rd.submit(pipeline, 1)
    work(store, pipeline)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.001)
    asked: list[object] = []

    async def ask(question: Callable[[], T]) -> T:
        asked.append(question)
        if len(asked) == nth:
            raise LookupError("password=hunter2hunter2")
        return question()

    async def scene() -> None:
        hooks = Delivery(store, lanes_of(store, [pipeline]), clock, ask_store=ask, call=at_once)
        async with beside(hooks.run()) as task:
            await until(lambda: len(asked) > nth)
            clock.advance(2 * HIDDEN_SECONDS)
            await until(lambda: not rows(store, "id", "outbox"))
            assert not task.done()

    bounded(scene())
    assert 1 <= len(heard) <= 2
    assert "LookupError" in caplog.text
    assert "hunter2" not in caplog.text


def test_what_goes_wrong_in_the_last_telling_does_not_change_how_the_worker_ended(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = failing(on_dead=lambda _event: None)
    rd.submit(pipeline, 1)
    work(store, pipeline)

    async def ask(_question: object) -> NoReturn:
        raise LookupError

    async def scene() -> None:
        await Delivery(store, lanes_of(store, [pipeline]), clock, ask_store=ask, call=at_once).flush()

    bounded(scene())
    assert "LookupError" in caplog.text


def test_a_notice_that_cannot_be_told_holds_up_nobody_and_nobody_hears_twice(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[int] = []
    pipeline = failing(on_dead=lambda event: heard.append(event.job_id))
    rd.submit_many(pipeline, [1, 2, 3])
    work(store, pipeline)

    def unreadable(*args: object) -> Event | None:
        event = event_of(*args)  # type: ignore[arg-type]
        if event is not None and event.job_id == 2:
            raise LookupError
        return event

    monkeypatch.setattr(module, "event_of", unreadable)
    for _ in range(3):
        deliver(store, clock, pipeline)
        clock.advance(2 * HIDDEN_SECONDS)

    assert heard == [1, 3]
    assert rows(store, "job_id, tries", "outbox") == [(2, 3)]
