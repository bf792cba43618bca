# SPDX-License-Identifier: Apache-2.0
"""Outcomes that the store cannot take, however often they are sent: the job ends, or is released; the worker never spins."""

from __future__ import annotations

import logging
from itertools import pairwise

import pytest

from redrive import Context, Pipeline, Redrive, stage
from redrive.engine.worker.journal import RELEASE_SECONDS
from redrive.ops.jobs.explain import explain
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.unit.build import STEADY, attempts, bounded, jobs, letters, passing, rows, work, worker_on, working


def refuse(store: SqliteStore, table: str, when: str = "1") -> None:
    """Let a table take no row for which something holds."""
    store._db.execute(
        f"CREATE TRIGGER refused BEFORE INSERT ON {table} WHEN {when} BEGIN SELECT RAISE(ABORT, 'refused'); END"
    )


def failing(**options: object) -> Pipeline:
    def call(number: int) -> int:
        raise KeyError(number)

    return Pipeline("shop", [stage(retry=STEADY)(call)], **options)  # type: ignore[arg-type]


def test_a_job_whose_notice_never_fits_is_settled_without_it(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = failing(on_dead=lambda _event: None)
    rd.submit(pipeline, 1)
    refuse(store, "outbox")

    work(store, pipeline)

    assert jobs(store) == [("failed",)]
    assert letters(store, "state") == [("open",)]
    assert rows(store, "id", "outbox") == []
    assert "job 1: the store refuses details of its outcome" in caplog.text


def test_a_job_whose_child_never_fits_fails_and_the_rest_of_the_batch_does_not(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    other = Pipeline("other", [stage(name="rest")(lambda number: number)])  # type: ignore[misc]  # a lambda has no types to infer

    @stage
    def call(number: int, ctx: Context) -> int:
        if number == 1:
            ctx.submit(other, number)
        return number

    pipeline = Pipeline("shop", [call])
    rd.submit_many(pipeline, [0, 1, 2])
    refuse(store, "jobs", "NEW.pipeline = 'other'")

    work(store, pipeline)

    assert jobs(store) == [("complete",), ("failed",), ("complete",)]
    assert len(letters(store)) == 1


def test_a_letter_whose_texts_never_fit_is_reduced_to_safe_ones(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    pipeline = failing()
    rd.submit(pipeline, 1)
    refuse(store, "letter_facts", "NEW.stack <> ''")

    work(store, pipeline)

    assert jobs(store) == [("failed",)]
    ((stack, context, message),) = letters(store, "stack, context, message")
    assert (stack, context) == ("", b"{}")
    assert "the store" in str(message)


def test_a_decision_whose_texts_never_fit_is_reduced_to_its_reason(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    pipeline = failing()
    rd.submit(pipeline, 1)
    refuse(
        store, "attempts", "NEW.decision ->> '$.rule' IS NOT NULL OR NEW.decision ->> '$.code' IS NOT NULL"
    )

    async def scene() -> None:
        async with working(worker_on(store, pipeline)):
            await passing(clock, lambda: jobs(store) == [("failed",)])

    bounded(scene())
    assert attempts(store, "decision") == [('{"kind":"old","reason":"permanent"}',)]
    assert "Why: " in explain(store, 1).attempts[0].decided


@pytest.mark.parametrize("table", ["attempts", "dead_letters"])
def test_a_job_that_can_not_be_settled_at_all_is_released_after_a_pause_and_comes_back(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, caplog: pytest.LogCaptureFixture, table: str
) -> None:
    began_at: list[float] = []

    @stage
    def call(number: int) -> int:
        began_at.append(clock.wall())
        raise KeyError(number)

    pipeline = Pipeline("shop", [call])
    rd.submit(pipeline, 1)
    refuse(store, table)

    async def scene() -> None:
        async with working(worker_on(store, pipeline)):
            await passing(clock, lambda: len(began_at) == 3)
            store._db.execute("DROP TRIGGER refused")
            await passing(clock, lambda: jobs(store) == [("failed",)])

    with caplog.at_level(logging.ERROR):
        bounded(scene())

    gaps = [after - before for before, after in pairwise(began_at)]
    # At most: virtual time may run ahead of the worker's own look at its queue.
    assert min(gaps) >= RELEASE_SECONDS
    assert caplog.text.count("job 1: the store refuses every outcome of its attempt") >= 2
    assert attempts(store) == [("dead",)]


def test_what_waits_for_its_release_goes_back_at_once_when_the_worker_ends(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = failing()
    rd.submit(pipeline, 1)
    refuse(store, "attempts")

    async def scene() -> None:
        async with working(worker_on(store, pipeline)):
            await passing(clock, lambda: "refuses every outcome" in caplog.text)
            assert jobs(store) == [("processing",)]

    bounded(scene())
    assert jobs(store) == [("queued",)]


def test_others_are_settled_while_one_job_can_not_be(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    def call(number: int) -> int:
        return number

    pipeline = Pipeline("shop", [stage(call)])
    rd.submit_many(pipeline, range(50))
    refuse(store, "attempts", "NEW.job_id = 7")

    async def scene() -> None:
        async with working(worker_on(store, pipeline)):
            await passing(clock, lambda: jobs(store).count(("complete",)) == 49)

    bounded(scene())
    assert [row for row in jobs(store, "id, status") if row[1] != "complete"] == [(7, "queued")]
