# SPDX-License-Identifier: Apache-2.0
"""The operator log: every act with who, what, why, how many, and what was before and after; and nothing in it changes."""

from __future__ import annotations

import pwd
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest

from redrive import Pipeline, Redrive, ReplayRules, RetryPolicy, connect, stage
from redrive.core.replay import plan_of
from redrive.engine.replay.filter import LetterFilter
from redrive.errors import ReplayRefusedError, StoreRefusedError
from redrive.ops import audit, pipelines, runs
from redrive.ops.audit import Actor, Subject, present_user
from redrive.ops.jobs.erase import erase
from redrive.ops.jobs.inspect import job_details
from redrive.ops.jobs.retry import retry_job
from redrive.ops.letters.details import get_letter, letter_details
from redrive.ops.letters.edit import edit
from redrive.ops.letters.exports import export
from redrive.ops.letters.imports import import_letters
from redrive.ops.replay import replays
from redrive.store.statements import operations as operation_sql
from redrive.store.statements.operations import Operation
from tests.embedded import changing

ANN = Actor("ann", "a test")
PLAN = plan_of((1, 5), 5.0, from_start=False)


@stage(retry=RetryPolicy(1))
def store_it(file: str) -> str:
    raise PermissionError("no room")


LOOSE = Pipeline("shop", [store_it], replay=ReplayRules(evidence="optional", export="include"))
OWNED = Pipeline("uploads", [store_it], replay=ReplayRules(owner_retry=True))


def fail(rd: Redrive, pipeline: Pipeline, *files: str, owner: str | None = None) -> None:
    for file in files:
        rd.submit(pipeline, file, owner=owner)
    rd.work([pipeline], until_idle=True)


def told(done: Operation) -> tuple[str, str, int | None, Any, Any]:
    change = cast("dict[str, Any]", done.change or {})
    return done.verb, done.subject, done.letters, change.get("before"), change.get("after")


def last(rd: Redrive) -> tuple[str, str, int | None, Any, Any]:
    return told(audit.operations(rd.store)[-1])


def test_a_retry_is_one_line_with_what_was_before_and_after(rd: Redrive) -> None:
    fail(rd, LOOSE, "a.txt")

    retry_job(rd.store, 1, ANN)

    (done,) = audit.operations(rd.store)
    before, after = {"state": "open", "round": 1}, {"state": "replaying", "round": 2}
    assert told(done) == ("retry", "letter 1", 1, before, after)
    assert (done.actor, done.reason) == ("ann", "a test")


@pytest.mark.parametrize("is_owner", [True, False])
def test_that_an_owner_needed_no_evidence_is_on_record(rd: Redrive, is_owner: bool) -> None:
    pipeline = OWNED if is_owner else LOOSE
    fail(rd, pipeline, "a.txt", owner="ann")

    retry_job(rd.store, 1, ANN, owner="ann" if is_owner else None, from_start=True)

    verb, _, _, _, after = last(rd)
    spared = {"as_owner": True, "without_evidence": True} if is_owner else {}
    assert (verb, after) == ("restart", {"state": "replaying", "round": 2, **spared})


def test_whoever_is_recorded_anywhere_stands_beside_the_user(rd: Redrive, tmp_path: Path) -> None:
    by, both = Actor("alice", "a claim", "mallory"), "alice (user mallory)"
    fail(rd, LOOSE, "a", "b")
    run = rd.runs.open(LOOSE, ["c"]).id

    edit(rd.store, 1, by, value=b'"c"')
    begun = replays.start(rd.store, LetterFilter(pipeline="shop"), by, plan=PLAN)
    paused = replays.pause(rd.store, begun.id, by)
    (line,) = export(rd.store, LetterFilter(ids=(1,)), by, with_values=True)
    with connect(tmp_path / "there.db") as there:
        import_letters(there.store, [line], by)
        brought = job_details(there.store, 1).origin

    assert [each.actor for each in rd.letters.show(1).edits] == [both]
    assert (paused.actor, paused.reason) == (both, f"paused by {both}")
    assert brought is not None
    assert brought.actor == both
    assert runs.pause(rd.store, run, by).reason == f"paused by {both}"
    assert runs.cancel(rd.store, run, by).reason == f"cancelled by {both}"
    assert {each.actor for each in audit.operations(rd.store)} == {both}


def test_what_is_done_to_a_replay_is_told_with_its_status_and_the_letters_it_is_about(rd: Redrive) -> None:
    fail(rd, LOOSE, "a", "b", "c")
    begun = replays.start(rd.store, LetterFilter(pipeline="shop"), ANN, plan=PLAN)

    replays.pause(rd.store, begun.id, ANN)
    replays.resume(rd.store, begun.id, ANN)
    rd.work([LOOSE], until_idle=True)
    replays.cancel(rd.store, begun.id, ANN)
    replays.close(rd.store, begun.id, ANN, note="no room yet")

    started, *rest = audit.operations(rd.store)
    change = cast("dict[str, Any]", started.change or {})
    assert (started.verb, started.subject, started.letters) == ("replay", "replay 1", 3)
    assert (change["replay"], change["filter"]["pipeline"], change["plan"]["rate"]) == (1, "shop", 5.0)
    assert [told(each) for each in rest] == [
        ("pause", "replay 1", 3, {"status": "marking"}, {"status": "paused"}),
        ("resume", "replay 1", 3, {"status": "paused"}, {"status": "running"}),
        ("stop", "replay 1", 2, {"status": "running"}, {"status": "stopped"}),
        ("cancel", "replay 1", 2, {"status": "stopped"}, {"status": "cancelled"}),
        ("close", "replay 1", 1, {"status": "cancelled"}, {"status": "closed"}),
    ]
    assert rest[2].reason == "1 of 1 failed again with the same failure"
    (kept,) = [row.reason for row in rd.store.query(operation_sql.operations(limit=9)) if row.verb == "stop"]
    assert kept == '{"kind":"same_failures","same":1,"ended":1}'


def test_what_is_refused_is_not_on_record(rd: Redrive) -> None:
    fail(rd, LOOSE, "a")
    begun = replays.start(rd.store, LetterFilter(pipeline="shop"), ANN, plan=PLAN)
    rd.work([LOOSE], until_idle=True)
    before = len(audit.operations(rd.store))

    with pytest.raises(ReplayRefusedError):
        replays.resume(rd.store, begun.id, ANN)

    assert len(audit.operations(rd.store)) == before


def test_pausing_a_pipeline_tells_how_it_was_and_what_waits(rd: Redrive) -> None:
    rd.submit(LOOSE, "a")
    rd.submit(LOOSE, "b")

    pipelines.pause(rd.store, "shop", ANN)
    paused = last(rd)
    pipelines.resume(rd.store, "shop", ANN)

    waiting = {"status": "paused", "jobs_waiting": 2}
    assert paused == ("pause", "pipeline shop", None, {"status": "running"}, waiting)
    assert last(rd)[3:] == ({"status": "paused"}, {"status": "running", "jobs_waiting": 2})


def test_erasing_tells_what_was_erased(rd: Redrive) -> None:
    fail(rd, LOOSE, "a")
    edit(rd.store, 1, ANN, value=b'"b"')

    erase(rd.store, 1, ANN)

    kept, erased = {"values": "kept", "edits": 1}, {"values": "erased", "edits": 0}
    assert last(rd) == ("erase", "job 1", 1, kept, erased)


def test_values_that_leave_are_on_record_and_redacted_lines_are_not(rd: Redrive) -> None:
    fail(rd, LOOSE, "a", "b")
    group = get_letter(rd.store, 1).group

    list(export(rd.store, LetterFilter(group=group), ANN))
    assert audit.operations(rd.store) == []
    lines = export(rd.store, LetterFilter(group=group), Actor("ann", "for the supplier"), with_values=True)

    next(lines)
    (done,) = audit.operations(rd.store)
    assert len(list(lines)) == 1
    assert told(done) == ("export", f"group {group}", 2, {"values": "kept"}, {"values": "exported"})
    assert (done.actor, done.reason) == ("ann", "for the supplier")
    assert [each.verb for each in letter_details(rd.store, 2).operations] == ["export"]


def test_a_change_that_others_tell_is_redacted(rd: Redrive) -> None:
    change = {"before": {"note": "mail ann@example.com"}, "after": {}}

    rd.store.apply(ANN.log("move", Subject("file", "mail ann@example.com"), change=change))

    (done,) = audit.operations(rd.store)
    assert "example.com" not in f"{done.subject} {done.change}"
    assert done.letters is None


def refused(rd: Redrive, statement: str) -> None:
    rd.store.apply(ANN.log("note", Subject("letter", 1)))
    before = audit.operations(rd.store)

    with (
        pytest.raises((StoreRefusedError, psycopg.IntegrityError), match="append-only"),
        changing(rd) as db,
    ):
        db.execute(statement)

    assert audit.operations(rd.store) == before


@pytest.mark.parametrize("statement", ["UPDATE operations SET actor = 'eve'", "DELETE FROM operations"])
def test_the_log_is_append_only_in_the_store_itself(rd: Redrive, statement: str) -> None:
    refused(rd, statement)


@pytest.mark.sqlite
def test_no_row_of_the_log_is_replaced(rd: Redrive) -> None:
    refused(
        rd,
        "REPLACE INTO operations (id, at, actor, verb, subject_kind, subject_id) VALUES (1, 0, 'eve', 'note', 'letter', '1')",
    )


def test_the_log_is_read_page_by_page(rd: Redrive) -> None:
    for number in range(5):
        rd.store.apply(ANN.log("note", Subject("letter", number)))

    newest = audit.operations(rd.store, 2)
    earlier = audit.operations(rd.store, 2, before=newest[0].id)

    assert [each.subject for each in (*earlier, *newest)] == [f"letter {number}" for number in range(1, 5)]


def test_a_user_without_a_name_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_uid: int) -> str:
        raise KeyError("uid not found")

    known = present_user()
    monkeypatch.setenv("LOGNAME", "alice")
    assert present_user() == known != "alice"
    monkeypatch.setattr(pwd, "getpwuid", refuse)
    assert present_user() == "unknown"


def test_the_user_is_recorded_beside_what_was_claimed() -> None:
    assert Actor("alice", None, "mallory").line("prune", Subject("jobs", "all"))[1] == "alice (user mallory)"
    assert Actor("alice", "why", "mallory").hiding({}).text == "alice (user mallory)"
    assert [Actor("ann", None, user).text for user in (None, "ann")] == ["ann", "ann"]
