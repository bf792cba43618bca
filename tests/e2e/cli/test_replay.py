# SPDX-License-Identifier: Apache-2.0
"""A replay as an operator does it: inspect, triage, validate, replay, verify, close; and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from redrive import connect
from redrive.store.statements import operations as operation_sql
from tests.e2e.shell import ANN, Shell, prepared, work


def ledger(shell: Shell) -> list[str]:
    return (shell.folder / "ledger").read_text(encoding="utf-8").splitlines()


@pytest.fixture
def failed(shell: Shell) -> Shell:
    """Eight changes whose review failed because a key had expired."""
    return prepared(shell, "reviews", 8)


def made_ready(shell: Shell) -> None:
    shell.json("dlq", "triage", "--pipeline", "reviews", "--diagnosis", "auth_config", "--yes")
    shell.json(
        "dlq",
        "remediate",
        "--pipeline",
        "reviews",
        "--evidence",
        "the key was renewed, ticket 42",
        "--safe",
        "--yes",
    )


@pytest.mark.req("CR-5.1", "CR-5.2", "CR-5.3")
def test_a_replay_needs_a_diagnosis_evidence_and_a_confirmation(failed: Shell) -> None:
    refused = failed("replay", "start", "--pipeline", "reviews", "--yes")
    retried = failed("job", "retry", "1", "--yes")
    unconfirmed = failed("dlq", "remediate", "--pipeline", "reviews", "--evidence", "renewed", "--yes")
    made_ready(failed)
    letter = failed.json("dlq", "show", "1")

    assert (refused.code, retried.code) == (1, 1)
    assert "8 of 8 letters have no evidence" in refused.err
    assert "redrive dlq remediate" in refused.err
    assert "no evidence" in retried.err
    assert unconfirmed.code == 2
    assert letter["diagnosis"] == "auth_config"
    assert letter["evidence"] == "the key was renewed, ticket 42"
    assert letter["state"] == "ready"


@pytest.mark.untraced
@pytest.mark.req("CR-5.4", "CR-5.5")
def test_a_replay_goes_from_the_failed_stage_and_is_verified_and_closed(failed: Shell) -> None:
    made_ready(failed)
    failed.write("fixed")
    before = len(ledger(failed))

    checked = failed.json("dlq", "validate", "--pipeline", "reviews", "--target", "reviews_flow:reviews")
    begun = failed.json(
        "replay", "start", "--pipeline", "reviews", "--canary", "1,3", "--yes", "--reason", "renewed"
    )
    work(failed)
    ended = failed.json("replay", "status", str(begun["id"]), "--follow")
    closed = failed.json("replay", "close", str(begun["id"]), "--note", "eight reviews were sent")

    assert (checked["letters"], checked["able"], checked["is_fine"]) == (8, 8, True)
    assert (begun["status"], begun["letters"]) == ("marking", 8)
    assert begun["waits_for"] == "a worker that serves reviews"
    assert (ended["status"], ended["recovered"], ended["verified"], ended["stages_done"]) == (
        "done",
        8,
        8,
        16,
    )
    assert closed["note"] == "eight reviews were sent"
    again = ledger(failed)[before:]
    assert sorted(again) == sorted(
        f"{stage} change-{place}" for stage in ("llm", "notify") for place in range(8)
    )
    assert failed.json("stats") == {"complete": 8, "total": 8}
    letter = failed.json("dlq", "show", "1")
    assert (letter["state"], letter["outcome"]) == ("resolved", "completed")


@pytest.mark.req("CR-5.4")
def test_a_full_restart_happens_only_when_it_is_asked_for(failed: Shell) -> None:
    made_ready(failed)
    failed.write("fixed")
    failed.json("job", "retry", "1", "--yes")
    failed.json("job", "retry", "2", "--from-start", "--yes")
    work(failed)

    assert ledger(failed).count("fetch change-0") == 1
    assert ledger(failed).count("fetch change-1") == 2


@pytest.mark.req("CR-6.1")
def test_a_replay_that_meets_the_same_permanent_failure_stops_and_is_escalated(failed: Shell) -> None:
    made_ready(failed)
    begun = failed.json("replay", "start", "--pipeline", "reviews", "--yes")
    work(failed)
    stopped = failed("replay", "status", str(begun["id"]), "--follow", "-o", "json")
    report = stopped.json
    listed = failed.json("dlq", "list", "--state", "open")

    assert stopped.code == 3
    assert (report["status"], report["failed_again_same"], report["waiting"]) == ("stopped", 1, 7)
    assert [each["is_escalated"] for each in listed["letters"]] == [True]
    assert failed.json("dlq", "show", str(listed["letters"][0]["id"]))["follows"] == 1
    assert failed.json("stats") == {"failed": 8, "total": 8}


@pytest.mark.req("FG-5.1", "FG-5.2")
def test_the_dead_letters_of_one_stage_are_processed_again_with_the_fixed_stage(shell: Shell) -> None:
    prepared(shell, "samples", 5)
    letters = shell.json("dlq", "list", "--pipeline", "samples", "--stage", "llm")["letters"]
    shell.write("fixed")
    begun = shell.json("replay", "start", "--pipeline", "samples", "--stage", "llm", "--canary", "", "--yes")
    work(shell, "samples")

    assert {(each["stage"], each["code"]) for each in letters} == {("llm", "IO_DENIED")}
    assert all(each["last_failure_at"] for each in letters)
    report = shell.json("replay", "status", str(begun["id"]))
    assert (report["recovered"], report["failed_again_same"], report["skipped"]) == (5, 0, 0)


@pytest.mark.req("CR-4.1", "CR-4.2", "CR-4.3")
def test_a_dead_letter_tells_everything_an_operator_needs_and_no_secret(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL_KEY", "q8Zr4mN2vX7kP1sT")
    prepared(shell, "reviews", 1)
    shown = shell("dlq", "show", "1", "-o", "json")
    letter = shown.json

    assert {
        "error_class",
        "exception",
        "last_stack",
        "sanitized_context",
        "first_failure_at",
        "last_failure_at",
        "stage",
    } <= set(letter)
    assert "in llm" in letter["last_stack"]
    assert {"stage", "attempt", "http_status", "request_id", "input_sha256"} <= set(
        letter["sanitized_context"]
    )
    everything = "".join(
        shell(*command).out
        for command in (
            ("dlq", "show", "1"),
            ("dlq", "list"),
            ("dlq", "groups"),
            ("dlq", "export"),
            ("job", "explain", "1"),
            ("job", "show", "1"),
            ("events",),
        )
    )
    assert "q8Zr4mN2vX7kP1sT" not in everything + shown.out


def test_a_replay_is_paused_resumed_and_cancelled(shell: Shell) -> None:
    prepared(shell, "samples", 4)
    begun = shell.json("replay", "start", "--pipeline", "samples", "--yes")
    early = shell.json("replay", "pause", str(begun["id"]))
    shell.json("replay", "resume", str(begun["id"]))
    work(shell, "samples")
    resumed = shell.json("replay", "resume", str(begun["id"]))
    paused = shell.json("replay", "pause", str(begun["id"]), "--reason", "lunch")
    cancelled = shell.json("replay", "cancel", str(begun["id"]), "--yes")
    listed = shell.json("replay", "list")

    assert early["status"] == "paused"
    assert (resumed["status"], paused["status"], cancelled["status"]) == ("running", "paused", "cancelled")
    assert cancelled["left_out"] == 3
    assert [each["id"] for each in listed] == [begun["id"]]
    assert "4 letters" not in shell("replay", "list").err


def test_a_replay_with_wrong_options_is_refused(shell: Shell) -> None:
    prepared(shell, "samples", 1)
    wrong = {
        ("--pipeline", "samples", "--rate", "10"): "Give its unit: s, min, hour or day.",
        ("--pipeline", "samples", "--rate", "0/s"): '--rate must be a rate such as "500/min", above 0',
        ("--pipeline", "samples", "--canary", "5,1"): "--canary must rise, from 1 or more, got '5,1'",
        ("--pipeline", "samples", "--canary", "0,1"): "--canary must rise",
        ("--pipeline", "samples", "--canary", "1,x"): "whole numbers",
        ("--group", "v1:nothing"): "group",
    }

    for arguments, words in wrong.items():
        refused = shell("replay", "start", *arguments, "--yes")
        assert refused.code in {1, 2}
        assert words in refused.err
    assert shell.json("replay", "list") == []


def test_a_replay_over_nothing_or_of_nobody_knows_what_is_refused(shell: Shell) -> None:
    prepared(shell, "samples", 1)

    assert "nothing to replay" in shell("replay", "start", "-p", "samples", "--stage", "fetch", "--yes").err
    assert "Known here: samples." in shell("replay", "start", "--pipeline", "reviews", "--yes").err
    assert "or a filter is required" in shell("replay", "start", "--yes").err
    assert "there is no replay 7" in shell("replay", "status", "7").err
    assert "there is no job 99" in shell("job", "retry", "99", "--yes").err
    no = shell("replay", "start", "--pipeline", "samples", stdin="n\n")
    assert no.code == 1
    assert shell.json("replay", "list") == []


def test_two_operators_cannot_start_the_same_replay(shell: Shell) -> None:
    prepared(shell, "samples", 3)
    shell.json("replay", "start", "--pipeline", "samples", "--yes")

    second = shell("replay", "start", "--pipeline", "samples", "--yes")

    assert second.code == 1
    assert "another replay of this pipeline is still marking its letters" in second.err


def test_everything_that_was_done_is_on_record(failed: Shell) -> None:
    made_ready(failed)
    failed("replay", "start", "--pipeline", "reviews", "--yes", "--actor", "ann", "--reason", "renewed")
    with connect() as rd:
        done = rd.store.query(operation_sql.operations(limit=10))[0]

    assert (done.actor, done.verb, done.subject, done.reason) == (ANN, "replay", "replay 1", "renewed")


@pytest.fixture
def short(shell: Shell) -> Shell:
    """Three samples that failed: the key of the first is a newer job's, the second has lost its values."""
    prepared(shell, "samples", 0)
    for number in (1, 2, 3):
        shell("submit", "reviews_flow:samples", f'{{"id": "change-{number}"}}', "--key", f"k{number}")
        # One after the other, so that a letter has the number of its job.
        work(shell, "samples")
    shell("submit", "reviews_flow:samples", '{"id": "change-1"}', "--key", "k1")
    shell("job", "erase", "2", "--yes")
    return shell


def test_a_dry_run_tells_all_that_stands_in_the_way_of_a_letter(short: Shell) -> None:
    short("job", "erase", "1", "--yes")

    told = short("dlq", "validate", "--pipeline", "samples", "--target", "reviews_flow:samples", "-o", "json")

    found = told.json
    assert told.code == 1
    assert [(each["letter"], each["kind"]) for each in found["findings"]] == [
        (1, "erased"),
        (1, "key"),
        (2, "erased"),
    ]
    assert (found["obstacles"], found["able"], found["unlisted"]) == ({"erased": 2, "key": 1}, 1, 0)


def test_the_report_names_the_letters_that_were_left_out_and_the_job_that_has_a_key(short: Shell) -> None:
    Path(short.folder, "fixed").touch()
    short("replay", "start", "--pipeline", "samples", "--canary", "", "--yes")
    work(short, "samples")

    report = short.json("replay", "status", "1")
    shown = short("replay", "status", "1").out

    assert (report["recovered"], report["skipped"]) == (1, 2)
    assert [(each["kind"], each["letters"], each["first"]) for each in report["skips"]] == [
        ("erased", 1, [2]),
        ("key", 1, [1]),
    ]
    assert report["skipped_letters"][0] == {
        "letter": 1,
        "kind": "key",
        "job": 4,
        "stage": None,
        "detail": None,
        "reason": "a newer job has its key (job 4)",
    }
    assert "1 (job 4)" in shown


def test_what_is_not_listed_of_a_report_or_a_dry_run_is_counted(
    short: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    short("job", "erase", "3", "--yes")
    monkeypatch.setattr("redrive.ops.replay.validation.LISTED_MAX", 1)
    monkeypatch.setattr("redrive.ops.replay.progress.FIRST_MAX", 1)
    dry = short("dlq", "validate", "--pipeline", "samples")
    short("replay", "start", "--pipeline", "samples", "--canary", "", "--yes")
    work(short, "samples")

    report = short("replay", "status", "1")

    assert "2 more letters not listed" in dry.err
    assert "2, and 1 more" in report.out
    assert "redrive replay status 1 -o json" in report.err


def test_the_owner_of_a_job_retries_it_where_the_code_allows_that(shell: Shell) -> None:
    prepared(shell, "uploads", 0)
    shell("submit", "reviews_flow:uploads", '{"id": "change-1"}', "--owner", "ann")
    work(shell, "uploads")
    Path(shell.folder, "fixed").touch()

    without = shell("job", "retry", "1")
    stranger = shell("job", "retry", "1", "--as-owner", "--actor", "bob")
    owner = shell("job", "retry", "1", "--as-owner", "--actor", "ann", "--yes")
    work(shell, "uploads")

    assert (without.code, stranger.code, owner.code) == (1, 1, 0)
    assert "Its owner needs none, with --as-owner." in without.err
    assert "is not owned by 'bob'" in stranger.err
    assert "Retry job" not in without.err + stranger.err
    assert shell.json("job", "show", "1")["status"] == "complete"
