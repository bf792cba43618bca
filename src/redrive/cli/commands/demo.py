# SPDX-License-Identifier: Apache-2.0
"""`redrive demo`: run jobs against a faulty upstream, kill a worker, account for every job, then replay some that failed.

Everything is real: an HTTP server on loopback, workers in their own processes, kill -9, a store on disk, the commands an operator
would type. Every figure is read from the store or from the upstream's count of notifications.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from redrive.cli.demo.account import Account, account_of, compare, print_account
from redrive.cli.demo.flow import OPENS_AFTER, Article, flow
from redrive.cli.demo.progress import ENDED, Progress
from redrive.cli.demo.replay import ReplayScene, refused_group
from redrive.cli.demo.shell import Shell
from redrive.cli.demo.upstream import GOOD_KEY, WRONG_KEY, FaultyUpstream, Outage, fault_of
from redrive.cli.demo.view import View
from redrive.cli.demo.work import Worker, WorkScene
from redrive.cli.output.terminal import SafeConsole
from redrive.client.connection import Redrive, connect
from redrive.errors import ConfigurationError

JOBS: Final = 3_000
FAST_JOBS: Final = 400
OUTAGE_AT: Final = 0.25
"""The share of jobs that called the model when it goes down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The plan of the demo."""

    jobs: int = JOBS
    seed: int = 1
    outage_seconds: float = 4.0
    database: str | None = None
    is_plain: bool = False

    def has_wrong_key(self, number: int) -> bool:
        """Return whether the article of this number is submitted with a revoked key."""
        return fault_of(number, self.seed) == "wrong key"


def demo(
    *,
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help=f"Number of jobs; default: {JOBS}.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Selects which jobs meet which fault.")] = 1,
    fast: Annotated[bool, typer.Option("--fast", help=f"{FAST_JOBS} jobs and a short outage.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Print lines instead of a live display.")] = False,
    database_url: Annotated[
        str | None, typer.Option("--database-url", help="Keep the jobs in this database.")
    ] = None,
) -> None:
    """Run jobs against a faulty upstream, kill a worker, account for every job, and replay some that failed."""
    script = Script(
        jobs=jobs or (FAST_JOBS if fast else JOBS),
        seed=seed,
        outage_seconds=1.0 if fast else 4.0,
        database=database_url,
        is_plain=plain,
    )
    if play(SafeConsole(markup=False, emoji=False), script).problems:
        raise typer.Exit(1)


def play(console: Console, script: Script) -> Account:
    """Play the demo on this console, and return the last account of every job."""
    refusals_min = min(2 * OPENS_AFTER, script.jobs // 10)
    outage = Outage(int(script.jobs * OUTAGE_AT), script.outage_seconds, refusals_min)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="redrive-demo-")))
        upstream = stack.enter_context(FaultyUpstream(seed=script.seed, outage=outage).running())
        database = script.database or str(folder / "demo.db")
        rd = stack.enter_context(connect(database))
        progress = Progress.of(rd, script.jobs)
        _refuse_leftovers(rd, progress)
        view = View(console, plain=script.is_plain or not console.is_terminal)
        view.announce(f"the faulty upstream is {upstream.url}; the database is {database}")
        articles = (
            Article(number, upstream.url, WRONG_KEY if script.has_wrong_key(number) else GOOD_KEY)
            for number in range(script.jobs)
        )
        ids = rd.submit_many(flow, articles)
        view.announce(f"{len(ids)} jobs submitted: fetch -> llm -> notify")
        worker = stack.enter_context(closing(Worker(database, folder / "workers.log")))
        with view.live():
            problem = WorkScene(progress, view, worker, upstream).play()
        account = account_of(rd, ids, upstream.notified)
        _finish(console, account, problem)
        refused = [job for number, job in enumerate(ids) if script.has_wrong_key(number)]
        if account.problems:
            return account
        if not refused:
            view.announce("no key was refused among so few jobs: use more jobs to see the replay")
            return account
        problem = ReplayScene(rd, view, Shell(console, database), worker, upstream, refused).play()
        before, account = account, account_of(rd, ids, upstream.notified, recovered=refused)
        compare(before, account)
        _finish(console, account, problem or _miscount(progress))
        view.announce(
            f"the jobs are kept in {script.database}; the upstream is gone, so a replay would fail"
            if script.database
            else "to inspect the jobs afterwards: redrive demo --database-url demo.db keeps them"
        )
        return account


def _finish(console: Console, account: Account, problem: str | None) -> None:
    """Print an account, with what went wrong with the demo itself before what the account found."""
    if problem:
        account.problems.insert(0, problem)
    print_account(console, account)


def _miscount(progress: Progress) -> str | None:
    """Return how the store's own counters differ from the number of jobs."""
    progress.update()
    counted = progress.counts.total()
    return (
        None if counted == progress.total else f"the store counts {counted} jobs instead of {progress.total}"
    )


def _refuse_leftovers(rd: Redrive, progress: Progress) -> None:
    left = sum(count for (_, status), count in progress.before.items() if status not in ENDED)
    group = refused_group(rd)
    letters = 0 if group is None else group.pending
    if left or letters:
        raise ConfigurationError(
            field="--database-url",
            value=f"{left} open jobs and {letters} jobs with a refused key",
            rule="must have no such jobs of an earlier demo",
            fix="Their upstream is gone: use another file.",
        )
