# SPDX-License-Identifier: Apache-2.0
"""Processes: stages that asked for one, and jobs suspected of killing workers. Few tests start one, because that is slow."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Generator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from redrive import Context, Pipeline, Redrive, Retry, RetryPolicy, stage
from redrive.core.failure import SignalKind
from redrive.engine.classifier import DEFAULT
from redrive.engine.pipeline.lanes import Lane
from redrive.engine.worker import processes as module
from redrive.engine.worker.dead_letter import FailedAttempt
from redrive.engine.worker.dispatch import Dispatch
from redrive.engine.worker.job_logging import CURRENT_JOB, jobs_in_log_records, present_setup
from redrive.engine.worker.processes import LostProcessError, Processes, StageCall, StageReport, run_stage
from redrive.engine.worker.slots import WorkerParts
from redrive.errors import ConfigurationError
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.inline import InlineThreads, at_once
from tests.unit.build import attempts, bounded, jobs, letters, one_stage, turns, work, worker_on

from . import process_stages
from .process_stages import ASKING, CRUNCHING, DEADLY, EMBEDDING, SHARED

HERE = process_stages.__name__


@contextmanager
def open_processes(limit: int = 2) -> Generator[Processes]:
    made = Processes(limit)
    try:
        yield made
    finally:
        made.close()


def work_apart(store: SqliteStore, *pipelines: Pipeline, limit: int = 2) -> None:
    async def scene() -> None:
        with open_processes(limit) as processes:
            parts = WorkerParts(ask_store=at_once, threads=InlineThreads(), processes=processes)
            await worker_on(store, *pipelines, parts=parts).run(until_idle=True)

    async def limited() -> None:
        async with asyncio.timeout(60):
            await scene()

    asyncio.run(limited())


def suspect(store: SqliteStore, *, crashes: int = 0) -> None:
    store._db.execute("UPDATE jobs SET suspect_count = 2, crash_count = ?", (crashes,))


def report(fn: str, wish: object, pipeline: str = "crunching", *opening: str) -> StageReport:
    context = Context(job_id=7, pipeline=pipeline, stage=fn, attempt=1)
    resources = tuple((HERE, name) for name in opening)
    made = StageCall(HERE, fn, msgspec.json.encode(wish), context, None, resources)
    return msgspec.msgpack.decode(run_stage(msgspec.msgpack.encode(made)), type=StageReport)


def test_a_process_stage_runs_elsewhere_and_all_it_reports_counts_as_if_reported_here(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    wishes = ["work", "fail", "cancel", "give up"]
    rd.submit_many(CRUNCHING, wishes)
    work_apart(store, CRUNCHING, limit=1)

    assert jobs(store, "status, error_code")[:4] == [
        ("complete", None),
        ("failed", "IO_DENIED"),
        ("cancelled", None),
        ("failed", "NOT_FOUND"),
    ]
    assert rd.job(1).result() != os.getpid()
    assert [msgspec.json.decode(str(notes))["wish"] for (notes,) in attempts(store, "notes")] == wishes
    assert jobs(store, "pipeline, parent_id")[4:] == [("children", 1)]
    assert "crunch" in str(letters(store, "stack")[0])


def test_a_stage_that_calls_sys_exit_in_its_process_has_failed_and_the_worker_continues(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    rd.submit_many(CRUNCHING, ["exit", "work"])
    work_apart(store, CRUNCHING, limit=1)

    assert jobs(store)[:2] == [("failed",), ("complete",)]


def test_a_suspect_runs_alone_and_a_crash_of_its_process_counts_until_it_is_given_up(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    rd.submit(DEADLY, "die")
    rd.submit(DEADLY, "live")
    suspect(store)
    work_apart(store, DEADLY)

    assert jobs(store, "status, error_code") == [("failed", "WORKER_CRASH"), ("complete", None)]
    assert attempts(store, "outcome, burned, code")[:-1] in (
        [("ok", 1, None), ("crashed", 0, None)],
        [("crashed", 0, None), ("ok", 1, None)],
    )
    assert letters(store, "code") == [("WORKER_CRASH",)]
    assert jobs(store, "suspect_count, crash_count")[1] == (0, 0)


def test_a_crash_of_a_shared_process_blames_nobody_at_first(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    rd.submit(SHARED, "die")
    work_apart(store, SHARED, limit=1)

    outcomes = attempts(store, "outcome, decision ->> '$.reason'")
    assert outcomes[:2] == [("crashed", "process_lost")] * 2
    assert outcomes[2] == ("crashed", "own_process_lost")
    assert jobs(store, "status, error_code") == [("failed", "WORKER_CRASH")]


def test_a_closure_that_no_process_could_find_runs_here(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    def here(_number: int) -> int:
        return os.getpid()

    pipeline = one_stage(here, process=True)
    job = rd.submit(pipeline, 1)
    suspect(store)
    work_apart(store, pipeline)

    assert job.result() == os.getpid()


def test_a_suspect_that_no_process_could_find_runs_here(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    pipeline = one_stage(lambda _number: os.getpid(), name="here")
    job = rd.submit(pipeline, 1)
    suspect(store)
    work_apart(store, pipeline)

    assert job.result() == os.getpid()


def test_only_a_name_of_a_module_can_be_found_and_so_must_what_opens_its_resources() -> None:
    @stage
    def closure(wish: str) -> str:
        return wish

    async def scene() -> list[bool]:
        with open_processes() as processes:
            lanes = [
                (ASKING, process_stages.ask),
                (
                    Pipeline("elsewhere", [process_stages.ask], resources=[process_stages.open_api]),
                    process_stages.ask,
                ),
                (
                    Pipeline("ready", [process_stages.ask], resources=[process_stages.Api("here")]),
                    process_stages.ask,
                ),
                (
                    Pipeline("lambda", [process_stages.ask], resources=[lambda: nullcontext(1)]),
                    process_stages.ask,
                ),
                (Pipeline("shop", [closure]), closure),
                (DEADLY, process_stages.die),
            ]
            return [processes.can_run(Lane(1, pipeline, declared, None)) for pipeline, declared in lanes]  # type: ignore[arg-type]

    assert bounded(scene()) == [True, True, False, False, False, True]


def test_in_the_other_process_resources_are_opened_for_the_call() -> None:
    answer = report("ask", "hello", "asking", "open_api", "open_disk")

    assert msgspec.json.decode(answer.output or b"") == "hello apart True Disk"


def test_in_the_other_process_a_sync_stage_returns_or_ends_the_program_like_any_other() -> None:
    assert report("keep", "x").output == b'"x"'
    answer = report("crunch", "exit")
    assert answer.failed is not None
    assert "sys.exit(3)" in answer.failed.failure.message


def test_a_process_looks_where_its_worker_does_leaves_interrupts_to_it_and_ends_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Played in this process, with everything that would end it taken away."""
    ended, ignored = threading.Event(), []
    parent = SimpleNamespace(join=lambda: None)
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: parent)
    monkeypatch.setattr(os, "_exit", lambda _code: ended.set())
    monkeypatch.setattr(signal, "signal", lambda number, _how: ignored.append(number))
    monkeypatch.setattr(sys, "path", list(sys.path))

    logs: list[object] = []
    monkeypatch.setattr(module, "log_as", logs.append)

    module._initialise([*sys.path, "/somewhere/else"], present_setup())

    assert ended.wait(10)
    assert logs == [present_setup()]
    assert sys.path[-1] == "/somewhere/else"
    assert ignored == [signal.SIGINT, signal.SIGTERM]


def test_in_the_other_process_log_records_name_their_job(caplog: pytest.LogCaptureFixture) -> None:
    with jobs_in_log_records():
        report("crunch", "log")
        report("crunch", "fail")

    (record,) = (each for each in caplog.records if each.message == "wish log")
    assert vars(record).items() >= {"job_id": 7, "stage": "crunch", "attempt": 1}.items()
    assert CURRENT_JOB.get() is None


def test_in_the_other_process_a_signal_is_reported_as_a_failure() -> None:
    answer = report("ask_again", "x")

    assert answer.failed is not None
    assert (answer.failed.failure.signal, answer.failed.failure.retry_after) == (SignalKind.RETRY, 1.0)


def test_in_the_other_process_an_input_that_does_not_fit_is_a_failure() -> None:
    answer = report("crunch", 7)

    assert answer.failed is not None
    assert "crunch (input)" in answer.failed.failure.message


def test_in_the_other_process_an_async_stage_is_cancelled_at_its_timeout() -> None:
    answer = report("wait_long", "x")

    assert answer.failed is not None
    assert answer.failed.failure.code == "TIMEOUT"


def test_in_the_other_process_a_stage_knows_its_deadline_too(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    """Told by what goes over, so that no process has to be started."""
    heard: list[bytes] = []

    class Listening(Fake):
        async def run(self, dispatch: Dispatch, *, is_alone: bool) -> bytes:
            heard.append(msgspec.json.encode(msgspec.to_builtins(module._call_for(dispatch))))
            return b"null"

    limited = Pipeline("crunching", [stage(process=True, timeout=60)(process_stages.keep.fn)])
    rd.submit(limited, "x")
    work(store, limited, parts=WorkerParts(ask_store=at_once, threads=InlineThreads(), processes=Listening()))

    assert "deadline" in str(heard)


class Fake:
    """Processes that are none."""

    size = 4

    def can_run(self, _lane: Lane) -> bool:
        return True

    async def run(self, dispatch: Dispatch, *, is_alone: bool) -> object:
        raise NotImplementedError


def test_a_late_error_of_a_process_stage_is_a_timeout_as_on_a_thread(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    class Late(Fake):
        async def run(self, dispatch: Dispatch, *, is_alone: bool) -> FailedAttempt:
            clock.advance(100)
            return FailedAttempt(DEFAULT.classify(PermissionError(13, "denied")), stack="Traceback ...")

    pipeline = one_stage(lambda number: number, name="crunch", process=True, timeout=60, retry=RetryPolicy(1))
    rd.submit(pipeline, 1)
    work(store, pipeline, parts=WorkerParts(ask_store=at_once, threads=InlineThreads(), processes=Late()))

    assert jobs(store, "error_code") == [("TIMEOUT",)]


def test_a_job_that_runs_in_a_process_can_be_cancelled_and_dropped(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    async def scene() -> None:
        going = asyncio.Event()

        class Endless(Fake):
            async def run(self, dispatch: Dispatch, *, is_alone: bool) -> bytes:
                going.set()
                await asyncio.Event().wait()
                return b"null"

        pipeline = one_stage(lambda number: number, name="crunch", process=True)
        parts = WorkerParts(ask_store=at_once, threads=InlineThreads(), processes=Endless())
        rd.submit(pipeline, 1)
        worker = worker_on(store, pipeline, parts=parts)
        task = asyncio.ensure_future(worker.run(until_idle=True))
        await going.wait()
        going.clear()
        worker.stop()
        worker.stop()
        await task
        assert jobs(store) == [("queued",)]

        worker = worker_on(store, pipeline, parts=parts)
        task = asyncio.ensure_future(worker.run(until_idle=True))
        await going.wait()
        rd.jobs.cancel(1)
        worker.slots.cancel([1])  # type: ignore[list-item]
        await turns()
        assert jobs(store) == [("processing",)]
        worker.stop()
        worker.stop()
        await task

    bounded(scene())
    assert jobs(store) == [("cancelled",)]


@pytest.mark.parametrize(("crash_max", "deaths"), [(1, 1), (3, 3)])
def test_how_often_a_suspect_may_kill_its_process_is_up_to_the_pipeline(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, crash_max: int, deaths: int
) -> None:
    class Deadly(Fake):
        async def run(self, dispatch: Dispatch, *, is_alone: bool) -> bytes:
            raise LostProcessError(139)

    pipeline = Pipeline("shop", [stage(name="crunch")(lambda number: number)], crash_max=crash_max)  # type: ignore[misc]  # a lambda has no types to infer
    rd.submit(pipeline, 1)
    suspect(store)
    work(store, pipeline, parts=WorkerParts(ask_store=at_once, threads=InlineThreads(), processes=Deadly()))

    assert attempts(store) == [("crashed",)] * (deaths - 1) + [("dead",)]
    assert "exit code 139" in str(letters(store, "message"))


def test_the_crash_of_a_shared_process_never_gives_a_job_up(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    """However few crashes of its own process a job may survive."""
    alone: list[bool] = []

    class Deadly(Fake):
        async def run(self, dispatch: Dispatch, *, is_alone: bool) -> bytes:
            alone.append(is_alone)
            raise LostProcessError(139)

    crunch = stage(name="crunch", process=True)(lambda number: number)
    pipeline = Pipeline("shop", [crunch], crash_max=1)
    rd.submit(pipeline, 1)
    work(store, pipeline, parts=WorkerParts(ask_store=at_once, threads=InlineThreads(), processes=Deadly()))

    assert alone == [False, False, True]
    assert attempts(store) == [("crashed",), ("crashed",), ("dead",)]


def test_the_pool_that_follows_a_broken_one_is_kept_whoever_hears_of_the_breakage_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene() -> None:
        with open_processes() as made, ProcessPoolExecutor(1) as next_pool:

            async def broken(*_: object) -> bytes:
                made._shared = next_pool
                raise BrokenProcessPool

            monkeypatch.setattr(made, "_run", broken)
            with pytest.raises(LostProcessError):
                await made.run(cast("Dispatch", None), is_alone=False)
            assert made._shared is next_pool

    bounded(scene())


def test_a_late_wish_of_a_process_stage_is_still_its_wish(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    class Late(Fake):
        async def run(self, dispatch: Dispatch, *, is_alone: bool) -> bytes | FailedAttempt:
            clock.advance(100)
            return b"1" if dispatch.job.attempt > 1 else FailedAttempt(DEFAULT.classify(Retry(5)))

    pipeline = one_stage(lambda number: number, name="crunch", process=True, timeout=60)
    rd.submit(pipeline, 1)
    work(store, pipeline, parts=WorkerParts(ask_store=at_once, threads=InlineThreads(), processes=Late()))

    reasons = attempts(store, "outcome, decision ->> '$.reason'")
    assert reasons == [("retry", "asked"), ("ok", "overran")]


def test_processes_are_for_sync_functions_without_resources() -> None:
    async def wait(number: int) -> int:
        return number

    def ask(number: int, api: process_stages.Api, ctx: Context) -> int:
        return number

    for function in (wait, ask):
        with pytest.raises(ConfigurationError, match="process"):
            stage(process=True)(function)


def test_a_suspect_of_a_batch_stage_runs_alone_in_a_process_as_a_batch_of_one(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    rd.submit_many(EMBEDDING, ["work", "fail", "finish"])
    suspect(store)
    work_apart(store, EMBEDDING)

    assert jobs(store) == [("complete",), ("failed",), ("complete",)]
    notes = [str(row[0]) for row in attempts(store, "notes")]
    assert all(" of 1 in " in note and str(os.getpid()) not in note for note in notes)


def test_only_the_job_of_a_batch_that_kills_its_process_is_given_up(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    rd.submit_many(EMBEDDING, ["work", "die", "work"])
    suspect(store, crashes=1)
    work_apart(store, EMBEDDING)

    assert jobs(store) == [("complete",), ("failed",), ("complete",)]
    assert letters(store) == [("WORKER_CRASH",)]
