# SPDX-License-Identifier: Apache-2.0
"""The `collabiq` command. Settings come from the environment; README.md lists them."""

from __future__ import annotations

import functools
import json
import os
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Annotated, Final, ParamSpec

import typer

from apps.collabiq import demo as demonstration
from apps.collabiq import work
from apps.collabiq.secrets import load
from apps.collabiq.settings import Settings
from redrive import RedriveError

P = ParamSpec("P")

_CONTROLS: Final = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Read mail, find collaborations, keep a page about each."
)
dlq = typer.Typer(no_args_is_help=True, help="Look at what failed, and send it back.")
app.add_typer(dlq, name="dlq")


def say(text: str) -> None:
    """Print a line; what came with a mail must not steer the terminal."""
    typer.echo(_CONTROLS.sub("?", text))


def refusing(command: Callable[P, None]) -> Callable[P, None]:
    """Print what the engine or the settings refuse, and exit with 2."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except RedriveError as error:
            typer.echo(_CONTROLS.sub("?", str(error)), err=True)
            raise typer.Exit(2) from None

    return run


@app.command()
@refusing
def run() -> None:
    """Read the mail there is, and write a page about each; what fails is kept, and exits with 1."""
    account = work.run(Settings.from_environment())
    say(
        f"{account.listed} mails: {account.new} new, {account.known} known, {account.waiting} among the dead letters."
        f" Of the new ones {account.done} done, {account.failed} failed."
    )
    raise typer.Exit(1 if account.failed else 0)


@app.command()
@refusing
def demo() -> None:
    """Show it on a few mails, one of them bad, in a temporary folder and without a network."""
    for line in demonstration.demo():
        say(line)


@app.command()
@refusing
def doctor() -> None:
    """Say what is set, where the keys come from, and how things stand; exits with 1 when something is wrong."""
    settings = Settings.from_environment()
    say(
        f"source {settings.source}, extractor {settings.extractor}, sink {settings.sink}, folder {settings.root}"
    )
    is_fine = True
    try:
        say(f"keys: {load(settings).origin}")
    except RedriveError as error:
        is_fine = False
        say(f"keys: {error}")
    if settings.source == "local" and not os.path.exists(settings.mailbox):  # noqa: PTH110 - one question, one answer.
        is_fine = False
        say(f"mailbox: there is none at {settings.mailbox}; set COLLABIQ_MAILBOX")
    with work.opened(settings) as (rd, files):
        say(f"jobs: {rd.counts() or 'none yet'}; dead letters: {len(files.entries())}")
    database = settings.root / "pages.db"
    if settings.sink == "local" and database.exists():
        with closing(sqlite3.connect(database)) as opened:
            (pages,) = opened.execute("SELECT count(*) FROM pages").fetchone()
        say(f"pages: {pages}")
    raise typer.Exit(0 if is_fine else 1)


@dlq.command("list")
@refusing
def list_() -> None:
    """List the dead letters, oldest first."""
    with work.opened(Settings.from_environment()) as (_, files):
        for entry in files.entries():
            what = entry.error_details["error_type"]
            say(f"{entry.dlq_id}  {entry.status.value:9}  {entry.operation_type}  {what}")


@dlq.command()
@refusing
def show(dlq_id: str) -> None:
    """Show one dead letter as JSON."""
    with work.opened(Settings.from_environment()) as (_, files):
        for entry in files.entries():
            if entry.dlq_id == dlq_id:
                say(json.dumps(entry.to_json(), indent=2, ensure_ascii=False))
                return
    typer.echo(f"{dlq_id} is no dead letter here; collabiq dlq list shows them.", err=True)
    raise typer.Exit(2)


@dlq.command()
@refusing
def replay(
    dlq_ids: Annotated[list[str] | None, typer.Argument(help="Which; or --all.")] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="All that wait.")] = False,
    operation: Annotated[str | None, typer.Option(help="With --all: only those of one operation.")] = None,
) -> None:
    """Send dead letters back to the stage that failed; exits with 1 when one of them fails again."""
    settings = Settings.from_environment()
    chosen = work.replayable(settings, operation) if everything else dlq_ids
    if chosen is None:
        typer.echo("Name dead letters, or --all; collabiq dlq list shows them.", err=True)
        raise typer.Exit(2)
    entries = work.replay(settings, chosen, actor=os.environ.get("USER", "unknown"))
    for entry in entries:
        say(f"{entry.dlq_id}  {entry.status.value}")
    raise typer.Exit(0 if all(entry.processed for entry in entries) else 1)
