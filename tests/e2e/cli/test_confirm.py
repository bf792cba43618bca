# SPDX-License-Identifier: Apache-2.0
"""Before a change of dead letters, a command prints how many will change and which not; with nothing to change, it does not ask."""

from __future__ import annotations

import re

import pytest

from redrive import connect
from tests.e2e.shell import Shell, letter, prepared
from tests.embedded import change_rows


def test_the_question_is_about_what_will_change_and_says_what_stays(shop: Shell) -> None:
    shop("dlq", "triage", "1", "-d", "data", "--yes")

    refused = shop("dlq", "remediate", "--pipeline", "shop", "-e", "fixed", "--safe", stdin="n\n")
    done = shop("dlq", "remediate", "--pipeline", "shop", "-e", "fixed", "--safe", stdin="y\n")

    assert (refused.code, done.code) == (1, 0)
    assert "Record this evidence for 1 of 2 dead letters (1 triaged)?" in refused.err
    assert "1 will not change: it is open: triage it first, or give a diagnosis as well" in refused.err
    assert [letter(shop, number)["state"] for number in (1, 2)] == ["ready", "open"]


def test_with_nothing_to_change_nobody_is_asked(shop: Shell) -> None:
    asked = shop("dlq", "remediate", "--pipeline", "shop", "-e", "fixed", "--safe")
    told = shop("dlq", "restore", "--pipeline", "shop", "-o", "json")

    assert (asked.code, told.code) == (1, 1)
    assert "?" not in asked.err
    assert "2 not changed: they are open: triage them first, or give a diagnosis as well" in asked.err
    assert "nothing was changed" in asked.err
    assert told.json == {
        "subject": "filter pipeline=shop",
        "count": 2,
        "changed": 0,
        "left": {"it is open": 2},
    }


def test_evidence_with_a_diagnosis_is_asked_about_for_open_letters_too(shop: Shell) -> None:
    done = shop("dlq", "remediate", "--pipeline", "shop", "-e", "fixed", "--safe", "-d", "data", stdin="y\n")

    assert "Record this evidence for 2 dead letters (2 open)?" in done.err
    assert done.code == 0


def test_a_replay_that_is_watched_tells_progress_and_how_long_it_takes(shell: Shell) -> None:
    prepared(shell, "samples", 3)
    begun = shell("replay", "start", "--pipeline", "samples", "--canary", "", "--rate", "2/s", stdin="y\n")
    with connect() as rd:
        change_rows(rd, "UPDATE dead_letters SET replay_id = 1")
        change_rows(rd, "UPDATE replays SET status = 'running', marked_to = cutoff")

    shown = shell("replay", "status", "1")
    shell("replay", "pause", "1", "--reason", "lunch")
    watched = shell("replay", "status", "1", "--follow")

    assert "Replay 3 dead letters of samples from the stage that failed?" in begun.err
    facts = dict(
        re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in shown.out.splitlines() if "  " in line
    )
    assert (facts["time left"], facts["rate"]) == ("about 1.5 s", "2 per second")
    assert facts["filter"] == "pipeline: samples"
    assert watched.code == 3
    assert (
        "replay 1 paused: 0 recovered, 0 failed again, 0 in progress, 3 waiting;"
        " it waits for an operator to resume or cancel it: paused by"
    ) in watched.err
    assert "(lunch)" in watched.err


def test_a_replay_in_progress_is_told_with_the_time_that_is_left(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(shell, "samples", 3)
    shell("replay", "start", "--pipeline", "samples", "--canary", "", "--rate", "2/s", "--yes")
    with connect() as rd:
        change_rows(rd, "UPDATE dead_letters SET replay_id = 1")
        change_rows(rd, "UPDATE replays SET status = 'running', marked_to = cutoff")
        reports = [rd.replays.status(1)]
        rd.replays.pause(1)
        reports.append(rd.replays.status(1))
    monkeypatch.setattr("redrive.cli.output.replay.POLL_SECONDS", 0.0)
    monkeypatch.setattr("redrive.cli.output.replay.report_of", lambda *_: reports.pop(0))

    watched = shell("replay", "status", "1", "--follow")

    running, paused = (line for line in watched.err.splitlines() if line.startswith("replay 1 "))
    assert running.endswith("; about 1.5 s left")
    assert "left" not in paused


def test_what_has_ended_is_not_cancelled_and_nobody_is_asked(shell: Shell) -> None:
    prepared(shell, "samples", 1)
    shell("replay", "start", "--pipeline", "samples", "--yes")
    asked = shell("replay", "cancel", "1", stdin="y\n")

    again = shell("replay", "cancel", "1")

    assert "Cancel replay 1 with 1 dead letter not replayed?" in asked.err
    assert (asked.code, again.code) == (0, 1)
    assert "it is cancelled and cannot be cancelled" in again.err
    assert "?" not in again.err


def test_a_note_that_would_be_cut_is_refused(shell: Shell) -> None:
    prepared(shell, "samples", 1)
    shell("replay", "start", "--pipeline", "samples", "--yes")
    shell("replay", "cancel", "1", "--yes")

    refused = shell("replay", "close", "1", "--note", "x" * 9_000)

    assert refused.code == 2
    assert "--note must have at most" in refused.err
    assert shell.json("replay", "status", "1")["closed_at"] is None


def test_who_is_left_out_and_what_was_edited_in_vain_is_said(shell: Shell) -> None:
    prepared(shell, "samples", 2)
    shell("dlq", "edit", "1", "--input", "-", "--yes", stdin='"change-9"')

    refused = shell("replay", "start", "--pipeline", "samples", "--from-start", stdin="n\n")
    shell("replay", "start", "--pipeline", "samples", "--yes")
    cancelled = shell("replay", "cancel", "1", "--yes")

    assert (
        "1 edit will be ignored: this replay starts from the payload, but the stage input was edited"
        in refused.err
    )
    assert "2 left out: released when the replay was cancelled" in cancelled.err


def test_letters_of_another_replay_are_said_to_stay_with_it(shell: Shell) -> None:
    prepared(shell, "samples", 3)
    shell("replay", "start", "1", "--yes")
    with connect() as rd:
        change_rows(rd, "UPDATE dead_letters SET replay_id = 1 WHERE id = 1")
        change_rows(rd, "UPDATE replays SET status = 'running', marked_to = cutoff")

    asked = shell("replay", "start", "--pipeline", "samples", stdin="n\n")

    assert "1 dead letter left out: marked by another replay" in asked.err
    assert "Replay 2 dead letters of samples" in asked.err
