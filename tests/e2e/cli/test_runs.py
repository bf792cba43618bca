# SPDX-License-Identifier: Apache-2.0
"""Runs from the command line: started, judged, stopped by their budget, held, resumed."""

from __future__ import annotations

import importlib
import json
import signal

import pytest

from redrive import Pipeline, connect
from redrive.engine.pipeline import submission
from redrive.store.statements import jobs as job_sql
from tests.e2e.shell import Shell, until


def test_a_run_that_completes_ends_with_0(shell: Shell) -> None:
    shell.write("items.jsonl", *range(1, 6))

    ended = shell("run", "start", "flows:orders", "--items", "items.jsonl", "-o", "json")

    assert ended.code == 0
    assert ended.json == {
        "id": 1,
        "pipeline": "orders",
        "status": "completed",
        "total": 5,
        "succeeded": 5,
        "dead": 0,
        "cancelled": 0,
        "skipped": 0,
        "key": None,
        "label": None,
        "owner": None,
        "children": 0,
        "open": 0,
        "reason": None,
    }


@pytest.mark.parametrize(("items", "status"), [((1, 0), "partial_success"), ((0, 0, 1), "failed")])
def test_a_run_of_which_too_much_failed_ends_with_1(
    shell: Shell, items: tuple[int, ...], status: str
) -> None:
    shell.write("items.jsonl", *items)

    ended = shell("run", "start", "flows:orders", "--items", "items.jsonl", "-o", "json")

    assert (ended.code, ended.json["status"]) == (1, status)


def test_items_come_from_standard_input(shell: Shell) -> None:
    ended = shell("run", "start", "flows:orders", "--items", "-", stdin="1\n2\n")

    assert ended.code == 0
    assert "completed" in ended.out


def test_a_run_that_spends_its_budget_is_aborted_and_accounts_for_every_item(shell: Shell) -> None:
    shell.write("items.jsonl", *range(30))

    ended = shell(
        *("run", "start", "flows:sleepers", "--items", "items.jsonl", "-o", "json"),
        *("--failure-budget", "0.2", "--check-every", "5", "--concurrency", "4"),
    )

    assert ended.code == 1
    assert ended.json["status"] == "aborted"
    # Looked at when five have ended; what was in a stage by then ends it first.
    assert 5 <= ended.json["dead"] <= 10
    assert (ended.json["dead"] + ended.json["cancelled"], ended.json["open"]) == (30, 0)
    assert "finished jobs failed (100.0%), the budget is 20.0%" in ended.err


@pytest.mark.parametrize(("minimum", "status"), [("5", "aborted"), ("6", "failed")])
def test_a_budget_is_not_judged_before_the_smallest_sample(shell: Shell, minimum: str, status: str) -> None:
    shell.write("items.jsonl", *[0] * 5)
    budget = ("--failure-budget", "0.2", "--min-finished", minimum)

    ended = shell("run", "start", "flows:orders", "--items", "items.jsonl", "-o", "json", *budget)

    assert (ended.code, ended.json["status"]) == (1, status)


def test_a_run_that_spends_its_budget_may_pause_instead(shell: Shell) -> None:
    shell.write("items.jsonl", *range(30))
    budget = ("--failure-budget", "0.2", "--check-every", "5", "--on-budget", "pause")

    paused = shell("run", "start", "flows:sleepers", "--items", "items.jsonl", "-o", "json", *budget)

    assert (paused.code, paused.json["status"]) == (3, "paused")
    assert "redrive run resume 1" in paused.err


def test_a_run_that_stopped_at_its_budget_is_resumed_with_a_larger_one(shell: Shell) -> None:
    shell.write("items.jsonl", *[0, 1] * 20)
    budget = ("--failure-budget", "0.2", "--check-every", "5", "--on-budget", "pause")
    paused = shell("run", "start", "flows:orders", "--items", "items.jsonl", "-o", "json", *budget)
    assert (paused.code, paused.json["status"]) == (3, "paused")

    same = shell("run", "resume", "1", "-o", "json")
    larger = shell("run", "resume", "1", "-o", "json", "--failure-budget", "0.9")

    assert (same.code, same.json["status"]) == (3, "paused")
    assert (larger.code, larger.json["status"], larger.json["open"]) == (1, "partial_success", 0)
    assert shell("run", "show", "1", "-o", "json").json["failure_budget"] == 0.9


def test_a_run_whose_rest_is_held_ends_with_3_and_goes_on_when_resumed(shell: Shell) -> None:
    shell.write("items.jsonl", 1, 2, 3)
    shell("migrate")
    shell("breaker", "isolate", "model", "--new", "--yes")

    held = shell("run", "start", "flows:asking", "--items", "items.jsonl", "--hold-max", "0", "-o", "json")
    (shell.folder / "items.jsonl").unlink()  # It was read to its end, and is needed no more.
    shell("breaker", "close", "model")
    with connect() as rd:
        # A closed breaker lets calls go gradually; this one has been closed for long.
        state = rd.store.breaker("model")
        rd.store.swap_breaker("model", state, b"{}")
    resumed = shell("run", "resume", "1", "-o", "json")

    assert (held.code, held.json["status"], held.json["open"]) == (3, "paused", 3)
    assert "held for 0 s" in held.json["reason"]
    assert (resumed.code, resumed.json["status"]) == (0, "completed")


def test_an_interrupted_run_says_how_to_go_on(shell: Shell) -> None:
    shell.write("items.jsonl", *range(10, 13))
    running = shell.start("run", "start", "flows:sleepers", "--items", "items.jsonl")
    with connect() as rd:
        # A signal before the first look at a job would find a process that cannot hear it yet.
        until(lambda: rd.store.query(job_sql.last_event())[0] == 3, running)

        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)

    assert running.returncode == 3, err
    assert "running" in out
    assert "redrive run resume 1" in err


def test_runs_are_listed_and_shown_with_what_failed(shell: Shell) -> None:
    source = shell.write("items.jsonl", 1, 0, 13)
    shell("run", "start", "flows:orders", "--items", source)

    listed = shell.json("run", "list")
    shown = shell.json("run", "show", "1")

    assert [(run["id"], run["total"], run["dead"]) for run in listed] == [(1, 3, 2)]
    assert shown["failures"] == {"BUG_CODE": 1, "NETWORK_RESET": 1}
    assert (shown["target"], shown["source"]) == ("flows:orders", str(shell.folder / source))
    assert (shown["failure_budget"], shown["is_fed"]) == (0.1, True)
    assert "BUG_CODE: 1" in shell("run", "show", "1").out


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["run", "show", "9"], 1, "The latest runs: 1"),
        (["run", "resume", "9"], 1, "The latest runs: 1"),
        (["run", "resume", "1"], 1, "has ended as completed"),
        (["run", "resume", "1", "--target", "flows:asking"], 1, "belongs to the pipeline orders"),
        (["run", "start", "flows:orders"], 2, "--items"),
        (["run", "start", "flows:orders", "--items", "missing.jsonl"], 2, "cannot be read"),
        (["run", "start", "flows:orders", "--items", "bad.jsonl"], 2, "bad.jsonl, line 2 must be JSON"),
        (["run", "start", "flows:orders", "--items", "items.jsonl", "--failure-budget", "2"], 2, "max_rate"),
        (["run", "start", "flows:orders", "--items", "items.jsonl", "--on-budget", "cry"], 2, "--on-budget"),
    ],
)
def test_what_cannot_be_run_is_refused(shell: Shell, arguments: list[str], code: int, words: str) -> None:
    shell.write("bad.jsonl", 1, "{")
    shell.write("items.jsonl", 1)
    shell("run", "start", "flows:orders", "--items", "items.jsonl")

    ended = shell(*arguments)

    assert ended.code == code
    assert words in ended.err
    assert len(shell.json("run", "list")) == 1


def test_a_line_that_breaks_off_on_standard_input_leaves_a_run_to_resume(shell: Shell) -> None:
    ended = shell("run", "start", "flows:orders", "--items", "-", stdin="1\n{oops\n")

    assert ended.code == 2
    assert "standard input, line 2 must be JSON" in ended.err
    assert "redrive run resume 1" in ended.err
    assert shell.json("run", "show", "1")["status"] == "paused"
    refused = shell("run", "resume", "1")
    assert refused.code == 2
    assert "--items is needed to resume run 1" in refused.err
    shell.write("mended.jsonl", 1, 2)
    resumed = shell("run", "resume", "1", "--items", "mended.jsonl", "-o", "json")
    assert (resumed.code, resumed.json["total"]) == (0, 2)


def test_an_item_that_is_too_large_is_refused_by_its_line_before_a_run_is_made(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "PAYLOAD_MAX", 3)
    shell.write("items.jsonl", 1, "", 10_000)

    ended = shell("run", "start", "flows:orders", "--items", "items.jsonl")

    assert ended.code == 2
    assert "items.jsonl, line 3: " in ended.err
    assert "the limit is 3 bytes" in ended.err
    assert not (shell.folder / "redrive.db").exists()


def test_a_run_that_was_read_to_its_end_is_not_resumed_with_another_file(shell: Shell) -> None:
    shell.write("items.jsonl", 0, 1)
    shell.write("other.jsonl", 0, 2)
    budget = ("--failure-budget", "0.2", "--min-finished", "2", "--on-budget", "pause")
    shell("run", "start", "flows:orders", "--items", "items.jsonl", *budget)

    refused = shell("run", "resume", "1", "--items", "other.jsonl")
    shown = shell.json("run", "show", "1")
    resumed = shell("run", "resume", "1", "--items", "items.jsonl", "-o", "json")

    assert refused.code == 1
    assert "no longer yields the same item at position 1" in refused.err
    assert (shown["status"], "finished jobs failed" in shown["reason"]) == ("paused", True)
    assert (resumed.code, resumed.json["status"]) == (1, "partial_success")


def test_somebody_who_watches_sees_how_far_a_run_is(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.cli.commands.run.is_interactive", lambda: True)
    shell.write("items.jsonl", 1, 2)

    assert shell("run", "start", "flows:orders", "--items", "items.jsonl").code == 0


def test_a_run_of_a_program_is_paused_labelled_resumed_and_worked_on(shell: Shell) -> None:
    with connect() as rd:
        rd.runs.open(_orders(shell), [1, 0, 2], key="batch-7", label="morning")

    paused = shell.json("run", "pause", "1", "--reason", "maintenance")
    held = shell("worker", "flows:orders", "--until-idle")
    labelled = shell.json("run", "label", "1", "noon")
    resumed = shell.json("run", "resume", "1")
    shell("worker", "flows:orders", "--until-idle")
    shown = shell.json("run", "show", "1")

    assert (paused["status"], held.code, labelled["label"], resumed["status"]) == (
        "paused",
        3,
        "noon",
        "running",
    )
    assert (shown["status"], shown["succeeded"], shown["dead"]) == ("partial_success", 2, 1)
    assert "batch-7" in shell("run", "show", "1").out
    verbs = [each["verb"] for each in shell.json("events", "--operations")]
    assert verbs == ["pause", "label", "resume"]
    lines = [json.loads(line) for line in shell("run", "results", "1").out.splitlines()]
    assert [(line["item"], line["status"], line["value"]) for line in lines] == [
        (0, "complete", 10.0),
        (1, "failed", None),
        (2, "complete", 5.0),
    ]
    assert [line["job"] for line in shell.json("dlq", "list", "--run", "1")["letters"]] == [2]
    assert [line["id"] for line in shell.json("job", "list", "--run", "1", "--status", "failed")] == [2]


def test_a_run_is_cancelled_after_asking(shell: Shell) -> None:
    with connect() as rd:
        rd.runs.open(_orders(shell), [1, 2])

    refused = shell("run", "cancel", "1")
    done = shell.json("run", "cancel", "1", "--yes", "--reason", "wrong file")
    again = shell("run", "cancel", "1", "--yes")

    assert (refused.code, "Cancel run 1 with 2 open items?" in refused.err) == (1, True)
    assert (done["status"], done["cancelled"]) == ("cancelled", 2)
    assert (again.code, "it is cancelled and cannot be cancelled" in again.err) == (1, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "pause", "9"),
        ("run", "label", "9", "x"),
        ("run", "results", "9"),
        ("dlq", "list", "--run", "9"),
        ("run", "resume", "9"),
    ],
)
def test_an_unknown_run_is_refused(shell: Shell, arguments: tuple[str, ...]) -> None:
    connect().close()

    ended = shell(*arguments)

    assert ended.code == 1
    assert "there is no such run" in ended.err


def _orders(shell: Shell) -> Pipeline:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(shell.folder))
        pipeline = importlib.import_module("flows").orders
    assert isinstance(pipeline, Pipeline)
    return pipeline
