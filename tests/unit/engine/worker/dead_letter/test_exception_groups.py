# SPDX-License-Identifier: Apache-2.0
"""Stacks of exception groups: written without margins, so that what spans lines is still found and hidden in them."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from redrive import Context, stage
from redrive.engine.classifier import DEFAULT
from redrive.engine.error_text import DEPTH_MAX, MEMBERS_MAX, traceback_text
from redrive.engine.worker.dead_letter import FailedAttempt, JobRedactor, letter_of
from redrive.engine.worker.processes import StageCall, StageReport, run_stage
from redrive.redaction import process
from tests.unit.engine.worker.letters_made import DECISION, KEY, claimed, shown_of

VALUE = (
    "Dear Dr Smith, the patient\u2028Joan\nwas seen on ward seven today\n\n  | and spoke about her divorce"
)


def raised(exc: BaseException) -> BaseException:
    try:
        raise exc
    except BaseException as caught:
        return caught


def group(message: str, depth: int = 1) -> BaseException:
    exc = raised(ValueError(message))
    for _ in range(depth):
        assert isinstance(exc, Exception)
        exc = raised(ExceptionGroup("several", [exc]))
    return exc


def stack_for(exc: BaseException, *values: str) -> str:
    return letter_of(
        FailedAttempt(DEFAULT.classify(exc), exc), JobRedactor(claimed(*values)), "fetch", DECISION, None
    ).stack


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_a_value_of_several_lines_is_hidden_in_the_stack_of_a_group(depth: int) -> None:
    stack = stack_for(group(f"cannot take {VALUE}", depth), VALUE)

    assert shown_of(VALUE, stack) == []
    assert "ValueError: cannot take <payload:$[0]>\n" in stack


@stage
async def gather(values: list[str]) -> None:
    raise group(f"cannot take {values[0]}")


def test_a_value_of_several_lines_is_hidden_in_the_stack_of_a_group_from_another_process() -> None:
    job = claimed(VALUE)
    context = Context(job_id=1, pipeline="shop", stage="gather", attempt=1)
    call = StageCall(gather.fn.__module__, "gather", job.input, context)
    failed = msgspec.msgpack.decode(run_in_process(call), type=StageReport).failed
    assert failed is not None
    stack = letter_of(failed, JobRedactor(job), "gather", DECISION, None).stack

    assert shown_of(VALUE, stack) == []
    assert "ValueError: cannot take <payload:$[0]>\n" in stack


def run_in_process(call: StageCall) -> bytes:
    """Run an order as another process does: it has an event loop of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run_stage, msgspec.msgpack.encode(call)).result()


@pytest.mark.parametrize(
    "text",
    [
        f"-----BEGIN PRIVATE KEY-----\n{KEY}\n{KEY}\n-----END PRIVATE KEY-----",
        f'{{"password":\n  "{KEY}"}}',
        f"password: |\n  {KEY}\n",
    ],
)
def test_a_secret_of_several_lines_is_hidden_in_the_stack_of_a_group(text: str) -> None:
    assert shown_of(KEY, stack_for(group(f"bad {text}"), "plain enough")) == []


def test_a_registered_secret_of_several_lines_is_hidden_in_the_stack_of_a_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "_known", process._Known({}, frozenset()))
    secret = "correct horse\nbattery staple\nopen sesame now"
    process.register_secret(secret)

    assert shown_of(secret, stack_for(group(f"bad {secret}"), "plain enough")) == []


def alone() -> BaseException:
    return raised(KeyError("gone"))


def never_raised() -> BaseException:
    return KeyError("gone")


def caused() -> BaseException:
    error = RuntimeError("second\nline")
    error.add_note("with a note")
    error.__cause__ = alone()
    return raised(error)


def during() -> BaseException:
    error = RuntimeError("second")
    error.__context__ = caused()
    return raised(error)


def suppressed() -> BaseException:
    error = during()
    error.__suppress_context__ = True
    return error


def circular() -> BaseException:
    error = during()
    assert error.__context__ is not None
    error.__context__.__cause__ = error
    return error


def misspelled() -> BaseException:
    return raised(SyntaxError("invalid syntax", ("a.py", 3, 5, "a = = 3\n")))


@pytest.mark.parametrize("make", [alone, never_raised, caused, during, suppressed, circular, misspelled])
def test_an_exception_without_a_group_is_written_as_python_writes_it(
    make: Callable[[], BaseException],
) -> None:
    exc = make()

    assert traceback_text(exc) == "".join(traceback.format_exception(exc))


def test_a_group_is_written_with_its_members_under_their_numbers() -> None:
    inner = ExceptionGroup("inner", [ValueError("two\nlines"), KeyError("gone")])
    outer = ExceptionGroup("outer", [OSError("first"), inner])

    assert traceback_text(outer).splitlines() == [
        "ExceptionGroup: outer (2 sub-exceptions)",
        "---------------- 1 ----------------",
        "OSError: first",
        "---------------- 2 ----------------",
        "ExceptionGroup: inner (2 sub-exceptions)",
        "---------------- 2.1 ----------------",
        "ValueError: two",
        "lines",
        "---------------- 2.2 ----------------",
        "KeyError: 'gone'",
        "--------------------------------",
    ]


def test_of_a_group_no_more_is_written_than_python_shows() -> None:
    wide = traceback_text(ExceptionGroup("wide", [ValueError(f"member {n}") for n in range(100)]))
    full = traceback_text(ExceptionGroup("full", [ValueError(f"member {n}") for n in range(MEMBERS_MAX)]))
    deep = traceback_text(group("at the bottom", DEPTH_MAX + 5))

    assert wide.count("ValueError: member") == MEMBERS_MAX
    assert "and 85 more" in wide
    assert (full.count("ValueError: member"), "more" in full) == (MEMBERS_MAX, False)
    assert deep.count("ExceptionGroup: several") == DEPTH_MAX + 1
    assert "(groups are shown 10 deep)" in deep
    assert "at the bottom" not in deep


def test_the_frames_of_a_group_and_of_its_members_are_found() -> None:
    text = traceback_text(group("bad"))

    assert text.startswith("Exception Group Traceback (most recent call last):\n  File ")
    assert "\nTraceback (most recent call last):\n  File " in text
    assert "|" not in text
