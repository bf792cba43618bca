# SPDX-License-Identifier: Apache-2.0
"""`redrive demo` as a user runs it, and the ways in which it must not end well."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import typer
from rich.console import Console

from redrive import Redrive, connect
from redrive.cli.demo import command, replay, workers
from redrive.cli.demo import shell as demo_shell
from redrive.cli.demo.account import Account, account_of, compare, named, show
from redrive.cli.demo.flow import Article, flow
from redrive.cli.demo.replay import WayBack
from redrive.cli.demo.shell import OffScriptError, Shell
from redrive.cli.demo.upstream import GOOD_KEY, RESET, WRONG_KEY, Answer, FlakyUpstream, Outage, trouble_of
from redrive.cli.demo.view import View
from redrive.cli.demo.workers import Crew
from redrive.errors import ConfigurationError

JOBS = 200
DEAD = ("gone", "refused", "wrong key", "garbled", "unreachable")
NEVER = Outage(10**9, 0, 0)


def console() -> Console:
    """A terminal that nobody looks at."""
    return Console(file=io.StringIO(), force_terminal=True, width=200, height=50)


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", console.file.getvalue())


def test_the_demo_survives_kill_9_accounts_for_every_job_and_brings_back_those_of_one_cause(
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

    dead = sum(trouble_of(number, 7) in DEAD for number in range(JOBS))
    back = sum(trouble_of(number, 7) == "wrong key" for number in range(JOBS))
    assert back == 3
    assert (ran.returncode, ran.stderr) == (0, "")
    assert f"{JOBS} jobs = {JOBS - dead} complete + {dead} failed + 0 cancelled + 0 open" in ran.stdout
    for shown in (
        "the model is down",
        "the breaker opens",
        "a probe went through",
        "kill -9: the worker is dead, with",
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
        "in the hands of the worker that was killed",
        f"{JOBS} jobs = {JOBS - dead + back} complete + {dead - back} failed + 0 cancelled + 0 open",
        f"{back} jobs had failed and came back: each is complete, was notified once",
        f"the jobs are kept in {database}",
    ):
        assert shown in ran.stdout
    assert [line for line in ran.stdout.splitlines() if line.startswith("$ ")] == typed(ran.stdout, database)
    assert "3 of 3 letters have no evidence" in ran.stdout
    assert "it stopped itself after one job; 2 dead letters were not touched" in ran.stdout
    assert "replay 1 done: 2 recovered, 1 failed again, 0 on their way, 0 waiting" in ran.stdout
    assert WRONG_KEY not in ran.stdout
    written = b"".join(row[0].encode() for row in letters(database))
    assert written
    assert WRONG_KEY.encode() not in written
    assert GOOD_KEY.encode() not in written


def typed(shown: str, database: Path) -> list[str]:
    """The commands of the way back; which letter and which job went first is up to the store."""
    (sample, escalated) = re.findall(r"\$ redrive dlq (?:show|remediate) (\d+)", shown)
    (job,) = re.findall(r"\$ redrive job retry (\d+)", shown)
    (group,) = set(re.findall(r"--group ([0-9a-f]{8}) ", shown))
    evidence = "--evidence 'the provider {} the key, ticket 42' --safe --yes"
    return [
        f"$ export REDRIVE_DATABASE_URL={database}",
        "$ redrive dlq groups --pipeline demo",
        f"$ redrive dlq show {sample}",
        f"$ redrive replay start --group {group} --yes",
        f"$ redrive dlq triage --group {group} --diagnosis auth_config --yes",
        f"$ redrive dlq remediate --group {group} {evidence.format('was asked to restore')}",
        f"$ redrive dlq validate --group {group} --target redrive.cli.demo.flow:flow",
        f"$ redrive replay start --group {group} --canary 1,5,20 --follow --yes",
        "$ redrive replay resume 1 --reason 'the key works again'",
        "$ redrive replay status 1 --follow",
        f"$ redrive dlq remediate {escalated} --diagnosis auth_config {evidence.format('has restored')}",
        f"$ redrive job retry {job} --yes",
        "$ redrive replay close 1 --note 'the key works again; all 3 jobs are complete'",
        "$ redrive dlq groups --pipeline demo --state open",
    ]


@pytest.mark.parametrize(
    ("jobs", "complaint"),
    [
        (1, "was retried, and is failed"),
        (12, "replay 1 did not bring back its jobs"),
    ],
    ids=["one refused key", "two refused keys"],
)
def test_a_cause_that_is_not_cured_ends_the_demo_with_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], jobs: int, complaint: str
) -> None:
    monkeypatch.setattr(FlakyUpstream, "let_in", lambda *_: None)
    seed = 2
    refused = [number for number in range(jobs) if trouble_of(number, seed) == "wrong key"]

    with pytest.raises(typer.Exit) as ended:
        command.demo(jobs=jobs, seed=seed, fast=True)

    shown = capsys.readouterr().out
    assert len(refused) == (1 if jobs == 1 else 2)
    assert ended.value.exit_code == 1
    assert f"{len(refused)} of {len(refused)} letters have no evidence" in shown
    assert "The account does not close: " in shown
    assert complaint in shown
    assert "said to be recovered, but not complete" in shown


@contextmanager
def way_back(
    rd: Redrive, folder: Path, jobs: list[int], *, upstream: FlakyUpstream | None = None
) -> Generator[WayBack]:
    """The second half of the demo, with nobody to work on it."""
    screen, database = console(), str(folder / "demo.db")
    (folder / "log").touch()
    with closing(Crew(database, folder / "log")) as crew:
        upstream = upstream or FlakyUpstream(seed=0, outage=NEVER)
        yield WayBack(rd, View(screen, plain=True), Shell(screen, database), crew, upstream, jobs)


def test_the_way_back_needs_the_letters_it_is_about_and_a_worker(tmp_path: Path) -> None:
    with connect(tmp_path / "demo.db") as rd, FlakyUpstream(seed=0, outage=NEVER).running() as upstream:
        (job,) = rd.submit_many(flow, [Article(number_with(None), upstream.url, WRONG_KEY)])
        rd.work([flow], until_idle=True)
        good = account_of(rd, [job], upstream.ledger.notified)
        claimed = account_of(rd, [job], upstream.ledger.notified, recovered=[job])

        with way_back(rd, tmp_path, [job, job + 1], upstream=upstream) as back:
            more = back.play()
        with way_back(rd, tmp_path, [job], upstream=upstream) as back:
            alone = back.play()

        with pytest.raises(ConfigurationError, match="none whose key was refused"):
            command.play(console(), command.Script(jobs=1, database=str(tmp_path / "demo.db")))
    assert more == "1 letters say AUTH_INVALID, but 2 keys were refused"
    assert alone is not None
    assert alone.startswith("the worker ended by itself")
    assert good.complaints == []
    assert claimed.complaints == [
        f"said to be recovered, but not complete: jobs {job}",
        f"job {job} has a dead letter that is not settled",
    ]


def test_the_way_back_may_change_nothing_but_the_jobs_it_is_about() -> None:
    before = Account(9, Counter(complete=5, failed=4))
    fine = Account(9, Counter(complete=7, failed=2), recovered=2)
    wrong = Account(9, Counter(complete=7, failed=1, cancelled=1), recovered=2)

    for after in (fine, wrong):
        compare(before, after)

    assert fine.complaints == []
    assert wrong.complaints == ["1 jobs are failed instead of 2", "1 jobs are cancelled instead of 0"]


def test_the_prompt_shows_the_beginning_of_an_answer_and_all_of_one_that_was_not_expected() -> None:
    screen = console()
    shell = Shell(screen, "nowhere.db")

    shell.run("--help", lines_max=2)
    with pytest.raises(OffScriptError, match="redrive stats ended with exit code 2 instead of 0"):
        shell.run("stats", lines_max=0)

    shown = text_of(screen)
    assert "$ redrive --help\n" in shown
    assert re.search(r"\.\.\. and \d+ more lines", shown)
    assert "names no database that is there" in shown


def test_a_command_or_a_job_that_does_not_end_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_shell, "PATIENCE_SECONDS", -1.0)
    monkeypatch.setattr(replay, "PATIENCE_SECONDS", -1.0)

    with pytest.raises(OffScriptError, match="redrive stats has not ended after -1 s"):
        Shell(console(), "nowhere.db").run("stats")
    with connect(tmp_path / "demo.db") as rd, way_back(rd, tmp_path, []) as back:
        monkeypatch.setattr(Crew, "is_working", True)
        with pytest.raises(OffScriptError, match="job 1 has not ended after -1 s"):
            back._wait_for(lambda: False, "job 1")


def letters(database: Path) -> list[tuple[str]]:
    with connect(database) as rd:
        failed = rd.store.query("list_jobs", JOBS + 1, "failed", flow.name, None, None, None, JOBS)
        rows = [row for job in failed for row in rd.store.query("letters_of_job", job[0])]
    return [(repr(row),) for row in rows]


def test_a_terminal_gets_a_live_picture() -> None:
    screen = console()

    account = command.play(screen, command.Script(jobs=60, outage_seconds=0.2))

    shown = text_of(screen)
    assert account.complaints == []
    assert "no key was refused among so few jobs" in shown
    for part in (
        "of 60 jobs",
        "queued  processing  complete  failed",
        "retries",
        "dead letters",
        "no attempt burned",
    ):
        assert part in shown


def test_open_jobs_of_an_earlier_demo_are_refused(tmp_path: Path) -> None:
    with connect(tmp_path / "demo.db") as rd:
        rd.submit(flow, Article(1, "http://127.0.0.1:1", GOOD_KEY))

    with pytest.raises(ConfigurationError, match="must hold no open jobs"):
        command.play(console(), command.Script(jobs=1, database=str(tmp_path / "demo.db")))


def test_a_worker_that_ends_by_itself_ends_the_demo_with_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "COMMAND", ("worker", "nowhere:flow"))

    with pytest.raises(typer.Exit) as ended:
        command.demo(jobs=3, plain=True)

    assert ended.value.exit_code == 1


def test_a_demo_that_stalls_says_so_and_kills_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "STALL_SECONDS", -1.0)
    screen = console()

    account = command.play(screen, command.Script(jobs=3))

    assert account.complaints == ["nothing has moved for -1 s", "3 jobs have not ended"]
    assert "The account does not close: 3 jobs have not ended." in text_of(screen)


def test_an_effect_that_was_lost_or_given_up_is_found(tmp_path: Path) -> None:
    with connect(tmp_path / "demo.db") as rd, FlakyUpstream(seed=0, outage=NEVER).running() as upstream:
        fine, gone = (number_with(trouble) for trouble in (None, "gone"))
        ids = rd.submit_many(flow, [Article(number, upstream.url, GOOD_KEY) for number in (fine, gone)])
        rd.work([flow], until_idle=True)

        good = account_of(rd, ids, upstream.ledger.notified)
        lost = account_of(rd, ids, {})
        stray = account_of(rd, ids, {**upstream.ledger.notified, f"demo:{ids[1]}:notify": 1})

    assert (good.complaints, dict(good.statuses)) == ([], {"complete": 1, "failed": 1})
    assert lost.complaints == [f"complete, but never notified: jobs {ids[0]}"]
    assert stray.complaints == [f"notified, but given up: jobs {ids[1]}"]
    screen = console()
    show(screen, good)
    assert "No job had to run a stage again" in text_of(screen)


def number_with(trouble: str | None) -> int:
    return next(number for number in range(JOBS) if trouble_of(number, 0) == trouble)


def test_few_jobs_are_named_and_many_are_counted() -> None:
    assert named([1, 2]) == "1, 2"
    assert named(list(range(14))).endswith("11 and 2 more")


def test_the_upstream_misbehaves_the_same_way_for_the_same_seed() -> None:
    troubles = [trouble_of(number, 3) for number in range(JOBS)]

    assert troubles == [trouble_of(number, 3) for number in range(JOBS)]
    assert troubles != [trouble_of(number, 4) for number in range(JOBS)]
    assert Counter(troubles)["wrong key"] == 3


@pytest.mark.parametrize(
    ("trouble", "what", "answers"),
    [
        ("gone", "fetch", [404, 404]),
        ("reset", "fetch", [0, 200]),
        ("unreachable", "fetch", [0, 0]),
        ("refused", "llm", [400, 400]),
        ("limited", "llm", [429, 200]),
        ("hiccup", "notify", [500, 200]),
        ("answer lost", "notify", [0, 200]),
        (None, "notify", [200, 200]),
    ],
)
def test_the_upstream_answers_by_trouble(trouble: str | None, what: str, answers: list[int]) -> None:
    upstream = FlakyUpstream(seed=0, outage=NEVER)
    headers = {"authorization": f"Bearer {GOOD_KEY}", "idempotency-key": "k"}
    path = f"/{what}/{number_with(trouble)}"

    assert [upstream.answer_to(path, headers, 0.0).status for _ in answers] == answers
    assert upstream.answer_to(path, {}, 0.0) == Answer(401)
    assert RESET.status == 0


def test_the_upstream_refuses_a_key_until_it_is_let_in() -> None:
    upstream = FlakyUpstream(seed=0, outage=NEVER)
    path, headers = f"/fetch/{number_with(None)}", {"authorization": f"Bearer {WRONG_KEY}"}

    before = upstream.answer_to(path, headers, 0.0).status
    upstream.let_in(WRONG_KEY)

    assert (before, upstream.answer_to(path, headers, 0.0).status) == (401, 200)


def test_an_outage_lasts_until_it_was_felt() -> None:
    outage = Outage(after_calls=1, seconds=5, refusals_min=2)

    felt = [outage.refuses(now) for now in (0.0, 1.0, 10.0, 11.0, 12.0)]

    assert felt == [False, True, True, False, False]
    assert outage.is_over
