# SPDX-License-Identifier: Apache-2.0
"""The halves of a call that failed as a whole: what they begin with."""

from __future__ import annotations

import pytest

from redrive import Batch, Breaker, Context, Limit, Redrive
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.unit.build import ONCE, attempts, one_stage, work


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
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
