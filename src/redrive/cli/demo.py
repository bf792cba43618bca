# SPDX-License-Identifier: Apache-2.0
"""`redrive demo`: a few thousand jobs against an upstream that misbehaves, with a worker that is killed in the middle.

Everything is real: an HTTP server on loopback, workers in processes of their own, kill -9, a store on disk. Nothing is scripted
on our side but the order of the scenes; every figure shown is read from the store, or from the upstream's ledger.
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

from redrive.cli.demo_account import Account, account_of, show
from redrive.cli.demo_crew import Crew, Scenes
from redrive.cli.demo_flow import OPENS_AFTER, Article, flow
from redrive.cli.demo_view import View
from redrive.cli.demo_watch import Watch
from redrive.cli.flaky import GOOD_KEY, WRONG_KEY, FlakyUpstream, Outage, trouble_of
from redrive.engine.client import connect
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
    """Run jobs against a misbehaving upstream on this machine, kill the worker in the middle, and account for every job."""
    script = Script(
        jobs=jobs or (FAST_JOBS if fast else JOBS),
        seed=seed,
        outage_seconds=1.0 if fast else 4.0,
        database=database_url,
        is_plain=plain,
    )
    if play(Console(), script).complaints:
        raise typer.Exit(1)


def play(console: Console, script: Script) -> Account:
    """Play the demo on this console, and return the account of every job."""
    refusals_min = min(2 * OPENS_AFTER, script.jobs // 10)
    outage = Outage(int(script.jobs * OUTAGE_AT), script.outage_seconds, refusals_min)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="redrive-demo-")))
        upstream = stack.enter_context(FlakyUpstream(seed=script.seed, outage=outage).running())
        database = script.database or str(folder / "demo.db")
        rd = stack.enter_context(connect(database))
        watch = Watch.over(rd, script.jobs)
        _refuse_leftovers(watch)
        view = View(console, plain=script.is_plain or not console.is_terminal)
        view.tell(f"a misbehaving upstream listens on {upstream.url}; the jobs live in {database}")
        ids = rd.submit_many(flow, _articles(script, upstream.url))
        view.tell(f"{len(ids)} jobs are submitted: fetch -> llm -> notify")
        with closing(Crew(database, folder / "workers.log")) as crew, view.showing():
            complaint = Scenes(watch, view, crew, upstream).play()
        account = account_of(rd, ids, upstream.ledger.notified)
        if complaint:
            account.complaints.insert(0, complaint)
        show(console, account)
        return account


def _articles(script: Script, url: str) -> Iterator[Article]:
    for number in range(script.jobs):
        is_wrong = trouble_of(number, script.seed) == "wrong key"
        yield Article(number, url, WRONG_KEY if is_wrong else GOOD_KEY)


def _refuse_leftovers(watch: Watch) -> None:
    left = sum(count for (_, status), count in watch.before.items() if status in {"queued", "processing"})
    if left:
        raise ConfigurationError(
            field="--database-url",
            value=f"{left} open jobs of an earlier demo",
            rule="must hold no open jobs of the demo",
            fix="Their upstream is gone: name another file.",
        )
