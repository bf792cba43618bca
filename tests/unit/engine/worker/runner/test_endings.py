# SPDX-License-Identifier: Apache-2.0
"""Whatever a stage does is a failure of its attempt, never of the worker, and never a job that nobody settles."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading

import pytest

from redrive import Context, Redrive, classify
from redrive.store.sqlite.store import SqliteStore
from tests.unit.build import (
    ONCE,
    STEADY,
    attempts,
    bounded,
    jobs,
    letters,
    one_stage,
    threaded_parts,
    work,
    worker_on,
)


def on_threads(store: SqliteStore, pipeline: object) -> None:
    async def scene() -> None:
        await worker_on(store, pipeline, parts=threaded_parts(2)).run(until_idle=True)  # type: ignore[arg-type]

    bounded(scene())


@pytest.mark.parametrize("is_async", [True, False])
def test_a_stage_that_ends_the_program_has_failed(store: SqliteStore, rd: Redrive, is_async: bool) -> None:
    def leave(number: int) -> int:
        if number:
            sys.exit(3)
        return number

    async def leave_async(number: int) -> int:
        return leave(number)

    pipeline = one_stage(leave_async if is_async else leave, retry=STEADY)
    rd.submit_many(pipeline, [1, 0])
    on_threads(store, pipeline)

    assert jobs(store) == [("failed",), ("complete",)]
    assert len(attempts(store)) == 2
    assert "sys.exit(3); a stage returns its output" in str(jobs(store, "error_message"))
    assert "in leave" in str(letters(store, "stack"))
    assert letters(store, "code") == [("BUG_CODE",)]


def test_a_return_value_of_the_wrong_type_is_a_bug_of_the_stage(store: SqliteStore, rd: Redrive) -> None:
    def wrong(number: int) -> int:
        return str(number)  # type: ignore[return-value]

    pipeline = one_stage(wrong, retry=STEADY)
    rd.submit(pipeline, 1)
    work(store, pipeline)

    assert letters(store, "code, category") == [("BUG_CODE", "bug")]
    assert "wrong (output)" in str(letters(store, "message"))


def test_the_advice_for_a_value_error_allows_for_wrong_data() -> None:
    hint = classify(ValueError("invalid literal for int(): 'abc'")).hint or ""

    assert "correct the payload if its data is wrong" in hint


def test_a_stage_that_blocks_the_loop_is_logged_by_name_while_it_does(
    filed: Redrive, caplog: pytest.LogCaptureFixture
) -> None:
    is_logged = threading.Event()

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "blocked the event loop" in record.getMessage():
                is_logged.set()

    async def block(_number: int) -> bool:
        return is_logged.wait(15)

    pipeline = one_stage(block)
    job = filed.submit(pipeline, 1)
    logger, listener = logging.getLogger("redrive.worker"), Listener()
    logger.addHandler(listener)
    try:
        filed.work([pipeline], until_idle=True)
    finally:
        logger.removeHandler(listener)

    assert job.result() is True
    assert "stage block has blocked the event loop for more than 1 s" in caplog.text


@pytest.mark.parametrize("raised", [KeyboardInterrupt, asyncio.CancelledError, GeneratorExit])
def test_a_sync_stage_that_raises_what_is_no_exception_has_failed_and_others_go_on(
    store: SqliteStore, rd: Redrive, raised: type[BaseException]
) -> None:
    def odd(number: int) -> int:
        if number:
            raise raised
        return number

    pipeline = one_stage(odd, retry=ONCE)
    rd.submit_many(pipeline, [1, 0, 0])
    on_threads(store, pipeline)

    assert jobs(store) == [("failed",), ("complete",), ("complete",)]


def test_an_async_stage_that_waits_for_something_cancelled_has_failed(
    store: SqliteStore, rd: Redrive
) -> None:
    async def wait_for_another(_number: int) -> None:
        another = asyncio.ensure_future(asyncio.Event().wait())
        another.cancel()
        await another

    pipeline = one_stage(wait_for_another, retry=ONCE)
    rd.submit(pipeline, 1)
    work(store, pipeline)

    assert jobs(store) == [("failed",)]


@pytest.mark.parametrize("is_async", [True, False])
def test_a_failure_whose_text_is_no_utf_8_is_a_failure_like_any_other(
    store: SqliteStore, rd: Redrive, is_async: bool
) -> None:
    """A file name in another encoding comes as surrogates, which no database takes."""

    def read(_number: int) -> None:
        raise ValueError("cannot read na\udcefve.txt")

    async def read_async(number: int) -> None:
        read(number)

    pipeline = one_stage(read_async if is_async else read, retry=ONCE)
    rd.submit(pipeline, 1)
    work(store, pipeline)

    assert jobs(store) == [("failed",)]
    ((message, stack),) = letters(store, "message, stack")
    assert "cannot read na" in str(message)
    assert "cannot read na" in str(stack)


@pytest.mark.parametrize("is_failing", [True, False])
def test_a_note_whose_text_is_no_utf_8_is_kept_as_far_as_it_can_be(
    store: SqliteStore, rd: Redrive, is_failing: bool
) -> None:
    def read(number: int, ctx: Context) -> int:
        ctx.note("file", "na\udcefve.txt")
        ctx.note("na\udcefve", 1)
        if is_failing:
            raise ValueError("no")
        return number

    pipeline = one_stage(read, retry=ONCE)
    rd.submit(pipeline, 1)
    work(store, pipeline)

    assert jobs(store) == [("failed" if is_failing else "complete",)]
    ((notes,),) = attempts(store, "notes")
    assert '"file":"na' in str(notes)


def test_a_result_whose_text_is_no_utf_8_is_a_failure_of_the_attempt(store: SqliteStore, rd: Redrive) -> None:
    pipeline = one_stage(lambda _number: "na\udcefve.txt", name="read")
    rd.submit(pipeline, 1)
    work(store, pipeline)

    assert jobs(store) == [("failed",)]


def test_an_exception_that_cannot_be_read_is_still_settled(store: SqliteStore, rd: Redrive) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("even this")

    def say(_number: int) -> None:
        raise Mute

    pipeline = one_stage(say, retry=ONCE)
    rd.submit(pipeline, 1)
    work(store, pipeline)

    assert jobs(store) == [("failed",)]


def test_a_very_long_message_is_cut(store: SqliteStore, rd: Redrive) -> None:
    def shout(_number: int) -> None:
        raise ValueError("a" * 100_000)

    pipeline = one_stage(shout, retry=ONCE)
    rd.submit(pipeline, 1)
    work(store, pipeline)

    ((message, stack),) = letters(store, "length(message), length(stack)")
    assert int(str(message)) <= 2_048
    assert int(str(stack)) <= 16_384


class Strange:
    """A model with a codec of its own that reads what is no JSON."""

    @staticmethod
    def model_validate_json(_encoded: bytes) -> Strange:
        return Strange()


def test_a_payload_that_only_its_own_model_can_read_stands_in_nobodys_way(
    store: SqliteStore, rd: Redrive
) -> None:
    def take(_given: Strange) -> None:
        return None

    strange, plain = one_stage(take, "strange"), one_stage(lambda number: number, name="plain")
    rd.submit(strange, {})
    rd.submit(plain, 1)
    # Nothing like it gets in any more.
    store._db.execute("UPDATE jobs SET payload = ? WHERE pipeline = 'strange'", (b"NaN",))
    work(store, strange, plain)

    assert ("complete",) in jobs(store)
    assert rd.jobs.counts().get("complete") == 2


@pytest.mark.untraced
@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("raised", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_stage_that_exits_with_something_that_cannot_be_shown_has_failed(
    store: SqliteStore, rd: Redrive, raised: type[BaseException], is_async: bool
) -> None:
    class Shy:
        def __repr__(self) -> str:
            raise raised("not now")

    def leave(number: int) -> int:
        raise SystemExit(Shy())

    async def leave_async(number: int) -> int:
        return leave(number)

    pipeline = one_stage(leave_async if is_async else leave, retry=ONCE)
    rd.submit(pipeline, 1)
    on_threads(store, pipeline)

    assert jobs(store) == [("failed",)]
    assert "the stage raised SystemExit" in str(jobs(store, "error_message"))
