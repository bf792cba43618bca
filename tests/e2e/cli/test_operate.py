# SPDX-License-Identifier: Apache-2.0
"""Operating from the command line: pipelines, breakers, events, stats, schedules."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from redrive import connect
from redrive.engine.clock import SystemClock
from tests.e2e.shell import ANN, Shell


def test_a_paused_pipeline_is_not_worked_on_until_it_is_resumed(shell: Shell) -> None:
    shell("submit", "flows:orders", "5")

    paused = shell.json("pipeline", "pause", "orders", "--reason", "a migration")
    listed = shell.json("pipeline", "list")
    held = shell("worker", "flows:orders", "--until-idle")
    resumed = shell.json("pipeline", "resume", "orders")
    done = shell("worker", "flows:orders", "--until-idle")

    assert paused == {"pipeline": "orders", "is_paused": True}
    assert listed[0]["paused_at"] is not None
    assert (listed[0]["name"], listed[0]["stages"], listed[0]["queued"]) == ("orders", ["fetch", "halve"], 1)
    assert held.code == 3
    assert "held" in held.err
    assert resumed == {"pipeline": "orders", "is_paused": False}
    assert done.code == 0
    assert shell.json("stats") == {"complete": 1, "total": 1}


def test_pausing_twice_and_resuming_what_runs_say_so(shell: Shell) -> None:
    shell("submit", "flows:orders", "5")

    assert "was not paused" in shell("pipeline", "resume", "orders").err
    assert shell("pipeline", "pause", "orders").err == ""
    assert "was already paused" in shell("pipeline", "pause", "orders").err


def test_an_unknown_pipeline_names_those_that_are_near(shell: Shell) -> None:
    shell("submit", "flows:orders", "5")

    near, far = shell("pipeline", "pause", "ordres"), shell("pipeline", "resume", "zebra")

    assert (near.code, far.code) == (1, 1)
    assert "Did you mean orders?" in near.err
    assert "Known here: orders." in far.err


@pytest.mark.parametrize(
    ("typed", "is_told"), [("", True), ("n\n", False)], ids=["nobody answers", "somebody says no"]
)
def test_without_anybody_to_answer_the_way_without_asking_is_named(
    shell: Shell, typed: str, is_told: bool
) -> None:
    shell("migrate")

    ended = shell("breaker", "isolate", "model", "--new", stdin=typed)

    assert ended.code == 1
    assert ("use --yes to confirm" in ended.err) is is_told
    assert shell.json("breaker", "list") == []


def test_breakers_are_moved_by_hand_after_asking(shell: Shell) -> None:
    shell("migrate")

    unknown = shell("breaker", "isolate", "model", "--yes")
    refused = shell("breaker", "isolate", "model", "--new", stdin="n\n")
    isolated = shell.json(
        "breaker", "isolate", "model", "--new", "--yes", "--reason", "bill", "--actor", "ann"
    )
    slip = shell("breaker", "close", "models")
    opened = shell.json("breaker", "open", "model", "--yes")
    closed = shell.json("breaker", "close", "model")

    assert (unknown.code, refused.code, slip.code) == (1, 1, 1)
    assert "No breaker has seen a failure yet" in unknown.err
    assert "Did you mean model?" in slip.err
    assert [each["phase"] for each in (isolated, opened, closed)] == ["isolated", "open", "closed"]
    assert [each["name"] for each in shell.json("breaker", "list")] == ["model"]
    done = shell.json("events", "--operations")
    assert [(each["verb"], each["subject"]) for each in done][-3:] == [
        ("isolate", "breaker model"),
        ("open", "breaker model"),
        ("close", "breaker model"),
    ]
    assert (done[-3]["actor"], done[-3]["reason"]) == (ANN, "bill")
    assert "breaker model" in shell("events", "--operations").out
    changes = shell.json("events")
    assert [(each["breaker"], each["before"], each["after"], each["cause"]) for each in changes] == [
        ("model", "closed", "isolated", "operator"),
        ("model", "isolated", "open", "operator"),
        ("model", "open", "closed", "operator"),
    ]
    assert changes[0]["sentence"] == f"{ANN} isolated it: bill"
    assert f"{ANN} isolated it: bill" in " ".join(shell("events").out.split())


def test_work_behind_an_isolated_breaker_is_held(shell: Shell) -> None:
    shell("submit", "flows:asking", "5")
    shell("breaker", "isolate", "model", "--new", "--yes")

    assert shell("worker", "flows:asking", "--until-idle").code == 3

    stats = shell.json("stats")
    (held,) = stats.pop("held")
    assert stats == {"queued": 1, "total": 1}
    assert {name: held[name] for name in ("stage", "jobs", "breaker", "phase", "next_probe_at")} == {
        "stage": "ask",
        "jobs": 1,
        "breaker": "model",
        "phase": "isolated",
        "next_probe_at": None,
    }
    assert held["since"] is not None
    assert "isolated" in shell("stats").out
    shell("breaker", "close", "model")
    assert shell.json("stats") == {"queued": 1, "total": 1}


def test_the_latest_events_are_shown_oldest_first(shell: Shell) -> None:
    shell.write("items.jsonl", 13, 5)
    shell("submit", "flows:orders", "--file", "items.jsonl")
    shell("submit", "flows:sleepers", "1")
    shell("worker", "flows:orders", "flows:sleepers", "--until-idle", "--concurrency", "1")

    every = shell.json("events")
    of_job = shell.json("events", "--job", "1")
    of_pipeline = shell.json("events", "--pipeline", "sleepers")

    assert [each["seq"] for each in every] == sorted(each["seq"] for each in every)
    assert len(every) == 5
    assert [each["outcome"] for each in of_job] == ["retry", "dead"]
    assert [(each["job"], each["code"]) for each in of_pipeline] == [(3, "BUG_CODE")]
    assert [each["seq"] for each in shell.json("events", "-n", "2")] == [4, 5]
    assert "none is left" in shell("events").out


def test_events_are_refused_where_there_can_be_none(shell: Shell) -> None:
    shell("submit", "flows:orders", "5")

    assert "no events" in shell("events").err
    assert "Close to it are: 1" in shell("events", "--job", "3").err
    for wrong in (
        ("--operations", "--pipeline", "orders"),
        ("--operations", "--follow"),
        ("--letter", "1"),
        ("--before", "1"),
    ):
        refused = shell("events", *wrong)
        assert refused.code == 2
        assert "True" not in refused.err


@pytest.mark.traced_programs
def test_events_are_followed_until_interrupted(shell: Shell) -> None:
    shell("submit", "flows:orders", "5")
    shell("worker", "flows:orders", "--until-idle")

    following = shell.start("events", "--follow", "--pipeline", "orders", "-o", "json")
    assert following.stdout is not None
    first = [following.stdout.readline() for _ in range(2)]
    shell("submit", "flows:orders", "0")
    shell("worker", "flows:orders", "--until-idle")
    then = [following.stdout.readline() for _ in range(2)]
    following.send_signal(signal.SIGINT)
    following.communicate(timeout=60)

    assert following.returncode == 0
    assert [json.loads(line)["outcome"] for line in (*first, *then)] == ["ok", "ok", "ok", "dead"]
    assert [json.loads(line)["job"] for line in (*first, *then)] == [1, 1, 2, 2]


def test_what_tests_start_can_be_interrupted_also_when_they_run_in_the_background() -> None:
    """A shell ignores SIGINT there; the test above then waited for ever."""
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); import tests.conftest;"
        "print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    )
    root = Path(__file__).parents[3]
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True
    )
    assert ended.stdout == "True\n"


def test_followed_events_are_lines_for_people(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell("submit", "flows:orders", "0")
    shell("worker", "flows:orders", "--until-idle")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SystemClock, "sleep", interrupt)
    ended = shell("events", "--follow")

    fetched, halved = ended.out.splitlines()
    assert ended.code == 0
    assert "job 1  orders.fetch  attempt 1  ok" in fetched
    assert "job 1  orders.halve  attempt 1  dead  BUG_CODE" in halved


def test_jobs_are_counted_by_state_pipeline_and_stage(shell: Shell) -> None:
    shell.write("items.jsonl", 1, 0)
    shell("submit", "flows:orders", "--file", "items.jsonl")
    shell("worker", "flows:orders", "--until-idle")
    shell("submit", "flows:sleepers", "1")

    by_pipeline = shell.json("stats", "--by", "pipeline")
    by_stage = shell.json("stats", "--by", "stage")

    assert shell.json("stats") == {"queued": 1, "complete": 1, "failed": 1, "total": 3}
    assert [(row["pipeline"], row["queued"], row["complete"], row["total"]) for row in by_pipeline] == [
        ("orders", 0, 1, 2),
        ("sleepers", 1, 0, 1),
    ]
    assert [(row["pipeline"], row["stage"], row["total"]) for row in by_stage] == [
        ("orders", "halve", 2),
        ("sleepers", "later", 1),
    ]
    assert "sleepers" in shell("stats", "--by", "stage").out
    assert "total" in shell("stats").out


def test_pruning_is_scheduled_listed_and_dropped(shell: Shell) -> None:
    made = shell.json(
        *("schedule", "prune", "retention", "--cron", "0 3 * * *"),
        *("--complete", "7d", "--failed", "90d", "--runs", "30d"),
    )
    (listed,) = shell.json("schedule", "list")
    shown = shell("schedule", "list")
    (logged,) = shell.json("events", "--operations")
    nothing = shell("schedule", "prune", "retention", "--cron", "0 3 * * *")
    dropped = shell.json("schedule", "drop", "retention", "--yes")

    ages = {"complete": 604_800.0, "failed": 7_776_000.0, "runs": 2_592_000.0}
    assert made["prunes"] == listed["prunes"] == ages
    assert (listed["pipeline"], listed["deleted"], listed["last_at"]) == (None, None, None)
    assert "604800" in shown.out
    assert (logged["verb"], logged["subject"]) == ("schedule", "schedule retention")
    assert (nothing.code, "needs a state and an age" in nothing.err) == (2, True)
    assert dropped["is_dropped"] is True
    assert shell.json("schedule", "list") == []


def test_schedules_are_added_listed_and_dropped(shell: Shell) -> None:
    added = shell.json(
        *("schedule", "add", "nightly", "flows:orders", "--cron", "0 3 * * *"),
        *("--zone", "Europe/Berlin", "--payload", "7"),
    )
    (listed,) = shell.json("schedule", "list")
    slip = shell("schedule", "drop", "nightyl", "--yes")
    refused = shell("schedule", "drop", "nightly", stdin="n\n")
    dropped = shell.json("schedule", "drop", "nightly", "--yes")

    assert (added["name"], added["pipeline"]) == ("nightly", "orders")
    assert (listed["cron"], listed["zone"], listed["last_at"]) == ("0 3 * * *", "Europe/Berlin", None)
    assert "Did you mean nightly?" in slip.err
    assert (slip.code, refused.code) == (1, 1)
    assert dropped == {"name": "nightly", "is_dropped": True}
    assert shell.json("schedule", "list") == []
    assert [each["verb"] for each in shell.json("events", "--operations")] == ["schedule", "drop"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--cron", "every day", "--payload", "1"], "cron"),
        (["--cron", "0 3 * * *", "--zone", "Mars/Base", "--payload", "1"], "time zone"),
        (["--cron", "0 3 * * *", "--payload", '"x"'], "Expected `int`"),
        (["--cron", "0 3 * * *", "--payload", "{"], "must be JSON"),
        ([], "--cron"),
    ],
)
def test_a_wrong_schedule_is_refused(shell: Shell, arguments: list[str], words: str) -> None:
    ended = shell("schedule", "add", "nightly", "flows:orders", *arguments)

    assert ended.code == 2
    assert words in ended.err


def test_another_database_is_named_by_address_or_environment(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell("submit", "flows:orders", "5", "--database-url", "sqlite:///other.db")
    monkeypatch.setenv("REDRIVE_DATABASE_URL", "other.db")

    assert shell.json("stats") == {"queued": 1, "total": 1}
    with connect(shell.folder / "other.db") as rd:
        assert rd.jobs.counts() == {"queued": 1}
