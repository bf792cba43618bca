# SPDX-License-Identifier: Apache-2.0
"""Stages that run in a transaction of the database: what they write is committed with the settlement of their job, or not at all."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg
import pytest

from redrive import (
    Backoff,
    Batch,
    Breaker,
    Cancel,
    ConfigurationError,
    Context,
    Fail,
    Pipeline,
    Redrive,
    RetryPolicy,
    Skip,
    connect,
    stage,
)
from redrive.engine.worker import slots
from redrive.store.postgres import stage_transactions
from redrive.store.postgres.store import PostgresStore
from redrive.testing import context
from tests.unit.build import bounded, until, worker_on, working

Effects = psycopg.Connection[tuple[Any, ...]]
AGAIN = RetryPolicy(2, backoff=Backoff.fixed(0.001), retry_on="all")


def rows(effects: Effects) -> list[int]:
    return [row[0] for row in effects.execute("SELECT number FROM effects ORDER BY 1").fetchall()]


def table(effects: Effects) -> str:
    row = effects.execute("SELECT current_schema()").fetchone()
    assert row is not None
    return f"{row[0]}.effects"


def flows(work: Callable[[Any, str, int], object], effects: Effects) -> list[Pipeline]:
    """Return a pipeline with a sync, and one with an async stage; `work` gets the context, the table and the number."""
    name = table(effects)

    @stage(transactional=True, retry=AGAIN, name="write")
    def write(number: int, ctx: Context) -> int:
        ctx.connection.execute(f"INSERT INTO {name} VALUES (%s)", (number,))
        work(ctx, name, number)
        return number + 1

    @stage(transactional=True, retry=AGAIN, name="write")
    async def write_async(number: int, ctx: Context) -> int:
        await ctx.connection.execute(f"INSERT INTO {name} VALUES (%s)", (number,))
        work(ctx, name, number)
        return number + 1

    @stage
    def double(number: int) -> int:
        return 2 * number

    return [Pipeline("sync", [write, double]), Pipeline("async", [write_async, double])]


def nothing(_ctx: Any, _name: str, _number: int) -> None:
    pass


@pytest.mark.untraced
def test_writes_are_committed_with_the_checkpoint(rd: Redrive, effects: Effects) -> None:
    for flow in flows(nothing, effects):
        effects.execute("DELETE FROM effects")
        jobs = [rd.submit(flow, number) for number in range(20)]

        rd.work([flow], until_idle=True, concurrency=4)

        assert [job.result(0) for job in jobs] == [2 * (number + 1) for number in range(20)]
        assert rows(effects) == list(range(20))
        assert [each.outcome for each in jobs[0].attempts()] == ["ok", "ok"]


@pytest.mark.untraced
@pytest.mark.parametrize("raised", [ValueError("no"), Fail("BROKEN", "no"), Cancel("no")], ids=repr)
def test_a_stage_that_fails_leaves_nothing(rd: Redrive, effects: Effects, raised: Exception) -> None:
    def fail(_ctx: Any, _name: str, _number: int) -> None:
        raise raised

    for flow in flows(fail, effects):
        job = rd.submit(flow, 1)

        rd.work([flow], until_idle=True)

        assert job.status in {"failed", "cancelled"}
        assert rows(effects) == []
        assert len(job.attempts()) == (2 if isinstance(raised, ValueError) else 1)


def test_a_stage_that_skips_keeps_what_it_wrote(rd: Redrive, effects: Effects) -> None:
    def skip(_ctx: Any, _name: str, _number: int) -> None:
        raise Skip("enough")

    for number, flow in enumerate(flows(skip, effects)):
        job = rd.submit(flow, number)
        rd.work([flow], until_idle=True)

        assert job.status == "skipped"
    assert rows(effects) == [0, 1]


def test_children_exist_with_the_writes(rd: Redrive, effects: Effects) -> None:
    @stage
    def take(number: int) -> int:
        return number

    others = Pipeline("others", [take])
    children = []

    def submit(ctx: Any, _name: str, number: int) -> None:
        children.append(ctx.submit(others, number))
        if ctx.attempt == 1:
            raise ValueError

    for flow in flows(submit, effects):
        job = rd.submit(flow, 7)
        rd.work([flow], until_idle=True)

        assert [child.id for child in job.children()] == [children[-1].id]
        assert children[-2].id is None
    assert rows(effects) == [7, 7]


def test_a_constraint_that_fails_at_the_commit_is_a_failure_of_the_stage(
    rd: Redrive, effects: Effects
) -> None:
    name = table(effects)

    @stage(transactional=True, retry=1)
    def write(number: int, ctx: Context) -> int:
        ctx.connection.execute(f"INSERT INTO {name} VALUES (%s, 1), (%s, 1)", (number, number))
        return number

    flow = Pipeline("late", [write])
    job = rd.submit(flow, 1)

    rd.work([flow], until_idle=True)

    assert (job.status, job.facts.error_code) == ("failed", "CONFLICT")
    assert rows(effects) == []


def test_a_stage_that_hides_a_failed_statement_has_failed(rd: Redrive, effects: Effects) -> None:
    name = table(effects)

    @stage(transactional=True, retry=1)
    def write(number: int, ctx: Context) -> int:
        ctx.connection.execute(f"INSERT INTO {name} VALUES (%s)", (number,))
        with pytest.raises(psycopg.errors.DivisionByZero):
            ctx.connection.execute("SELECT 1 / 0")
        return number

    flow = Pipeline("hidden", [write])
    job = rd.submit(flow, 1)

    rd.work([flow], until_idle=True)

    assert job.status == "failed"
    assert "transaction is aborted" in str(job.facts.error_message)
    assert rows(effects) == []


def test_the_transaction_is_not_the_stages_to_end(rd: Redrive, effects: Effects) -> None:
    name = table(effects)
    refused: list[str] = []

    @stage(transactional=True, retry=1)
    def write(number: int, ctx: Context) -> int:
        for end in (ctx.connection.commit, ctx.connection.rollback, ctx.connection.close):
            with pytest.raises(psycopg.ProgrammingError, match="is left to redrive"):
                end()
            refused.append(end.__name__)
        with ctx.connection.transaction(force_rollback=True):
            ctx.connection.execute(f"INSERT INTO {name} VALUES (0)")
        ctx.connection.execute(f"INSERT INTO {name} VALUES (%s)", (number,))
        return number

    @stage(transactional=True, retry=1)
    async def write_async(number: int, ctx: Context) -> int:
        for end in (ctx.connection.commit, ctx.connection.rollback, ctx.connection.close):
            with pytest.raises(psycopg.ProgrammingError, match="is left to redrive"):
                await end()
        return number

    @stage(transactional=True, retry=1)
    def commit(number: int, ctx: Context) -> int:
        ctx.connection.execute("COMMIT")
        ctx.connection.execute(f"INSERT INTO {name} VALUES (%s)", (number,))
        return number

    flow = Pipeline("ending", [write, write_async, commit])
    job = rd.submit(flow, 1)
    rd.work([flow], until_idle=True)

    assert refused == ["commit", "rollback", "close"]
    assert "has ended the transaction of ctx.connection itself" in str(job.facts.error_message)
    assert rows(effects) == [1]


def test_a_session_is_clean_for_the_next_stage(rd: Redrive, effects: Effects) -> None:
    seen: list[tuple[str, bool, int]] = []
    kept: list[Any] = []
    schema = table(effects).partition(".")[0]

    @stage(transactional=True, concurrency=1)
    def write(number: int, ctx: Context) -> int:
        row = ctx.connection.execute(
            "SELECT current_setting('search_path'), true, pg_backend_pid(), to_regclass('pg_temp.mine')"
        ).fetchone()
        assert row[3] is None
        seen.append(row[:3])
        ctx.connection.execute(f"SET search_path TO {schema}; CREATE TEMPORARY TABLE mine (id bigint)")
        kept.append(ctx.connection)
        return number

    flow = Pipeline("clean", [write])
    rd.submit_many(flow, range(3))
    rd.work([flow], until_idle=True, concurrency=1)

    assert len(set(seen)) == 1
    assert seen[0][:2] == ('"$user", public', True)
    with pytest.raises(psycopg.OperationalError, match="closed"):
        kept[0].execute("SELECT 1")


@pytest.mark.untraced
@pytest.mark.parametrize("kind", [0, 1], ids=["sync", "async"])
def test_a_lease_that_was_lost_rolls_back_what_the_stage_wrote(
    rd: Redrive, url: str, effects: Effects, kind: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Another worker has done the job meanwhile: its effect is the only one."""
    written, may_return = threading.Event(), threading.Event()
    attempts: list[int] = []

    def wait_at_first(_ctx: Any, _name: str, _number: int) -> None:
        attempts.append(1)
        if len(attempts) == 1:
            written.set()
            assert may_return.wait(60)

    flow = flows(wait_at_first, effects)[kind]
    job = rd.submit(flow, 7)
    stop = threading.Event()
    slow = threading.Thread(target=_work, args=(url, flow, stop))
    slow.start()
    try:
        assert written.wait(60)
        store = PostgresStore(url)
        effects.execute(f"UPDATE {store.address.schema}.workers SET expires_at = 0")
        assert store.reap(0.0) == 1
        store.close()
        rd.work([flow], until_idle=True)
        assert job.result(0) == 16
    finally:
        may_return.set()
        stop.set()
        slow.join()

    assert rows(effects) == [7]
    assert len(attempts) == 2
    assert [each.outcome for each in job.attempts()] == ["crashed", "ok", "ok"]
    # Its worker learns it from the end of the stage, or before that from the answer to its next claim.
    learned = ("its lease was lost, what its stage wrote is rolled back", "was declared dead")
    assert any(words in caplog.text for words in learned)


def _work(url: str, flow: Pipeline, stop: threading.Event) -> None:
    with connect(url) as rd:
        rd.work([flow], stop=stop, lease=300)


def test_a_commit_without_an_answer_is_not_repeated(
    rd: Redrive, effects: Effects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fence decides: what was committed counts, and the failure that is settled in its place does not."""
    lost: list[bool] = []
    settle = stage_transactions.ServerStageTransaction._settle

    def committed_and_lost(self: Any, worker: str, one: Any) -> bool:
        is_ours = settle(self, worker, one)
        if not lost:
            lost.append(is_ours)
            raise psycopg.OperationalError("the connection is lost")
        return is_ours

    monkeypatch.setattr(stage_transactions.ServerStageTransaction, "_settle", committed_and_lost)
    flow = flows(nothing, effects)[0]
    job = rd.submit(flow, 7)

    rd.work([flow], until_idle=True)

    assert (lost, job.result(0), rows(effects)) == ([True], 16, [7])
    assert [each.outcome for each in job.attempts()] == ["ok", "ok"]


def test_a_connection_that_is_lost_while_the_stage_runs_is_retried(rd: Redrive, effects: Effects) -> None:
    def die(ctx: Any, _name: str, _number: int) -> None:
        if ctx.attempt == 1:
            effects.execute("SELECT pg_terminate_backend(%s)", (ctx.connection.info.backend_pid,))

    for flow in flows(die, effects):
        effects.execute("DELETE FROM effects")
        job = rd.submit(flow, 7)
        rd.work([flow], until_idle=True)

        assert job.result(0) == 16
        assert rows(effects) == [7]


def test_a_job_that_is_cancelled_leaves_nothing(rd: Redrive, url: str, effects: Effects) -> None:
    written = threading.Event()
    name = table(effects)

    @stage(transactional=True)
    async def write(number: int, ctx: Context) -> int:
        await ctx.connection.execute(f"INSERT INTO {name} VALUES (%s)", (number,))
        written.set()
        await asyncio.Event().wait()
        return number

    flow, stop = Pipeline("endless", [write]), threading.Event()
    job = rd.submit(flow, 1)

    def work() -> None:
        with connect(url) as other:
            other.work([flow], stop=stop, lease=0.3)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert written.wait(60)
        job.cancel()
        assert job.wait(60) == "cancelled"
    finally:
        stop.set()
        thread.join()
    assert rows(effects) == []


def test_what_runs_when_everything_is_given_up_is_rolled_back(
    url: str, effects: Effects, rd: Redrive
) -> None:
    written, may_return = threading.Event(), threading.Event()

    def wait(_ctx: Any, _name: str, _number: int) -> None:
        written.set()
        assert may_return.wait(60)

    flow = flows(wait, effects)[0]
    job = rd.submit(flow, 1)

    async def scene() -> None:
        async with connect(url) as awaited:
            working = asyncio.create_task(awaited.work([flow]))
            assert await asyncio.to_thread(written.wait, 60)
            working.cancel()
            with pytest.raises(asyncio.CancelledError):
                await working
            may_return.set()

    asyncio.run(scene())

    assert (job.status, rows(effects)) == ("queued", [])


def test_a_run_that_was_left_behind_frees_its_slot_though_its_lease_was_lost(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker was declared dead, and runs the job once more under another name."""
    monkeypatch.setattr(slots, "GRACE_SECONDS", 0.01)
    gates: list[asyncio.Event] = []

    async def wait(number: int, ctx: Context) -> int:
        gates.append(asyncio.Event())
        gate, is_first = gates[-1], len(gates) == 1
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                if not is_first:
                    raise
        return number

    async def scene() -> None:
        worker = worker_on(store, pipeline, concurrency=2)
        async with working(worker):
            await until(lambda: gates)
            store.reap(time.time() + 1_000)
            worker.declare_dead(worker.name)
            await until(lambda: len(gates) == 2)
            gates[0].set()
            await until(lambda: worker.slots.room(0) == 1)
            gates[1].set()
            await until(lambda: worker.slots.room(0) == 2)
        assert job.result(0) == 7

    pipeline = Pipeline("shop", [stage(transactional=True)(wait)])
    with closing(PostgresStore(url, clock="caller")) as store:
        job = Redrive(store).submit(pipeline, 7)
        bounded(scene())


def test_behind_a_breaker_it_is_reported_and_committed(rd: Redrive, effects: Effects) -> None:
    name = table(effects)

    @stage(transactional=True, breaker=Breaker("shop", consecutive=5))
    def write(number: int, ctx: Context) -> int:
        ctx.connection.execute(f"INSERT INTO {name} VALUES (%s)", (number,))
        return number

    flow = Pipeline("guarded", [write])
    job = rd.submit(flow, 3)
    rd.work([flow], until_idle=True)

    assert (job.result(0), rows(effects)) == (3, [3])


def test_options_that_do_not_go_with_it_are_refused() -> None:
    def with_context(number: int, ctx: Context) -> int:
        return number

    def without(number: int) -> int:
        return number

    def many(numbers: list[int], ctx: list[Context]) -> list[int]:
        return numbers

    for made in (
        lambda: stage(transactional=True)(without),
        lambda: stage(transactional=True, process=True)(with_context),
        lambda: stage(transactional=True, batch=Batch(size=2))(many),
        lambda: stage(transactional=True, idempotent=True, timeout=1, on_overrun="abandon")(with_context),
    ):
        with pytest.raises(ConfigurationError, match="transactional is for a stage with a Context"):
            made()


def test_on_a_file_it_is_refused_with_the_reason(tmp_path: Any) -> None:
    @stage(transactional=True)
    def write(number: int, ctx: Context) -> int:
        return number

    with (
        connect(tmp_path / "jobs.db") as rd,
        pytest.raises(ConfigurationError, match=r"needs a database on a PostgreSQL server: in a file"),
    ):
        rd.work([Pipeline("files", [write])], until_idle=True)


def test_a_test_gives_the_stage_a_connection_of_its_own(effects: Effects) -> None:
    @stage(transactional=True)
    def write(number: int, ctx: Context) -> int:
        ctx.connection.execute("INSERT INTO effects VALUES (%s)", (number,))
        return number

    assert write(5, context(connection=effects)) == 5

    assert rows(effects) == [5]
    with pytest.raises(ConfigurationError, match="is for transactional stages"):
        write(5, context())
