# SPDX-License-Identifier: Apache-2.0
"""`redrive demo` as a user runs it, and the ways in which it must not end well."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import typer
from rich.console import Console

from redrive import connect
from redrive.cli import demo, demo_crew
from redrive.cli.demo_account import account_of, named, show
from redrive.cli.demo_flow import Article, flow
from redrive.cli.flaky import GOOD_KEY, RESET, WRONG_KEY, Answer, FlakyUpstream, Outage, trouble_of
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


def test_the_demo_survives_kill_9_and_accounts_for_every_job(tmp_path: Path) -> None:
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
    ):
        assert shown in ran.stdout
    written = b"".join(row[0].encode() for row in letters(database))
    assert written
    assert WRONG_KEY.encode() not in written
    assert GOOD_KEY.encode() not in written


def letters(database: Path) -> list[tuple[str]]:
    with connect(database) as rd:
        failed = rd.store.query("list_jobs", JOBS + 1, "failed", flow.name, None, None, None, JOBS)
        rows = [row for job in failed for row in rd.store.query("letters_of_job", job[0])]
    return [(repr(row),) for row in rows]


def test_a_terminal_gets_a_live_picture() -> None:
    screen = console()

    account = demo.play(screen, demo.Script(jobs=60, outage_seconds=0.2))

    shown = text_of(screen)
    assert account.complaints == []
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
        demo.play(console(), demo.Script(jobs=1, database=str(tmp_path / "demo.db")))


def test_a_worker_that_ends_by_itself_ends_the_demo_with_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_crew, "COMMAND", ("worker", "nowhere:flow"))

    with pytest.raises(typer.Exit) as ended:
        demo.demo(jobs=3, plain=True)

    assert ended.value.exit_code == 1


def test_a_demo_that_stalls_says_so_and_kills_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_crew, "STALL_SECONDS", -1.0)
    screen = console()

    account = demo.play(screen, demo.Script(jobs=3))

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
    assert Counter(troubles)["wrong key"] == 1


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


def test_an_outage_lasts_until_it_was_felt() -> None:
    outage = Outage(after_calls=1, seconds=5, refusals_min=2)

    felt = [outage.refuses(now) for now in (0.0, 1.0, 10.0, 11.0, 12.0)]

    assert felt == [False, True, True, False, False]
    assert outage.is_over
