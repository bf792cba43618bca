# SPDX-License-Identifier: Apache-2.0
"""The root of the command line: puts the commands together and ends with an exit code.

An error of redrive's own ends as a message with a hint, never as a stack trace; `output.errors` has the exit codes.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from redrive.cli.commands import (
    breaker,
    dlq,
    dlq_edit,
    dlq_transfer,
    dlq_triage,
    events,
    job,
    lab,
    limit,
    pipeline,
    replay,
    report,
    run,
    schedule,
    submit,
    upkeep,
    worker,
)
from redrive.cli.demo import command as demo
from redrive.cli.output.errors import print_error
from redrive.errors import RedriveError

app = typer.Typer(
    name="redrive",
    help="Run jobs through stages and account for every failure.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
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
    """Run jobs through stages and account for every failure."""


# These modules add their commands to `dlq`.
ADDED = (dlq_edit, dlq_triage, dlq_transfer)

WORK = "Run work"
LOOK = "Inspect"
BACK = "Recover failed jobs"
KEEP = "Maintain the database"

app.command(rich_help_panel=WORK)(submit.submit)
app.command(rich_help_panel=WORK)(worker.worker)
app.add_typer(run.app, name="run", rich_help_panel=WORK)
app.add_typer(schedule.app, name="schedule", rich_help_panel=WORK)
app.add_typer(job.app, name="job", rich_help_panel=LOOK)
app.add_typer(dlq.app, name="dlq", rich_help_panel=BACK)
app.add_typer(replay.app, name="replay", rich_help_panel=BACK)
app.add_typer(pipeline.app, name="pipeline", rich_help_panel=LOOK)
app.add_typer(breaker.app, name="breaker", rich_help_panel=LOOK)
app.add_typer(limit.app, name="limit", rich_help_panel=LOOK)
app.add_typer(report.app, name="report", rich_help_panel=LOOK)
app.add_typer(lab.app, name="lab", rich_help_panel=LOOK)
app.command(rich_help_panel=LOOK)(events.events)
app.command(rich_help_panel=LOOK)(events.stats)
app.command(rich_help_panel=KEEP)(upkeep.doctor)
app.command(rich_help_panel=KEEP)(upkeep.backup)
app.command(rich_help_panel=KEEP)(upkeep.prune)
app.command(rich_help_panel=KEEP)(upkeep.migrate)
app.command(rich_help_panel=WORK)(demo.demo)


def main() -> None:
    """Run the command line."""
    try:
        app()
    except RedriveError as error:
        raise SystemExit(print_error(error)) from None
