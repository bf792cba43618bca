# SPDX-License-Identifier: Apache-2.0
"""Two who change the same thing at once, on connections of their own: the second waits for the first, and then sees what it did."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextvars import copy_context
from typing import Any

import pytest

from redrive import Pipeline, Redrive, RetryPolicy, stage
from redrive.core.replay import ReplayRules
from redrive.engine.replay.release import batch_of, release_steps
from redrive.engine.runs.ending import RunStatusDriver
from redrive.errors import ReplayRefusedError
from redrive.ops.audit import Actor
from redrive.ops.jobs.erase import erase
from redrive.ops.jobs.retry import retry_job
from redrive.ops.letters.edit import edit
from redrive.store.postgres.store import PostgresStore
from redrive.store.statements import release as release_sql
from redrive.testing import VirtualClock
from tests.databases import Schemas
from tests.embedded import change_rows, read_rows
from tests.inline import at_once

ANN = Actor("ann", "a slip")


@stage(retry=RetryPolicy(1))
def divide(number: int) -> float:
    return 1 / number


FLOW = Pipeline("shares", [divide], replay=ReplayRules(evidence="optional"))


class Pair:
    """Two connections to one database, and one that watches them."""

    def __init__(self, schema: str, url: str) -> None:
        self.first, self.second, self._watching = (PostgresStore(url, clock="caller") for _ in range(3))
        self._schema = schema

    def race(
        self, first: Callable[[PostgresStore], object], second: Callable[[PostgresStore], object]
    ) -> tuple[object, object]:
        """Run both at once: the second begins before the first commits, which waits until the second waits for it."""
        reached, may_commit = threading.Event(), threading.Event()
        plain = self.first._transactions.write

        def held(work: Callable[[Any], object], **options: bool) -> object:
            def and_wait(db: object) -> object:
                result = work(db)
                reached.set()
                assert may_commit.wait(60)
                return result

            return plain(and_wait, **options | {"is_pipelined": False})

        self.first._transactions.write = held  # type: ignore[assignment,method-assign]
        answers: dict[str, object] = {}
        one = _thread(answers, "first", lambda: first(self.first))
        assert reached.wait(60)
        two = _thread(answers, "second", lambda: second(self.second))
        self._wait_for_a_lock(two)
        may_commit.set()
        one.join()
        two.join()
        return answers["first"], answers["second"]

    def _wait_for_a_lock(self, waiting: threading.Thread) -> None:
        asked = (
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'"
        )
        end_at = time.monotonic() + 60
        # One that does not wait ends, and what it did is judged.
        while waiting.is_alive() and self._watching.read(asked, (self._schema,)) == [(0,)]:
            assert time.monotonic() < end_at

    def close(self) -> None:
        for each in (self.first, self.second, self._watching):
            each.close()


def _thread(answers: dict[str, object], name: str, work: Callable[[], object]) -> threading.Thread:
    def run() -> None:
        try:
            answers[name] = work()
        except ReplayRefusedError as error:
            answers[name] = error

    thread = threading.Thread(target=copy_context().run, args=(run,))
    thread.start()
    return thread


@pytest.fixture
def pair(schemas: Schemas, clock: VirtualClock) -> Generator[Pair]:
    """A database with a run whose only job has failed."""
    schema = schemas.emptied("races")
    made = Pair(schema, schemas.named(schema))
    rd = Redrive(made.second)
    rd.runs.open(FLOW, [0])
    rd.work([FLOW], until_idle=True)
    yield made
    made.close()


def changed(to: bytes) -> Callable[[PostgresStore], object]:
    return lambda store: edit(store, 1, ANN, value=to).id


def replayed(store: PostgresStore) -> object:
    """Release it as a replay does, which logs nothing meanwhile."""
    batch = batch_of(store.query(release_sql.replay_candidates(ids=[1], from_start=False)))
    steps = release_steps(store, batch, replay=None, first_lane=None, now=0.0)
    return store.apply(*steps) is not None


def released(store: PostgresStore) -> object:
    return retry_job(store, 1, ANN).status


def test_an_edit_that_is_not_committed_yet_keeps_a_release_from_starting_with_the_old_value(
    pair: Pair,
) -> None:
    edited, is_released = pair.race(changed(b"5"), replayed)

    assert (edited, is_released) == (1, False)
    assert read_rows(pair.second, "SELECT status FROM jobs") == [("failed",)]
    assert released(pair.second) == "queued"
    assert read_rows(pair.second, "SELECT input FROM jobs") == [(b"5",)]


def test_a_letter_that_is_being_released_is_not_edited(pair: Pair) -> None:
    status, refused = pair.race(released, changed(b"5"))

    assert status == "queued"
    assert isinstance(refused, ReplayRefusedError)
    assert read_rows(pair.second, "SELECT count(*) FROM edits") == [(0,)]


def test_of_two_edits_of_the_same_value_one_is_refused(pair: Pair) -> None:
    edited, refused = pair.race(changed(b"5"), changed(b"6"))

    assert edited == 1
    assert isinstance(refused, ReplayRefusedError)
    assert read_rows(pair.second, "SELECT after FROM edits") == [(b"5",)]


def test_an_edit_that_is_not_committed_yet_is_erased_with_its_job(pair: Pair) -> None:
    edited, erased = pair.race(changed(b"5"), lambda store: erase(store, 1, ANN).is_new)

    assert (edited, erased) == (1, True)
    assert read_rows(pair.second, "SELECT before, after FROM edits") == [(None, None)]


def test_a_job_that_is_being_erased_is_not_edited(pair: Pair) -> None:
    erased, refused = pair.race(lambda store: erase(store, 1, ANN).is_new, changed(b"5"))

    assert erased is True
    assert isinstance(refused, ReplayRefusedError)
    assert read_rows(pair.second, "SELECT count(*) FROM edits") == [(0,)]


def test_a_run_does_not_end_while_one_of_its_jobs_is_being_released(pair: Pair, clock: VirtualClock) -> None:
    change_rows(pair.second, "UPDATE runs SET status = 'running', ended_at = NULL")

    status, decided = pair.race(
        released, lambda store: RunStatusDriver(store, clock, ask_store=at_once).decide()
    )

    assert (status, decided) == ("queued", 0)
    assert read_rows(pair.second, "SELECT status, ended_at FROM runs") == [("running", None)]
