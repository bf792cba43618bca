# SPDX-License-Identifier: Apache-2.0
"""`redrive demo`: jobs against an upstream that misbehaves, with a worker that is killed in the middle; then some are brought back.

Everything is real: an HTTP server on loopback, workers and commands in processes of their own, kill -9, a store on disk. Nothing
is scripted on our side but the order of the scenes; every figure shown is read from the store, or from the upstream's ledger.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from redrive.cli.demo.account import Account, account_of, compare, show
from redrive.cli.demo.flow import OPENS_AFTER, Article, flow
from redrive.cli.demo.replay import WayBack, pending
from redrive.cli.demo.shell import Shell
from redrive.cli.demo.upstream import GOOD_KEY, WRONG_KEY, FlakyUpstream, Outage, trouble_of
from redrive.cli.demo.view import View
from redrive.cli.demo.watch import Watch
from redrive.cli.demo.workers import Crew, Scenes
from redrive.cli.output.terminal import Screen
from redrive.client.connection import Redrive, connect
from redrive.errors import ConfigurationError

JOBS: Final = 3_000
FAST_JOBS: Final = 400
OUTAGE_AT: Final = 0.25
"""The share of jobs for which the model was called when it goes down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What is played."""

    jobs: int = JOBS
    seed: int = 1
    outage_seconds: float = 4.0
    database: str | None = None
    is_plain: bool = False


def demo(
    *,
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help=f"How many jobs; default: {JOBS}.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Which jobs get into which trouble.")] = 1,
    fast: Annotated[bool, typer.Option("--fast", help=f"{FAST_JOBS} jobs and a short outage.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Lines of text instead of a live picture.")] = False,
    database_url: Annotated[
        str | None, typer.Option("--database-url", help="Keep the jobs there, to look at them afterwards.")
    ] = None,
) -> None:
    """Run jobs against a misbehaving upstream, kill the worker in the middle, account for every job, and bring failed ones back."""
    script = Script(
        jobs=jobs or (FAST_JOBS if fast else JOBS),
        seed=seed,
        outage_seconds=1.0 if fast else 4.0,
        database=database_url,
        is_plain=plain,
    )
    if play(Screen(markup=False, emoji=False), script).complaints:
        raise typer.Exit(1)


def play(console: Console, script: Script) -> Account:
    """Play the demo on this console, and return the last account of every job."""
    refusals_min = min(2 * OPENS_AFTER, script.jobs // 10)
    outage = Outage(int(script.jobs * OUTAGE_AT), script.outage_seconds, refusals_min)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="redrive-demo-")))
        upstream = stack.enter_context(FlakyUpstream(seed=script.seed, outage=outage).running())
        database = script.database or str(folder / "demo.db")
        rd = stack.enter_context(connect(database))
        watch = Watch.over(rd, script.jobs)
        _refuse_leftovers(rd, watch)
        view = View(console, plain=script.is_plain or not console.is_terminal)
        view.tell(f"a misbehaving upstream listens on {upstream.url}; the jobs live in {database}")
        ids = rd.submit_many(flow, _articles(script, upstream.url))
        view.tell(f"{len(ids)} jobs are submitted: fetch -> llm -> notify")
        crew = stack.enter_context(closing(Crew(database, folder / "workers.log")))
        with view.showing():
            complaint = Scenes(watch, view, crew, upstream).play()
        account = account_of(rd, ids, upstream.ledger.notified)
        _show(console, account, complaint)
        refused = [job for number, job in enumerate(ids) if _is_refused(number, script)]
        if account.complaints:
            return account
        if not refused:
            view.tell("no key was refused among so few jobs: play it with more to see the way back")
            return account
        complaint = WayBack(rd, view, Shell(console, database), crew, upstream, refused).play()
        before, account = account, account_of(rd, ids, upstream.ledger.notified, recovered=refused)
        compare(before, account)
        _show(console, account, complaint or _miscount(watch))
        view.tell(_how_to_go_on(script))
        return account


def _show(console: Console, account: Account, complaint: str | None) -> None:
    """Show an account, with what went wrong with the demo itself on top of what the account finds."""
    if complaint:
        account.complaints.insert(0, complaint)
    show(console, account)


def _miscount(watch: Watch) -> str | None:
    """Say whether the store's own count of the jobs has changed on the way back."""
    watch.look()
    counted = watch.counts.total()
    return None if counted == watch.total else f"the store counts {counted} jobs instead of {watch.total}"


def _how_to_go_on(script: Script) -> str:
    if script.database is None:
        return "to look around: redrive demo --database-url demo.db keeps the jobs"
    return (
        f"the jobs are kept in {script.database}: look, triage, edit; "
        "their upstream ends here, so that a replay would find nobody"
    )


def _articles(script: Script, url: str) -> Iterator[Article]:
    for number in range(script.jobs):
        yield Article(number, url, WRONG_KEY if _is_refused(number, script) else GOOD_KEY)


def _is_refused(number: int, script: Script) -> bool:
    return trouble_of(number, script.seed) == "wrong key"


def _refuse_leftovers(rd: Redrive, watch: Watch) -> None:
    left = sum(count for (_, status), count in watch.before.items() if status in {"queued", "processing"})
    group = pending(rd)
    letters = 0 if group is None else group.pending
    if left or letters:
        raise ConfigurationError(
            field="--database-url",
            value=f"{left} open jobs and {letters} refused ones of an earlier demo",
            rule="must hold no open jobs of the demo, and none whose key was refused",
            fix="Their upstream is gone: name another file.",
        )
