# SPDX-License-Identifier: Apache-2.0
"""The parts of `redrive demo`: the upstream, the account, the display, the shell."""

from __future__ import annotations

import io
import re
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from redrive import connect
from redrive.cli.demo import shell as demo_shell
from redrive.cli.demo.account import Account, account_of, compare, job_list, print_account
from redrive.cli.demo.flow import Article, flow
from redrive.cli.demo.progress import Progress
from redrive.cli.demo.shell import DemoError, Shell, wait_until
from redrive.cli.demo.upstream import GOOD_KEY, RESET, WRONG_KEY, FaultyUpstream, Outage, Response, fault_of
from redrive.cli.demo.view import View
from redrive.ops import breakers
from redrive.ops.audit import Actor

PLACES = 200
NEVER = Outage(10**9, 0, 0)


def console() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=200, height=50)


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", console.file.getvalue())


def number_with(fault: str | None) -> int:
    return next(number for number in range(PLACES) if fault_of(number, 0) == fault)


def test_the_upstream_has_the_same_faults_for_the_same_seed() -> None:
    faults = [fault_of(number, 3) for number in range(PLACES)]

    assert faults == [fault_of(number, 3) for number in range(PLACES)]
    assert faults != [fault_of(number, 4) for number in range(PLACES)]
    assert Counter(faults)["wrong key"] == 3


@pytest.mark.parametrize(
    ("fault", "path", "statuses"),
    [
        ("gone", "fetch", [404, 404]),
        ("reset", "fetch", [0, 200]),
        ("unreachable", "fetch", [0, 0]),
        ("refused", "llm", [400, 400]),
        ("limited", "llm", [429, 200]),
        ("hiccup", "notify", [500, 200]),
        ("response lost", "notify", [0, 200]),
        (None, "notify", [200, 200]),
    ],
)
def test_the_upstream_responds_by_fault(fault: str | None, path: str, statuses: list[int]) -> None:
    upstream = FaultyUpstream(seed=0, outage=NEVER)
    headers = {"authorization": f"Bearer {GOOD_KEY}", "idempotency-key": "k"}
    path = f"/{path}/{number_with(fault)}"

    assert [upstream.respond(path, headers, 0.0).status for _ in statuses] == statuses
    assert upstream.respond(path, {}, 0.0) == Response(401)
    assert RESET.status == 0


def test_the_upstream_refuses_a_key_until_it_is_accepted() -> None:
    upstream = FaultyUpstream(seed=0, outage=NEVER)
    path, headers = f"/fetch/{number_with(None)}", {"authorization": f"Bearer {WRONG_KEY}"}

    before = upstream.respond(path, headers, 0.0).status
    upstream.accept_key(WRONG_KEY)

    assert (before, upstream.respond(path, headers, 0.0).status) == (401, 200)


def test_an_outage_lasts_until_enough_calls_were_refused() -> None:
    outage = Outage(after_calls=1, seconds=5, refusals_min=2)

    refused = [outage.refuses(now) for now in (0.0, 1.0, 10.0, 11.0, 12.0)]

    assert refused == [False, True, True, False, False]
    assert outage.is_over


def test_lost_and_stray_effects_and_jobs_that_are_not_recovered_are_found(tmp_path: Path) -> None:
    with connect(tmp_path / "demo.db") as rd, FaultyUpstream(seed=0, outage=NEVER).running() as upstream:
        fine, gone = (number_with(fault) for fault in (None, "gone"))
        ids = rd.submit_many(flow, [Article(number, upstream.url, GOOD_KEY) for number in (fine, gone)])
        rd.work([flow], until_idle=True)

        good = account_of(rd, ids, upstream.notified)
        lost = account_of(rd, ids, {})
        (key,) = upstream.notified
        stray = account_of(rd, ids, {key: 1, key.replace(f"-{ids[0]}:", f"-{ids[1]}:"): 1})
        claimed = account_of(rd, ids, upstream.notified, recovered=[ids[1]])

    assert (good.problems, dict(good.statuses)) == ([], {"complete": 1, "failed": 1})
    assert lost.problems == [f"complete, but never notified: jobs {ids[0]}"]
    assert stray.problems == [f"notified, but not complete: jobs {ids[1]}"]
    assert claimed.problems == [
        f"replayed, but not complete: jobs {ids[1]}",
        f"job {ids[1]} has a dead letter that is not resolved",
    ]
    screen = console()
    print_account(screen, good)
    assert "No job had to run a stage again" in text_of(screen)
    assert "dead letters NOT_FOUND" in text_of(screen)


def test_a_replay_may_change_only_the_jobs_it_is_about() -> None:
    before = Account(9, Counter(complete=5, failed=4))
    fine = Account(9, Counter(complete=7, failed=2), recovered=2)
    wrong = Account(9, Counter(complete=7, failed=1, cancelled=1), recovered=2)

    for after in (fine, wrong):
        compare(before, after)

    assert fine.problems == []
    assert wrong.problems == ["1 jobs are failed instead of 2", "1 jobs are cancelled instead of 0"]


def test_few_jobs_are_listed_and_many_are_counted() -> None:
    assert job_list([1, 2]) == "1, 2"
    assert job_list(list(range(14))).endswith("11 and 2 more")


def test_the_display_shows_stages_codes_and_the_breaker(tmp_path: Path) -> None:
    screens = console(), console()
    live, plain = View(screens[0], plain=False), View(screens[1], plain=True)
    with connect(tmp_path / "demo.db") as rd, FaultyUpstream(seed=0, outage=NEVER).running() as upstream:
        progress = Progress.of(rd, 2)
        rd.submit_many(flow, [Article(number_with("gone"), upstream.url, GOOD_KEY)] * 2)
        rd.work([flow], until_idle=True)
        breakers.move(rd.store, "llm", "isolate", Actor("ann"), is_new=True)
        progress.update()
        with live.live():
            live.show(progress)
        plain.show(progress)
        plain.show(progress)

    for part in (
        "2 of 2 jobs",
        "queued  processing  complete  failed",
        "isolated: 0 jobs held, no attempts used",
        "dead letters NOT_FOUND 2",
        "retries      none",
    ):
        assert part in text_of(screens[0])
    assert text_of(screens[1]).count("2 of 2 ended, 0 processing") == 1


def test_the_shell_prints_the_first_lines_and_all_of_an_unexpected_output() -> None:
    screen = console()
    shell = Shell(screen, "nowhere.db")

    shell.run("stats", "--help", lines_max=2)
    with pytest.raises(DemoError, match="redrive stats ended with exit code 2 instead of 0"):
        shell.run("stats", lines_max=0)

    printed = text_of(screen)
    assert "$ redrive stats --help\n" in printed
    assert re.search(r"\.\.\. and \d+ more lines", printed)
    assert "no database" in printed


def test_waiting_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_shell, "TIMEOUT_SECONDS", -1.0)

    with pytest.raises(DemoError, match="job 1 has not ended after -1 s"):
        wait_until(lambda: False, "job 1")
