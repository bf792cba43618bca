# SPDX-License-Identifier: Apache-2.0
"""The transition tables: exactly the moves the design allows, and what really happens to jobs."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from redrive import Backoff, Cancel, Pipeline, RetryPolicy, Skip, Snooze, connect, stage
from redrive.core.lifecycle import JOB_MOVES, LETTER_MOVES, LetterState, can_move
from redrive.core.replay import ReplayRules

ARROWS = {
    (None, "queued"),
    ("queued", "processing"),
    ("processing", "queued"),
    ("processing", "complete"),
    ("processing", "failed"),
    ("queued", "cancelled"),
    ("processing", "cancelled"),
    ("processing", "skipped"),
    ("failed", "queued"),
}
SNOOZED: list[str] = []


@stage(retry=RetryPolicy(2, Backoff.fixed(0.001)))
def act(word: str) -> str:
    if word == "later" and not SNOOZED:
        SNOOZED.append(word)
        raise Snooze(0.001)
    if word == "fail":
        raise ConnectionResetError(104, "reset")
    if word == "cancel":
        raise Cancel
    if word == "skip":
        raise Skip("nothing in it")
    return word


ACTS = Pipeline("acts", [act], replay=ReplayRules(evidence="optional"))


def test_a_job_moves_along_exactly_these_arrows() -> None:
    assert {(move.source, move.target) for move in JOB_MOVES} == ARROWS


def test_the_table_has_the_moves_that_jobs_make_and_no_others(tmp_path: Path) -> None:
    """The database itself writes down every change of a status."""
    path = tmp_path / "jobs.db"
    with connect(path) as rd:
        with sqlite3.connect(path) as db:
            db.execute("CREATE TABLE seen (source TEXT, target TEXT)")
            for when, source in (("INSERT ON jobs", "NULL"), ("UPDATE OF status ON jobs", "OLD.status")):
                name = when.partition(" ")[0]
                db.execute(
                    f"CREATE TRIGGER seen_{name} AFTER {when} BEGIN INSERT INTO seen VALUES ({source}, NEW.status); END"
                )
        for word in ("done", "fail", "cancel", "skip", "later"):
            rd.submit(ACTS, word)
        rd.work([ACTS], until_idle=True)
        rd.jobs.retry(2)
        rd.work([ACTS], until_idle=True)
        rd.jobs.cancel(rd.submit(ACTS, "never").id)
        with sqlite3.connect(path) as db:
            seen = set(db.execute("SELECT source, target FROM seen WHERE source IS NOT target"))

    assert seen == ARROWS


def test_a_dead_letter_moves_along_exactly_these_arrows() -> None:
    arrows = {(move.source, move.verb, move.target) for move in LETTER_MOVES}

    assert arrows == {
        (None, "bury", "open"),
        ("open", "triage", "triaged"),
        ("triaged", "triage", "triaged"),
        ("ready", "triage", "triaged"),
        ("triaged", "remediate", "ready"),
        ("ready", "replay", "replaying"),
        ("open", "retry", "replaying"),
        ("triaged", "retry", "replaying"),
        ("replaying", "resolve", "resolved"),
        ("replaying", "return", "returned"),
        ("open", "discard", "discarded"),
        ("triaged", "discard", "discarded"),
        ("ready", "discard", "discarded"),
        ("discarded", "restore", "open"),
    }


def test_a_dead_letter_can_always_be_brought_to_an_end_and_a_discard_undone() -> None:
    arrows = {(move.source, move.target) for move in LETTER_MOVES}

    assert {source for source, target in arrows if target == "discarded"} == {"open", "triaged", "ready"}
    assert ("discarded", "open") in arrows
    assert {source for source, target in arrows if target == "resolved"} == {"replaying"}
    assert not [arrow for arrow in arrows if arrow[0] == "resolved"]


@pytest.mark.parametrize("state", list(LetterState))
def test_a_letter_can_be_moved_as_the_table_has_it(state: LetterState) -> None:
    verbs = {move.verb for move in LETTER_MOVES}

    assert {verb for verb in verbs if can_move(state, verb)} == {
        move.verb for move in LETTER_MOVES if move.source is state
    }
    assert not can_move(state, "bury")
