# SPDX-License-Identifier: Apache-2.0
"""Values that a stage puts where names belong: the code of a failure, the name of a class, the chain of causes."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass

import pydantic
import pytest

from redrive import ConfigurationError, Fail, Pipeline, Redrive, RetryPolicy, stage
from redrive.engine.error_text import error_text
from redrive.engine.worker.settlements import HIDDEN_CODE
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.unit.build import work

SECRET = "grapefruit-4711-seven"
TOKEN = "ghp_0123456789abcdef0123456789abcdef0123"
ONCE = RetryPolicy(1)


def written(store: SqliteStore) -> str:
    """Return everything that is written about failures."""
    tables = ("attempts", "letter_facts", "letter_groups", "outbox")
    kept = [store.read(f"SELECT * FROM {table}") for table in tables]
    return repr([kept, store.read("SELECT error_code, error_message, codes FROM jobs")])


@pytest.mark.parametrize("code", ["", "two\nlines", "a b", "x" * 101, f"pin {SECRET}", 7])
def test_a_code_is_a_name_and_holds_no_line_breaks(code: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Fail(code)

    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("code", ["REJECTED_{}", "REJECTED{}S", f"REJECTED_{TOKEN}"])
def test_a_code_made_of_a_value_of_the_job_or_of_a_secret_is_not_written(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, code: str
) -> None:
    @stage(retry=ONCE)
    def give_up(text: str) -> str:
        raise Fail(code.format(text))

    flow = Pipeline("shop", [give_up])
    rd.submit(flow, SECRET)
    work(store, flow)

    assert SECRET not in written(store)
    assert TOKEN not in written(store)
    assert store.read("SELECT error_code FROM jobs") == [(HIDDEN_CODE,)]


def test_a_code_and_a_class_made_of_a_value_of_the_job_are_both_not_written(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    @stage(retry=ONCE)
    def give_up(text: str) -> str:
        raise type(f"No_{text}_Fail", (Fail,), {})(f"REJECTED_{text}")

    flow = Pipeline("shop", [give_up])
    rd.submit(flow, SECRET)
    work(store, flow)

    assert SECRET not in written(store)
    assert store.read("SELECT code, exception FROM attempts") == [(HIDDEN_CODE, "Exception")]


def test_a_class_named_after_a_value_of_the_job_is_not_written(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    @stage(retry=ONCE)
    def give_up(text: str) -> str:
        raise type(f"No_{text}_Error", (RuntimeError,), {})("it failed")

    flow = Pipeline("shop", [give_up])
    rd.submit(flow, SECRET)
    with caplog.at_level(logging.DEBUG):
        work(store, flow)

    assert SECRET not in written(store)
    assert SECRET not in caplog.text
    assert store.read("SELECT exception FROM attempts") == [("Exception",)]


@dataclass
class Order:
    number: int


class Model(pydantic.BaseModel):
    number: int


@pytest.mark.parametrize("kind", [Order, Model, dict[str, int]])
def test_a_returned_value_that_does_not_fit_is_quoted_nowhere(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, kind: type
) -> None:
    def price(number: int) -> object:
        return {"number": SECRET + str(number)}

    price.__annotations__["return"] = kind
    flow = Pipeline("shop", [stage(retry=ONCE)(price)])
    rd.submit(flow, 1)
    work(store, flow)

    assert store.read("SELECT status FROM jobs") == [("failed",)]
    assert SECRET not in written(store)


def test_an_error_is_one_line_of_a_log() -> None:
    text = error_text(
        ValueError("gone\n2026-11-17 INFO redrive.worker all is well\r\x1b[2J\u2028\u2029\x9b2J\x7f")
    )

    assert text.startswith("ValueError: gone\\x0a2026-11-17 INFO ")
    assert text.isprintable()
    assert json.dumps(text).count("\\n") == text.count("\\n") == 0
