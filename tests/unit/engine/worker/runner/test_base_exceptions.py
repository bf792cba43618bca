# SPDX-License-Identifier: Apache-2.0
"""What is no ordinary exception, raised by a stage or while its outcome is settled: a failure of that attempt, and nobody else's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from redrive import Breaker, Context, Redrive
from redrive.engine.pipeline.codec import storable
from redrive.engine.worker import dead_letter, progress
from redrive.engine.worker.settlements import UNREADABLE
from redrive.engine.worker.threads import StageThreads
from redrive.store.records import ClaimedJob
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.unit.build import (
    ONCE,
    STUCK_SECONDS,
    attempts,
    bounded,
    jobs,
    leases_of,
    letters,
    one_stage,
    threaded_parts,
    until,
    work,
    worker_on,
    working,
)

pytestmark = pytest.mark.usefixtures("clock")


class Panic(BaseException):
    """What only a handler for everything catches."""


def unspeakable(raised: type[BaseException]) -> Exception:
    """Return an exception whose text cannot be made."""

    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise raised

    return Unspeakable()


@pytest.mark.parametrize("raised", [ValueError, Panic, KeyboardInterrupt])
def test_what_a_stage_raised_is_a_failure_although_nobody_can_look_at_it(raised: type[BaseException]) -> None:
    class Untouchable(BaseException):
        @property  # type: ignore[misc]
        def __class__(self) -> type:
            raise raised

    ending = Untouchable()
    failure = dead_letter.as_failure(ending)

    assert str(failure) == "the stage raised something that cannot be read"
    assert isinstance(failure, dead_letter.StageEndingError)
    assert failure.ending is ending


async def leave() -> None:
    raise GeneratorExit


async def close_another() -> None:
    """Close a coroutine by hand, and let what it says escape."""
    another = asyncio.sleep(0)
    another.send(None)
    another.throw(GeneratorExit)


@pytest.mark.parametrize("end", [leave, close_another])
def test_an_async_stage_out_of_which_a_generator_exit_comes_has_failed_and_others_go_on(
    store: SqliteStore, rd: Redrive, end: Callable[[], Awaitable[None]]
) -> None:
    async def odd(number: int) -> int:
        if number:
            await end()
        return number

    pipeline = one_stage(odd, retry=ONCE)
    rd.submit_many(pipeline, [1, 0, 0])
    work(store, pipeline, concurrency=1)

    assert jobs(store) == [("failed",), ("complete",), ("complete",)]
    assert "GeneratorExit" in str(letters(store, "message"))


@pytest.mark.parametrize("raised", [Panic, GeneratorExit, SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("is_guarded", [True, False])
@pytest.mark.parametrize("is_async", [True, False])
def test_a_failure_that_panics_when_it_is_asked_for_its_text_is_settled_and_others_go_on(
    store: SqliteStore, rd: Redrive, is_async: bool, is_guarded: bool, raised: type[BaseException]
) -> None:
    def fail(number: int) -> int:
        if number:
            raise unspeakable(raised)
        return number

    async def fail_async(number: int) -> int:
        return fail(number)

    breaker = Breaker("api", consecutive=5) if is_guarded else None
    pipeline = one_stage(fail_async if is_async else fail, retry=ONCE, breaker=breaker)
    rd.submit_many(pipeline, [1, 0, 0])
    work(store, pipeline, concurrency=1)

    assert jobs(store) == [("failed",), ("complete",), ("complete",)]
    assert attempts(store) == [("dead",), ("ok",), ("ok",)]
    said = "sys.exit" if raised is SystemExit else raised.__name__
    assert said in str(letters(store, "message"))


@pytest.mark.parametrize("raised", [SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("is_async", [True, False])
def test_a_failure_whose_attributes_end_the_program_ends_no_worker(
    store: SqliteStore, rd: Redrive, is_async: bool, raised: type[BaseException]
) -> None:
    class Touchy(Exception):
        def __getattr__(self, name: str) -> object:
            raise raised

    def fail(number: int) -> int:
        if number:
            raise Touchy
        return number

    async def fail_async(number: int) -> int:
        return fail(number)

    pipeline = one_stage(fail_async if is_async else fail, retry=ONCE)
    rd.submit_many(pipeline, [1, 0])
    work(store, pipeline)

    assert jobs(store) == [("failed",), ("complete",)]


@pytest.mark.parametrize("raised", [RecursionError, Panic, KeyboardInterrupt])
@pytest.mark.parametrize("is_guarded", [True, False])
@pytest.mark.parametrize("is_async", [True, False])
def test_a_job_whose_failure_can_not_even_be_read_is_given_up_in_fixed_texts(
    store: SqliteStore,
    rd: Redrive,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    is_async: bool,
    is_guarded: bool,
    raised: type[BaseException],
) -> None:
    def broken(text: str, **_options: object) -> str:
        raise raised(text)

    def fail(secret: str) -> str:
        if secret:
            raise ValueError(secret)
        return secret

    async def fail_async(secret: str) -> str:
        return fail(secret)

    monkeypatch.setattr(dead_letter, "redact", broken)
    breaker = Breaker("api", consecutive=5) if is_guarded else None
    pipeline = one_stage(fail_async if is_async else fail, retry=ONCE, breaker=breaker)
    rd.submit_many(pipeline, ["my hidden words", "", ""])
    work(store, pipeline, concurrency=1)

    assert jobs(store, "status, error_code, error_message") == [
        ("failed", "BUG_UNKNOWN", UNREADABLE),
        ("complete", None, None),
        ("complete", None, None),
    ]
    assert attempts(store) == [("dead",), ("ok",), ("ok",)]
    assert letters(store, "state, code, message, stack") == [("open", "BUG_UNKNOWN", UNREADABLE, "")]
    assert "hidden words" not in str(letters(store, "*")) + str(attempts(store, "*")) + caplog.text
    assert f"job 1: {UNREADABLE}, because of {raised.__name__}" in caplog.text


def test_an_outcome_that_neither_fits_nor_can_be_read_is_given_up_in_fixed_texts(
    store: SqliteStore, rd: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_args: object, **_options: object) -> str:
        raise RecursionError

    monkeypatch.setattr(dead_letter, "redact", broken)
    store._db.execute(
        "CREATE TRIGGER refused BEFORE INSERT ON attempts WHEN NEW.outcome = 'ok' AND NEW.job_id = 1"
        " BEGIN SELECT RAISE(ABORT, 'refused'); END"
    )
    pipeline = one_stage(lambda number: number, name="plain")
    rd.submit_many(pipeline, [1, 2])
    work(store, pipeline)

    assert jobs(store, "status, error_message") == [("failed", UNREADABLE), ("complete", None)]


def test_progress_that_can_not_be_redacted_of_one_job_keeps_no_lease_from_being_renewed(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    going: list[int] = []

    def broken(job: ClaimedJob) -> dict[str, str]:
        if job.id == 1:
            raise RecursionError
        return dead_letter.literals_of(job)

    async def count(number: int, ctx: Context) -> None:
        ctx.progress(number, 4)
        going.append(number)
        await asyncio.Event().wait()

    pipeline = one_stage(count)
    rd.submit_many(pipeline, [1, 2])

    async def scene() -> None:
        worker = worker_on(store, pipeline)
        async with working(worker):
            await until(lambda: len(going) == 2)
            clock.advance(20)
            leases_of(store, clock, worker).beat(worker.name)
            assert store.read("SELECT expires_at FROM workers") == [(clock.wall() + 30,)]
            assert jobs(store, "progress") == [(None,), ("2 of 4",)]

    monkeypatch.setattr(progress, "literals_of", broken)
    bounded(scene())


def test_a_thread_that_was_abandoned_may_add_notes_while_those_before_are_written_down(
    store: SqliteStore, rd: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    contexts: list[Context] = []
    may_end = threading.Event()

    def adding(text: str) -> str:
        contexts[0].note(f"page {len(contexts[0].notes)}", "more")
        return storable(text)

    def fetch(number: int, ctx: Context) -> int:
        ctx.note("page", "first")
        contexts.append(ctx)
        assert may_end.wait(STUCK_SECONDS)
        return number

    pipeline = one_stage(fetch, timeout=0.01, retry=ONCE, idempotent=True, on_overrun="abandon")
    rd.submit(pipeline, 1)

    async def scene() -> None:
        async with working(worker_on(store, pipeline, parts=threaded_parts())):
            await until(lambda: rd.jobs.counts() == {"failed": 1})
        may_end.set()

    monkeypatch.setattr(dead_letter, "storable", adding)
    bounded(scene())
    assert jobs(store, "error_code") == [("TIMEOUT",)]


def test_an_outcome_that_cannot_be_read_keeps_no_other_thread_waiting(
    store: SqliteStore, rd: Redrive
) -> None:
    """Both outcomes are there before the loop looks, and nothing comes after them that would make it look again."""
    is_first_here, go_on = threading.Event(), threading.Event()
    is_last_here, may_end = threading.Event(), threading.Event()

    def one_after_the_other(number: int) -> int:
        if number == 1:
            is_first_here.set()
            assert go_on.wait(STUCK_SECONDS)
            raise unspeakable(Panic)
        if number == 3:
            # The only thread has handed in what came before.
            is_last_here.set()
            assert may_end.wait(STUCK_SECONDS)
        return number

    pipeline = one_stage(one_after_the_other, retry=ONCE)
    rd.submit_many(pipeline, [1, 2, 3])

    async def scene() -> None:
        worker = worker_on(store, pipeline, parts=threaded_parts(1))
        async with working(worker):
            await until(is_first_here.is_set)
            go_on.set()
            assert is_last_here.wait(STUCK_SECONDS)
            await until(lambda: jobs(store) == [("failed",), ("complete",), ("processing",)])
            seen = jobs(store)
            may_end.set()
            assert seen == [("failed",), ("complete",), ("processing",)]
            await until(lambda: rd.jobs.counts() == {"failed": 1, "complete": 2})
            assert worker.slots.running == 0

    bounded(scene())


def test_threads_bring_every_result_although_taking_one_in_panics(caplog: pytest.LogCaptureFixture) -> None:
    is_last_here, may_end = threading.Event(), threading.Event()
    brought: list[int] = []

    def last() -> int:
        is_last_here.set()
        assert may_end.wait(STUCK_SECONDS)
        return 3

    def panic(*_: object) -> None:
        raise Panic

    def bring(_of: object, result: int) -> None:
        brought.append(result)

    async def scene() -> list[int]:
        threads = StageThreads(1)
        threads.start(lambda of: of, 1, panic)
        threads.start(lambda of: of, 2, bring)
        threads.start(lambda _: last(), 3, bring)
        await until(is_last_here.is_set)
        await until(lambda: brought != [])
        seen = list(brought)
        may_end.set()
        await until(lambda: 3 in brought)
        threads.close()
        return seen

    assert bounded(scene()) == [2]
    assert brought == [2, 3]
    assert "could not be delivered" in caplog.text
