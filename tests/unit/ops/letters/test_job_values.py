# SPDX-License-Identifier: Apache-2.0
"""What people write about a few letters or one job is stored without the values of those jobs; about many, by patterns alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from redrive import Pipeline, Redrive, ReplayRules, RetryPolicy, stage
from redrive.ops.audit import operations
from redrive.ops.letters import job_values
from redrive.store.records import Call
from redrive.store.statements import replays as replay_sql

SECRET = "correct horse"
"""Looks like nothing that a pattern knows."""
OTHER = "battery staple"


@stage(retry=RetryPolicy(1))
def enter(door: dict[str, str]) -> str:
    raise PermissionError("locked")


RULES = ReplayRules(evidence="optional", owner_retry=True)
DOORS = Pipeline("doors", [enter], replay=RULES)


@pytest.fixture(autouse=True)
def _two_failed_jobs(rd: Redrive) -> None:
    for words in (SECRET, OTHER):
        rd.submit(DOORS, {"words": words}, owner="ann")
    rd.work([DOORS], until_idle=True, concurrency=1)


def stored(rd: Redrive) -> str:
    """Return everything that is on record about acts, and what a letter keeps of them."""
    log = [(each.actor, each.subject, each.reason, each.change) for each in operations(rd.store)]
    replays = rd.store.query(replay_sql.replays(before=1 << 60, pipeline=None, limit=10))
    notes = [(each.note, each.reason) for each in replays]
    evidence = [rd.letters.show(each).letter.evidence for each in (1, 2)]
    return f"{log} {notes} {evidence}"


WHY = f"she said {SECRET} aloud"
CLEAN = "she said <payload:$.0> aloud"


def judged(rd: Redrive) -> dict[str, Callable[[], object]]:
    chosen = rd.letters.choose(ids=[1])
    letters = rd.letters
    return {
        "note": lambda: letters.note(chosen, text=WHY),
        "triage": lambda: letters.triage(chosen, diagnosis="data", reason=WHY),
        "remediate": lambda: letters.remediate(chosen, evidence=WHY, is_safe=True, diagnosis="data"),
        "remediated": lambda: letters.remediate(
            chosen, evidence="fixed", is_safe=True, diagnosis="data", reason=WHY
        ),
        "discard": lambda: letters.discard(chosen, reason=WHY),
        "assign": lambda: letters.assign(chosen, assignee="bob", reason=WHY),
        "edit": lambda: rd.letters.edit(1, value=b'{"words": "open"}', reason=WHY),
        "retry": lambda: rd.jobs.retry(1, reason=WHY),
        "erase": lambda: rd.jobs.erase(1, reason=WHY),
        "replay": lambda: rd.replays.start(ids=[1], reason=WHY),
    }


ACTS = (
    "note",
    "triage",
    "remediate",
    "remediated",
    "discard",
    "assign",
    "edit",
    "retry",
    "erase",
    "replay",
)


@pytest.mark.untraced
@pytest.mark.parametrize("act", ACTS)
def test_a_value_of_the_job_is_taken_out_of_what_is_written_about_it(rd: Redrive, act: str) -> None:
    judged(rd)[act]()

    assert CLEAN in stored(rd)
    assert SECRET not in stored(rd)


def test_a_value_is_known_in_base64_and_by_its_new_name_after_an_edit(rd: Redrive) -> None:
    rd.letters.edit(1, value=b'{"words": "open sesame"}', reason="it is open sesame now")
    chosen = rd.letters.choose(ids=[1])

    rd.letters.note(chosen, text=f"open sesame, before {SECRET}, or Y29ycmVjdCBob3JzZQ==")

    assert "open sesame" not in stored(rd)
    assert SECRET not in stored(rd)
    assert "Y29ycmVjdCBob3JzZQ" not in stored(rd)


def test_a_small_group_is_few_letters_as_well(rd: Redrive) -> None:
    chosen = rd.letters.choose(pipeline="doors")

    rd.letters.note(chosen, text=f"{SECRET} and {OTHER}")

    assert "<payload:$.0> and <payload:$.0>" in stored(rd)
    assert SECRET not in stored(rd)


def test_what_is_written_about_many_letters_goes_by_patterns_alone(
    rd: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_values, "LETTERS_MAX", 1)
    chosen = rd.letters.choose(pipeline="doors")

    rd.letters.note(chosen, text=f"{SECRET}, and password=hunter2hunter2")

    assert SECRET in stored(rd)
    assert "hunter2" not in stored(rd)


def test_no_value_is_read_when_nothing_is_written(rd: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    query = rd.store.query

    def listening(call: Call[object]) -> object:
        asked.append(call.name)
        return query(call)

    monkeypatch.setattr(rd.store, "query", listening)
    rd.letters.triage(rd.letters.choose(ids=[1]), diagnosis="data")

    assert "letters_to_triage" in asked
    assert "exported_values" not in asked


def test_the_name_of_who_looks_after_a_letter_stays_although_a_payload_has_it(rd: Redrive) -> None:
    rd.submit(DOORS, {"words": "ann.smith"})
    rd.work([DOORS], until_idle=True, concurrency=1)

    rd.letters.assign(rd.letters.choose(ids=[3]), assignee="ann.smith", actor="ann.smith")

    assert rd.letters.show(3).letter.assignee == "ann.smith"
    assert "'ann.smith', 'letter 3'" in stored(rd)


def test_the_note_that_closes_a_replay_and_why_it_was_stopped_are_clean(rd: Redrive) -> None:
    begun = rd.replays.start(pipeline="doors", reason=WHY, canary=())
    rd.replays.pause(begun.id, reason=WHY)
    rd.replays.resume(begun.id, reason=WHY)
    rd.replays.cancel(begun.id, reason=WHY)

    closed = rd.replays.close(begun.id, note=WHY)

    assert closed.note == CLEAN
    assert stored(rd).count(CLEAN) == 6
    assert SECRET not in stored(rd)


def test_a_replay_of_a_state_hides_what_its_letters_were_when_it_began(rd: Redrive) -> None:
    rd.letters.triage(rd.letters.choose(ids=[1]), diagnosis="data")
    begun = rd.replays.start(pipeline="doors", state="triaged", reason=WHY)
    rd.work([DOORS], until_idle=True, concurrency=1)

    assert rd.replays.close(begun.id, note=WHY).note == CLEAN


def test_why_a_job_is_cancelled_is_stored_without_its_values(rd: Redrive) -> None:
    queued = rd.submit(DOORS, {"words": SECRET})

    assert rd.jobs.cancel(queued.id, reason=WHY, actor="ann token=q8Zr4mN2vX7kP09").status == "cancelled"

    assert SECRET not in stored(rd)
    assert "q8Zr4mN2vX7kP09" not in stored(rd)
    assert "she said <payload:" in stored(rd)
