# SPDX-License-Identifier: Apache-2.0
"""`redrive demo` as a user runs it, and the ways in which it must not succeed."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console
from typer.main import get_command

from redrive import Redrive, connect
from redrive.cli import app
from redrive.cli.commands import demo as command
from redrive.cli.demo import work
from redrive.cli.demo.flow import Article, flow
from redrive.cli.demo.replay import ReplayScene
from redrive.cli.demo.shell import Shell
from redrive.cli.demo.upstream import GOOD_KEY, WRONG_KEY, FaultyUpstream, Outage, fault_of
from redrive.cli.demo.view import View
from redrive.cli.demo.work import Worker
from redrive.errors import ConfigurationError

JOBS = 200
DEAD = ("gone", "refused", "wrong key", "garbled", "unreachable")
NEVER = Outage(10**9, 0, 0)


MAIN = get_command(app.app).main


def console() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=200, height=50)


def test_the_demo_survives_kill_9_accounts_for_every_job_and_replays_those_of_one_cause(
    tmp_path: Path,
) -> None:
    database = tmp_path / "demo.db"
    options = ["--jobs", str(JOBS), "--fast", "--seed", "7", "--database-url", str(database)]

    ran = subprocess.run(
        [sys.executable, "-m", "redrive.cli", "demo", *options],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1"},
    )

    dead = sum(fault_of(number, 7) in DEAD for number in range(JOBS))
    back = sum(fault_of(number, 7) == "wrong key" for number in range(JOBS))
    assert back == 3
    assert (ran.returncode, ran.stderr) == (0, "")
    assert (
        f"{JOBS} jobs = {JOBS - dead} complete + {dead} failed + 0 cancelled + 0 skipped + 0 open"
        in ran.stdout
    )
    for part in (
        "the model is down",
        "the breaker opens",
        "a probe succeeded",
        "kill -9: the worker is dead and",
        "another worker starts",
        "stages/s",
        "attempts retry",
        "attempts hold",
        "dead letters AUTH_INVALID",
        "dead letters NOT_FOUND",
        "dead letters REQUEST_INVALID",
        "dead letters SCHEMA_INVALID",
        "dead letters NETWORK_RESET",
        f"No effect was lost: each of the {JOBS - dead} complete jobs was notified, and no other.",
        "were leased by the killed worker and ran their stage again",
        f"{JOBS} jobs = {JOBS - dead + back} complete + {dead - back} failed + 0 cancelled + 0 skipped + 0 open",
        f"{back} failed jobs were recovered: each is complete, ran no completed stage again",
        f"the jobs are kept in {database}",
    ):
        assert part in ran.stdout
    assert [line for line in ran.stdout.splitlines() if line.startswith("$ ")] == typed(ran.stdout, database)
    assert "3 of 3 letters have no evidence" in ran.stdout
    assert "the replay stopped itself after one job; 2 dead letters not touched" in ran.stdout
    assert "replay 1 done: 2 recovered, 1 failed again, 0 in progress, 0 waiting" in ran.stdout
    assert WRONG_KEY not in ran.stdout
    written = letters(database)
    assert len(written) == dead + 1
    assert not [text for text in written if WRONG_KEY in text or GOOD_KEY in text]


def typed(output: str, database: Path) -> list[str]:
    """The commands of the replay; which letter and which job came first depends on the workers."""
    (sample, escalated) = re.findall(r"\$ redrive dlq (?:show|remediate) (\d+)", output)
    (job,) = re.findall(r"\$ redrive job retry (\d+)", output)
    (group,) = set(re.findall(r"--group ([0-9a-f]{8}) ", output))
    evidence = "--evidence 'the provider {} the key, ticket 42' --safe --yes"
    return [
        f"$ export REDRIVE_DATABASE_URL={database}",
        "$ redrive dlq groups --pipeline demo",
        f"$ redrive dlq show {sample}",
        f"$ redrive replay start --group {group} --yes",
        f"$ redrive dlq triage --group {group} --diagnosis auth_config --yes",
        f"$ redrive dlq remediate --group {group} {evidence.format('was asked to restore')}",
        f"$ redrive dlq validate --group {group} --target redrive.cli.demo.flow:flow",
        f"$ redrive replay start --group {group} --canary 1,5,20 --yes",
        "$ redrive replay status 1 --follow",
        "$ redrive replay resume 1 --reason 'the key works again'",
        "$ redrive replay status 1 --follow",
        f"$ redrive dlq remediate {escalated} --diagnosis auth_config {evidence.format('has restored')}",
        f"$ redrive job retry {job} --yes",
        "$ redrive replay close 1 --note 'the key works again; all 3 jobs are complete'",
        "$ redrive dlq groups --pipeline demo --state open",
    ]


def letters(database: Path) -> list[str]:
    """Everything that is stored about dead letters."""
    with connect(database) as rd:
        return [repr(rd.letters.show(line.id)) for line in rd.letters.list(limit=JOBS).letters]


@pytest.mark.parametrize(
    ("jobs", "problem"),
    [(1, "was retried and is failed"), (12, "replay 1 did not go as expected")],
    ids=["one refused key", "two refused keys"],
)
def test_a_cause_that_is_not_fixed_ends_the_demo_with_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], jobs: int, problem: str
) -> None:
    monkeypatch.setattr(FaultyUpstream, "accept_key", lambda *_: None)
    seed = 2
    refused = [number for number in range(jobs) if fault_of(number, seed) == "wrong key"]

    with pytest.raises(SystemExit) as ended:
        MAIN(["demo", "--jobs", str(jobs), "--seed", str(seed), "--fast"])

    output = capsys.readouterr().out
    assert len(refused) == (1 if jobs == 1 else 2)
    assert ended.value.code == 1
    assert f"{len(refused)} of {len(refused)} letters have no evidence" in output
    assert "The account does not add up: " in output
    assert problem in output
    assert "replayed, but not complete" in output


def scene(rd: Redrive, folder: Path, jobs: list[int], worker: Worker) -> ReplayScene:
    """The second scene, without a worker."""
    screen, database = console(), str(folder / "demo.db")
    upstream = FaultyUpstream(seed=0, outage=NEVER)
    return ReplayScene(rd, View(screen, plain=True), Shell(screen, database), worker, upstream, jobs)


def test_the_replay_needs_its_letters_and_a_worker(tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    with (
        connect(tmp_path / "demo.db") as rd,
        FaultyUpstream(seed=0, outage=NEVER).running() as upstream,
        closing(Worker(str(tmp_path / "demo.db"), tmp_path / "log")) as worker,
    ):
        (job,) = rd.submit_many(flow, [Article(8, upstream.url, WRONG_KEY)])
        rd.work([flow], until_idle=True)

        more = scene(rd, tmp_path, [job, job + 1], worker).play()
        alone = scene(rd, tmp_path, [job], worker).play()

        with pytest.raises(ConfigurationError, match="0 open jobs and 1 jobs with a refused key"):
            command.play(console(), command.Script(jobs=1, database=str(tmp_path / "demo.db")))
    assert more == "1 letters have AUTH_INVALID, but 2 keys were refused"
    assert alone is not None
    assert alone.startswith("the worker exited unexpectedly")


def test_a_demo_without_refused_keys_ends_after_the_first_account() -> None:
    screen = console()

    account = command.play(screen, command.Script(jobs=2, outage_seconds=0.0))

    assert isinstance(screen.file, io.StringIO)
    assert account.problems == []
    assert "no key was refused among so few jobs" in screen.file.getvalue()
    assert "2 of 2 jobs" in screen.file.getvalue()


def test_open_jobs_of_an_earlier_demo_are_refused(tmp_path: Path) -> None:
    with connect(tmp_path / "demo.db") as rd:
        rd.submit(flow, Article(1, "http://127.0.0.1:1", GOOD_KEY))

    with pytest.raises(ConfigurationError, match="must have no such jobs"):
        command.play(console(), command.Script(jobs=1, database=str(tmp_path / "demo.db")))


def test_a_worker_that_exits_ends_the_demo_with_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "COMMAND", ("worker", "nowhere:flow"))

    with pytest.raises(SystemExit) as ended:
        MAIN(["demo", "--jobs", "3", "--plain"])

    assert ended.value.code == 1


def test_a_demo_that_stalls_reports_it_and_kills_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "STALL_SECONDS", -1.0)
    screen = console()

    account = command.play(screen, command.Script(jobs=3))

    assert isinstance(screen.file, io.StringIO)
    assert account.problems == ["nothing has happened for -1 s", "3 jobs have not ended"]
    assert "The account does not add up: 3 jobs have not ended." in screen.file.getvalue()
