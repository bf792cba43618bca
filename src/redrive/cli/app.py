# SPDX-License-Identifier: Apache-2.0
"""The command line's root: its commands, and how errors of redrive become messages and exit codes.

Exit codes: 0 done, 1 the work itself failed, 2 the command was called wrongly.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer
from rich.console import Console

from redrive.cli import jobs
from redrive.cli.demo import play
from redrive.errors import RedriveError

app = typer.Typer(
    name="redrive",
    help="Run work through stages and account for every failure.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_show_locals=False,
)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it with the flag's value.
    if wanted:
        typer.echo(f"redrive {version('redrive')}")
        raise typer.Exit


@app.callback()
def root(
    *,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Run work through stages and account for every failure."""


@app.command()
def demo(
    *,
    instant: Annotated[bool, typer.Option("--instant", help="Let time pass without waiting.")] = False,
) -> None:
    """Put guard on calls to a flaky server on this machine, and show what becomes of each failure and why."""
    play(Console(), instant=instant)


app.command()(jobs.submit)
app.command()(jobs.worker)
app.command()(jobs.stats)
app.add_typer(jobs.job_app, name="job")


def main() -> None:
    """Run the command line; what redrive itself refuses ends as a message with a hint, not as a stack trace."""
    try:
        app()
    except RedriveError as error:
        console = Console(stderr=True)
        console.print(f"[bold red]{error.code}[/]: {error}", highlight=False)
        console.print(f"  {error.hint}", highlight=False)
        raise SystemExit(2) from None
