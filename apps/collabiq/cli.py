# SPDX-License-Identifier: Apache-2.0
"""The `collabiq` command. Settings come from the environment; README.md lists them."""

from __future__ import annotations

import json
import logging
import os
import re
from typing import Annotated, Any, Final, Literal

import typer
from typer.core import TyperGroup

from apps.collabiq import demo as demonstration
from apps.collabiq import work
from apps.collabiq.records import DLQStatus, Operation
from apps.collabiq.secrets import load
from apps.collabiq.settings import Settings
from apps.collabiq.sinks import LocalPages
from apps.collabiq.sources import check_mailbox
from apps.tracing import trace_if_configured
from redrive import ConfigurationError, RedriveError

Output = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]
_CONTROLS: Final = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


class RefusalGroup(TyperGroup):
    """Commands that print a refusal by the engine or the settings, and exit with 2."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except RedriveError as error:
            text = str(error)
            say(text if error.hint in text else f"{text}. {error.hint}", is_error=True)
            raise typer.Exit(2) from None


app = typer.Typer(
    cls=RefusalGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
dlq = typer.Typer(no_args_is_help=True, help="Inspect and replay dead letters.")
app.add_typer(dlq, name="dlq")


def say(text: str, *, is_error: bool = False) -> None:
    """Print a line; text from a mail must not control the terminal."""
    typer.echo(_CONTROLS.sub("?", text), err=is_error)


@app.callback()
def main(
    log_level: Annotated[LogLevel, typer.Option("--log-level", help="The lowest level to log.")] = "warning",
) -> None:
    """Read mail, find collaborations, write a page about each."""
    trace_if_configured()
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    for name in ("collabiq", "redrive"):
        logging.getLogger(name).setLevel(log_level.upper())


@app.command()
def run() -> None:
    """Read all mail, and write a page about each; failures become dead letters, and the exit code is 1."""
    account = work.run(Settings.from_environment())
    say(
        f"{account.listed} mails: {account.new} new, {account.known} known, {account.waiting} among the dead letters."
        f" Of the new ones {account.done} done, {account.failed} added to the dead letters."
    )
    raise typer.Exit(1 if account.failed else 0)


@app.command()
def demo() -> None:
    """Run on a few sample mails, one of them unreadable, in a temporary folder and without a network."""
    for line in demonstration.demo():
        say(line)


@app.command()
def doctor() -> None:
    """Show the settings, the origin of the keys, and the state of the jobs; exit with 1 if something is wrong."""
    settings = Settings.from_environment()
    say(
        f"source {settings.source}, extractor {settings.extractor}, sink {settings.sink}, folder {settings.root}"
    )
    problems: list[str] = []
    with work.opened(settings) as (rd, files):
        try:
            say(f"keys: {load(rd, settings).origin}")
        except RedriveError as error:
            problems.append(f"keys: {error}")
        waiting = sum(map(work.is_replayable, files.update(rd)))
        say(f"jobs: {rd.jobs.counts() or 'none yet'}; dead letters: {waiting}")
    if settings.source == "local":
        try:
            check_mailbox(settings.mailbox)
        except ConfigurationError as error:
            problems.append(f"mailbox: {error}")
    if settings.sink == "local":
        say(f"pages: {len(LocalPages(settings.root).kept())}")
    for problem in problems:
        say(problem)
    raise typer.Exit(1 if problems else 0)


@dlq.command("list")
def list_(
    *,
    operation: Annotated[Operation | None, typer.Option(help="Only those of one operation.")] = None,
    status: Annotated[DLQStatus | None, typer.Option(help="Only those with one status.")] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="Lines of text, or JSON.")] = "text",
) -> None:
    """List the dead letters, oldest first."""
    chosen = [
        entry
        for entry in work.entries(Settings.from_environment())
        if operation in {None, entry.operation_type} and status in {None, entry.status}
    ]
    if output == "json":
        say(json.dumps([entry.to_json() for entry in chosen], indent=2, ensure_ascii=False))
        return
    for entry in chosen:
        what = entry.error_details["error_type"]
        say(f"{entry.dlq_id}  {entry.status.value:9}  {entry.operation_type}  {what}")


@dlq.command()
def show(dlq_id: str) -> None:
    """Show one dead letter as JSON."""
    known = {entry.dlq_id: entry for entry in work.entries(Settings.from_environment())}
    if dlq_id not in known:
        raise work.unknown(dlq_id, known)
    say(json.dumps(known[dlq_id].to_json(), indent=2, ensure_ascii=False))


@dlq.command()
def complete(
    dlq_id: str,
    note: Annotated[str, typer.Option(help="Why it needs no replay.")],
) -> None:
    """Close a dead letter without a replay, with a note."""
    entry = work.complete(Settings.from_environment(), dlq_id, note=note, actor=_actor())
    say(f"{entry.dlq_id}  {entry.status.value}")


@dlq.command()
def replay(
    dlq_ids: Annotated[list[str] | None, typer.Argument(help="The ids of dead letters; or --all.")] = None,
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Every dead letter that can be replayed.")
    ] = False,
    operation: Annotated[
        Operation | None, typer.Option(help="With --all: only those of one operation.")
    ] = None,
    most: Annotated[
        int | None, typer.Option("--max", min=1, help="With --all: only so many, the oldest first.")
    ] = None,
) -> None:
    """Replay dead letters from the stage that failed; exit with 1 if one of them fails again."""
    settings = Settings.from_environment()
    if everything == bool(dlq_ids):
        fix = "Give ids of dead letters, or --all, not both; collabiq dlq list shows them."
        raise ConfigurationError(field="dead letter", value=dlq_ids, rule="must be given once", fix=fix)
    if not everything and (operation or most):
        fix = "They choose among all: add --all, or leave them out."
        raise ConfigurationError(field="--operation, --max", value=dlq_ids, rule="need --all", fix=fix)
    chosen = None if everything else dlq_ids
    entries = work.replay(settings, chosen, operation=operation, most=most, actor=_actor())
    for entry in entries:
        say(f"{entry.dlq_id}  {entry.status.value}")
    raise typer.Exit(0 if all(entry.processed for entry in entries) else 1)


def _actor() -> str:
    return os.environ.get("USER", "unknown")
