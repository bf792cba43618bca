# SPDX-License-Identifier: Apache-2.0
"""The halves of a call that failed as a whole: when there are any, what they begin with, and what becomes of each."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from redrive import Batch, Breaker, Context, Limit, Redrive
from redrive.engine.classifier import Classifier
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.unit.build import (
    ONCE,
    STEADY,
    attempts,
    bounded,
    jobs,
    letters,
    one_stage,
    until,
    work,
    worker_on,
    working,
)

both = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


@both
def test_a_half_of_a_call_begins_without_what_the_failed_call_reported(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, is_async: bool
) -> None:
    children = one_stage(lambda number: number, "children", name="keep")
    begun: list[tuple[int, dict[str, str], dict[str, float]]] = []

    def call(numbers: list[int], contexts: list[Context]) -> list[int]:
        for number, ctx in zip(numbers, contexts, strict=True):
            begun.append((len(ctx.children), dict(ctx.notes), dict(ctx.usage)))
            ctx.note(f"in a call of {len(numbers)}", number)
            ctx.used("tokens", 10)
            ctx.submit(children, number)
        if 3 in numbers:
            raise ValueError("one of them is bad")
        return numbers

    async def acall(numbers: list[int], contexts: list[Context]) -> list[int]:
        return call(numbers, contexts)

    pipeline = one_stage(
        acall if is_async else call,
        batch=Batch(size=4, on_error="split"),
        limits=Limit("tokens", rate=1_000),
        retry=ONCE,
    )
    rd.submit_many(pipeline, range(4))
    work(store, pipeline)

    assert begun == [(0, {}, {})] * (4 + 2 + 2 + 1 + 1)
    assert store.read("SELECT payload FROM jobs WHERE pipeline = 'children' ORDER BY id") == [
        (b"0",), (b"1",), (b"2",),
    ]  # fmt: skip
    assert sorted(attempts(store, "notes")) == [
        ('{"in a call of 1":"2"}',), ('{"in a call of 1":"3"}',),
        ('{"in a call of 2":"0"}',), ('{"in a call of 2":"1"}',),
    ]  # fmt: skip


def test_a_call_whose_jobs_are_held_is_not_halved(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    """Their only attempt failed, but the breaker opened: nobody is given up."""
    calls: list[list[int]] = []

    def call(numbers: list[int]) -> list[int]:
        calls.append(numbers)
        if len(calls) == 1:
            raise ConnectionRefusedError(111, "refused")
        return numbers

    breaker = Breaker("api", consecutive=1, open_for=60)
    pipeline = one_stage(call, batch=Batch(size=4, on_error="split"), breaker=breaker, retry=ONCE)
    rd.submit_many(pipeline, range(4))
    work(store, pipeline)

    assert sorted(attempts(store)) == [("hold",)] * 4 + [("ok",)] * 4


def test_a_call_is_halved_although_only_some_of_its_jobs_would_be_given_up(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    calls: list[int] = []

    def too_many(numbers: list[int]) -> list[int]:
        calls.append(len(numbers))
        if len(numbers) > 1:
            raise ConnectionResetError(104, "reset")
        return numbers

    pipeline = one_stage(too_many, batch=Batch(size=2, on_error="split"), retry=STEADY)
    rd.submit_many(pipeline, range(2))
    store._db.execute("UPDATE jobs SET attempt = 3 WHERE id = 1")
    work(store, pipeline)

    assert calls == [2, 1, 1]
    assert jobs(store, "status, attempt") == [("complete", 3), ("complete", 1)]


@both
def test_an_input_that_does_not_fit_is_in_no_half_and_fails_alone(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, is_async: bool
) -> None:
    calls: list[list[int]] = []

    def picky(numbers: list[int]) -> list[int]:
        calls.append(numbers)
        if 1 in numbers:
            raise ValueError("one of them is bad")
        return numbers

    async def apicky(numbers: list[int]) -> list[int]:
        return picky(numbers)

    pipeline = one_stage(apicky if is_async else picky, batch=Batch(size=4, on_error="split"))
    rd.submit_many(pipeline, range(4))
    store._db.execute("UPDATE jobs SET payload = CAST('\"text\"' AS BLOB) WHERE id = 1")
    work(store, pipeline)

    assert calls == [[1, 2, 3], [1, 2], [1], [2], [3]]
    assert jobs(store) == [("failed",), ("failed",), ("complete",), ("complete",)]
    assert sorted(letters(store)) == [("BUG_CODE",), ("SCHEMA_INVALID",)]


class OwnError(Exception):
    """An error that only the user's rule knows."""


class Broken(Classifier):
    """Has a rule that breaks."""

    def classify(self, exc: BaseException, **options: Any) -> Any:
        if isinstance(exc, OwnError):
            raise LookupError("a broken rule")
        return super().classify(exc, **options)


@both
def test_a_half_whose_failures_all_break_a_rule_takes_the_other_half_nothing(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, is_async: bool
) -> None:
    def picky(numbers: list[int]) -> list[Any]:
        if len(numbers) == 4:
            raise ValueError("one of them is bad")
        return [OwnError() if number < 2 else number for number in numbers]

    async def apicky(numbers: list[int]) -> list[Any]:
        return picky(numbers)

    pipeline = one_stage(apicky if is_async else picky, batch=Batch(size=4, on_error="split"))
    rd.submit_many(pipeline, range(4))
    work(store, pipeline, classifier=Broken())

    assert jobs(store) == [("failed",), ("failed",), ("complete",), ("complete",)]


def test_a_half_that_waits_while_the_other_one_is_cut_off_is_cut_off_with_it(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    calls: list[list[int]] = []

    async def endless(numbers: list[int]) -> list[int]:
        calls.append(numbers)
        if len(numbers) == 2:
            await asyncio.Event().wait()
        raise ValueError("one of them is bad")

    pipeline = one_stage(endless, batch=Batch(size=4, on_error="split"))
    rd.submit_many(pipeline, range(4))

    async def scene() -> None:
        async with working(worker_on(store, pipeline)):
            await until(lambda: len(calls) == 2)

    bounded(scene())
    assert calls == [[0, 1, 2, 3], [0, 1]]
    assert attempts(store, "outcome, burned") == [("crashed", 0)] * 4
    assert jobs(store, "status, attempt") == [("queued", 1)] * 4


def test_the_attempt_of_a_half_ends_with_its_own_call(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    def slow(numbers: list[int]) -> list[int]:
        clock.advance(6)
        if len(numbers) > 1:
            raise ValueError("too many at once")
        return numbers

    pipeline = one_stage(slow, batch=Batch(size=2, on_error="split"))
    rd.submit_many(pipeline, range(2))
    work(store, pipeline)

    assert attempts(store, "outcome, ended_at - started_at") == [("ok", 6.0)] * 2
