# SPDX-License-Identifier: Apache-2.0
"""Submitting, looking at and cancelling jobs from the command line."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from redrive import connect
from tests.e2e.shell import ANN, Shell, program


@pytest.mark.traced_programs
def test_submit_work_and_look_as_separate_programs(shell: Shell) -> None:
    shell.write("items.jsonl", 1, 2, "", 0)

    def redrive(*arguments: str) -> tuple[int, str, str]:
        ran = program(*arguments, cwd=shell.folder)
        return ran.returncode, ran.stdout, ran.stderr

    assert redrive("submit", "flows:orders", "--file", "items.jsonl")[0] == 0
    assert redrive("worker", "flows:orders", "--until-idle")[:2] == (0, "")
    assert shell.json("stats") == {"complete": 2, "failed": 1, "total": 3}


def test_a_file_of_payloads_is_submitted(shell: Shell) -> None:
    shell.write("items.jsonl", 1, 2, "", 0)

    submitted = shell.json("submit", "flows:orders", "--file", "items.jsonl", "--owner", "ann")

    assert submitted == {"submitted": 3, "first": 1, "last": 3}
    with connect() as rd:
        assert {rd.job(each).facts.owner for each in (1, 2, 3)} == {"ann"}


def test_payloads_are_read_from_standard_input(shell: Shell) -> None:
    ended = shell("submit", "flows:orders", "--file", "-", "-o", "json", stdin="1\n2\n")

    assert ended.json == {"submitted": 2, "first": 1, "last": 2}


def test_an_empty_file_submits_nothing(shell: Shell) -> None:
    shell.write("items.jsonl")

    assert shell.json("submit", "flows:orders", "--file", "items.jsonl") == {
        "submitted": 0,
        "first": None,
        "last": None,
    }


def test_more_payloads_than_fit_into_one_transaction(shell: Shell) -> None:
    shell.write("items.jsonl", *range(1, 2_502))

    submitted = shell.json("submit", "flows:orders", "--file", "items.jsonl")

    assert submitted == {"submitted": 2_501, "first": 1, "last": 2_501}


def test_one_payload_with_a_key_is_submitted_once(shell: Shell) -> None:
    first, second = (shell.json("submit", "flows:orders", "5", "--key", "a") for _ in range(2))

    assert first == {"submitted": 1, "first": 1, "last": 1, "is_duplicate": False}
    assert second == {"submitted": 0, "first": 1, "last": 1, "is_duplicate": True}
    assert shell.json("stats") == {"queued": 1, "total": 1}


def test_when_a_job_may_run_is_an_instant_or_a_distance(shell: Shell) -> None:
    shell("submit", "flows:orders", "5", "--run-at", "2099-03-01T08:00:00+01:00", "--priority", "2")
    shell("submit", "flows:orders", "5", "--run-at", "+2d")

    with connect() as rd:
        first, second = rd.job(1).facts, rd.job(2).facts
    assert (first.run_at, first.priority) == (datetime(2099, 3, 1, 7, tzinfo=UTC), 2)
    assert (second.run_at - second.created_at).total_seconds() == pytest.approx(172_800, abs=5)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["submit", "flows", "1"], "must name a module and a pipeline"),
        (["submit", "nowhere:orders", "1"], "There is no module nowhere"),
        (["submit", "flow:orders", "1"], "Did you mean flows?"),
        (["submit", "flows:ordres", "1"], "Did you mean orders? Its pipelines: orders"),
        (["submit", "flows:stage", "1"], "Its pipelines: orders"),
        (["submit", "flows:orders"], "exactly one of the two"),
        (["submit", "flows:orders", "1", "--file", "x"], "exactly one of the two"),
        (["submit", "flows:orders", "{"], "must be JSON"),
        (["submit", "flows:orders", '"five"'], "Expected `int`"),
        (["submit", "flows:orders", "--file", "missing.jsonl"], "No such file"),
        (["submit", "flows:orders", "--file", "flows.py", "--key", "k"], "is for one job"),
        (["submit", "flows:orders", "1", "--run-at", "2099-03-01T08:00:00"], "with its time zone"),
        (["submit", "flows:orders", "1", "--run-at", "+soon"], "must be a duration"),
        (["submit", "flows:orders", "1", "--priority", "10"], "from 0 to 9"),
        (["worker", "flows:orders", "--concurrency", "0"], "at least 1"),
        (["worker", "flows:orders", "--processes", "0"], "at least 1"),
        (["worker", "flows:orders", "flows:orders"], "is given twice"),
        (["stats", "--database-url", "mysql://u:secret@h/d"], "must be a path"),
        (["submit", "flows:orders", "1", "--database-url", "mysql://u:secret@h/d"], "must be a path"),
        (["doctor", "--database-url", "sqlite:///"], "must be a path"),
    ],
)
def test_wrong_input_is_refused_with_a_hint_and_exit_code_2(
    shell: Shell, arguments: list[str], words: str
) -> None:
    ended = shell(*arguments)

    assert ended.code == 2
    assert words in ended.err
    assert ended.err.startswith("error: ")
    assert "secret@" not in ended.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import nothing_like_that\n", "broken.py, line 1: ModuleNotFoundError"),
        ("x = 1\ny = 1 / 0\n", "broken.py, line 2: ZeroDivisionError"),
        ("def f(:\n", "broken.py, line 1: SyntaxError"),
        ("raise ValueError('password=hunter2-hunter2')\n", "broken.py, line 1: ValueError"),
    ],
)
def test_a_module_that_cannot_be_imported_says_where_and_why(shell: Shell, text: str, words: str) -> None:
    (shell.folder / "broken.py").write_text(text, encoding="utf-8")

    ended = shell("submit", "broken:orders", "1")

    assert ended.code == 2
    assert "cannot be imported" in ended.err
    assert words in ended.err
    assert "hunter2" not in ended.err


@pytest.mark.parametrize(
    ("lines", "words"), [((1, "{oops"), "line 2 must be JSON"), ((1, 2, '"x"'), "line 3: ")]
)
def test_a_bad_line_of_a_file_is_named_and_nothing_is_submitted(
    shell: Shell, lines: tuple[object, ...], words: str
) -> None:
    shell.write("items.jsonl", *lines)

    ended = shell("submit", "flows:orders", "--file", "items.jsonl")

    assert ended.code == 2
    assert words in ended.err
    assert not Path("redrive.db").exists()


def test_the_story_of_a_job(shell: Shell) -> None:
    shell("submit", "flows:orders", "13")
    shell("worker", "flows:orders", "--until-idle")

    told = shell.json("job", "show", "1")
    shown = shell("job", "show", "1").out

    assert told["error_code"] == "NETWORK_RESET"
    assert [(each["attempt"], each["outcome"]) for each in told["attempts"]] == [(1, "retry"), (2, "dead")]
    assert told["dead_letter"]["state"] == "open"
    assert datetime.fromisoformat(told["created_at"]).tzinfo is not None
    for words in ("NETWORK_RESET", "none is left", "dead letter 1 (open)", "ConnectionResetError"):
        assert words in shown


def test_the_result_of_a_job_is_not_in_its_story(shell: Shell) -> None:
    shell("submit", "flows:orders", "5")
    shell("worker", "flows:orders", "--until-idle")

    told = shell.json("job", "show", "1")

    assert (told["status"], told["dead_letter"]) == ("complete", None)
    assert not {"payload", "result", "input"} & set(told)


@pytest.mark.parametrize("verb", ["show", "cancel"])
def test_an_unknown_id_names_those_that_are_near(shell: Shell, verb: str) -> None:
    shell("submit", "flows:orders", "5")
    shell("submit", "flows:orders", "5")

    near, far = shell("job", verb, "5"), shell("job", verb, "99999999999999999999")

    assert (near.code, far.code) == (1, 1)
    assert "there is no job 5" in near.err
    assert "Close to it are: 1, 2" in near.err
    assert "The last job is 2" in far.err


def test_in_an_empty_database_there_is_no_job_near(shell: Shell) -> None:
    shell("migrate")

    assert "There are no jobs" in shell("job", "show", "1").err
    assert "no jobs match" in shell("job", "list").err
    assert shell.json("job", "list") == []


def test_a_secret_in_a_reason_is_not_written_down(shell: Shell) -> None:
    shell("submit", "flows:orders", "5")

    shell("pipeline", "pause", "orders", "--reason", "password=hunter2-hunter2 leaked")

    (done,) = shell.json("events", "--operations")
    assert "leaked" in done["reason"]
    assert "hunter2" not in done["reason"]


def test_jobs_are_listed_page_by_page_and_by_what_they_are(shell: Shell) -> None:
    shell.write("items.jsonl", 1, 0, 2, 0, 3)
    shell("submit", "flows:orders", "--file", "items.jsonl", "--owner", "ann")
    shell("worker", "flows:orders", "--until-idle")
    shell("submit", "flows:sleepers", "1")

    def ids(*arguments: str) -> list[int]:
        return [job["id"] for job in shell.json("job", "list", *arguments)]

    assert ids() == [6, 5, 4, 3, 2, 1]
    assert ids("-n", "2") == [6, 5]
    assert ids("-n", "2", "--before", "5") == [4, 3]
    assert ids("--status", "failed") == [4, 2]
    assert ids("--pipeline", "sleepers") == [6]
    assert ids("--stage", "halve", "--owner", "ann", "-s", "complete") == [5, 3, 1]
    assert "more: --before 5" in shell("job", "list", "-n", "2").err
    assert "BUG_CODE" in shell("job", "list", "-s", "failed").out


def test_a_queued_job_is_cancelled_after_asking_and_it_is_on_record(shell: Shell) -> None:
    shell("submit", "flows:orders", "5")

    refused = shell("job", "cancel", "1", stdin="n\n")
    done = shell.json("job", "cancel", "1", "--yes", "--reason", "not wanted", "--actor", "ann")

    assert refused.code == 1
    assert done == {"id": 1, "status": "cancelled", "is_cancel_asked": False}
    (operation,) = shell.json("job", "show", "1")["operations"]
    assert (operation["actor"], operation["verb"], operation["reason"]) == (ANN, "cancel", "not wanted")
    assert "not wanted" in shell("job", "show", "1").out


def test_a_job_that_has_ended_cannot_be_cancelled(shell: Shell) -> None:
    shell("submit", "flows:orders", "5")
    shell("worker", "flows:orders", "--until-idle")

    ended = shell("job", "cancel", "1", "--yes")

    assert ended.code == 1
    assert "is already complete" in ended.err


@pytest.mark.parametrize("command", [("job", "list"), ("events",)])
def test_a_pipeline_that_is_not_known_is_answered_with_those_that_are_near(
    shell: Shell, command: tuple[str, ...]
) -> None:
    shell("submit", "flows:orders", "1")

    near = shell(*command, "-p", "order")
    far = shell(*command, "-p", "nope", "-o", "json")
    known = shell(*command, "-p", "orders")

    assert (near.code, far.code, known.code) == (1, 1, 0)
    assert "Did you mean orders?" in near.err
    assert "Known here: orders." in far.err
    assert "not known here" not in known.err
