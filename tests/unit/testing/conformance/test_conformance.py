# SPDX-License-Identifier: Apache-2.0
"""The conformance suite finds what is wrong with a store, covers the whole protocol, and is the only part that needs pytest."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
from msgspec.structs import replace

from redrive.store.protocol import Store
from redrive.store.reader import Reader
from redrive.store.records import (
    ExchangeRequest,
    NewJob,
    Renewal,
    Step,
    UpcomingWork,
)
from redrive.store.sqlite.store import SqliteStore
from redrive.testing.conformance import StoreConformance, named_statements
from redrive.testing.conformance.build import LEASE, NOW
from tests.tidy.tree import ROOT

Right = Callable[..., Any]
"""The method as it should be."""


class Flawed:
    """A store with one method of its own."""

    def __init__(self, store: SqliteStore, method: str, flaw: Callable[..., object]) -> None:
        self._store = store
        self._flaw = {method: flaw}

    def __getattr__(self, name: str) -> object:
        right = getattr(self._store, name)
        flaw = self._flaw.get(name)
        return right if flaw is None else lambda *args, **kwargs: flaw(right, *args, **kwargs)


@pytest.fixture
def sound() -> Generator[SqliteStore]:
    made = SqliteStore(":memory:")
    for worker in ("w1", "w2"):
        made.start_worker(worker, NOW, LEASE)
    yield made
    made.close()


class Deaf:
    """A signal that reports nothing."""

    def __init__(self) -> None:
        self._ends = os.pipe()

    def fileno(self) -> int:
        return self._ends[0]

    def clear(self) -> None:
        pass

    def close(self) -> None:
        for end in self._ends:
            os.close(end)


def forgets_keys(right: Right, jobs: Sequence[NewJob], now: float) -> object:
    return right([replace(job, key=None) for job in jobs], now)


def forgets_children(right: Right, asked: ExchangeRequest) -> object:
    return right(replace(asked, done=[replace(one, children=()) for one in asked.done]))


def trusts_any_token(right: Right, asked: ExchangeRequest) -> object:
    return replace(right(asked), lost=())


def ignores_limits(right: Right, asked: ExchangeRequest) -> object:
    return right(replace(asked, want=replace(asked.want, limits={})))


def ignores_expectations(right: Right, *steps: Step) -> object:
    return right(*(Step(step.name, step.parameters) for step in steps))


def sees_what_comes_later(right: Callable[[], AbstractContextManager[Reader]]) -> object:
    with right():
        return nullcontext(right.__self__)  # type: ignore[attr-defined]  # the store itself


FLAWS = [
    ("submit", forgets_keys, "test_duplicates_within_one_batch_are_one_job"),
    ("exchange", forgets_children, "test_children_are_not_made_twice_when_a_batch_is_sent_again"),
    ("exchange", trusts_any_token, "test_children_of_a_lost_settlement_never_exist"),
    ("exchange", ignores_limits, "test_of_some_lanes_fewer_are_handed_out"),
    (
        "apply",
        ignores_expectations,
        "test_a_notice_that_was_taken_is_hidden_until_it_is_dropped_or_due_again",
    ),
    ("reap", lambda right, now: 0, "test_a_heartbeat_extends_the_lease"),
    (
        "renew",
        lambda *_: Renewal(is_known=True),
        "test_a_worker_that_stops_gives_back_what_it_holds_unburned",
    ),
    ("stop_worker", lambda *_: None, "test_a_worker_that_stops_gives_back_what_it_holds_unburned"),
    ("start_worker", lambda *_: None, "test_a_worker_may_introduce_itself_again"),
    (
        "change_counter",
        lambda right: object(),
        "test_a_change_counter_stays_the_same_while_nobody_changes_anything",
    ),
    ("change_signal", lambda *_: Deaf(), "test_a_signal_reports_new_jobs_until_it_is_cleared"),
    ("swap_breaker", lambda *_: True, "test_the_state_of_a_breaker_is_changed_by_whoever_saw_the_last_one"),
    ("breaker", lambda *_: b"1", "test_the_state_of_a_breaker_is_changed_by_whoever_saw_the_last_one"),
    ("query", lambda *_: [], "test_every_attempt_is_on_record"),
    ("reading", sees_what_comes_later, "test_what_is_changed_between_two_questions_is_not_seen"),
    ("lanes", lambda right, pipeline, stages: right("one", stages), "test_keys_are_per_pipeline"),
    (
        "upcoming",
        lambda *_: UpcomingWork(due={}, leased=0, paused=frozenset()),
        "test_upcoming_work_is_of_the_lanes_that_are_asked_for",
    ),
]


@pytest.mark.parametrize(
    ("method", "flaw", "test"), FLAWS, ids=lambda value: getattr(value, "__name__", value)
)
def test_a_flaw_is_found(
    sound: SqliteStore,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    flaw: Callable[..., object],
    test: str,
) -> None:
    monkeypatch.setattr(named_statements, "SIGNAL_SECONDS", 0.1)

    # AssertionError from an expectation, ValueError where there are not as many rows as the test takes apart.
    with pytest.raises((AssertionError, ValueError, LookupError)):
        getattr(StoreConformance(), test)(Flawed(sound, method, flaw))


def test_there_is_a_flaw_for_every_method_of_the_protocol() -> None:
    """`close` is left to whoever makes the store."""
    methods = {name for name, _ in inspect.getmembers(Store, inspect.isfunction) if not name.startswith("_")}

    assert {method for method, _, _ in FLAWS} == methods - {"close"}


def test_only_the_suite_needs_pytest() -> None:
    script = "import sys, redrive.testing; sys.exit('pytest' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False).returncode == 0
