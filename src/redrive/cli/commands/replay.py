# SPDX-License-Identifier: Apache-2.0
"""`redrive replay`: replay dead letters step by step, and follow, pause, cancel or close a replay.

Workers of the pipeline carry out a replay; these commands only store what is wanted, and report.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Annotated, Final

import typer

from redrive.cli.input.action import Action, confirmed_action, immediate_action, option_group
from redrive.cli.input.letters import LetterChoice, letter_choice
from redrive.cli.input.options import Database, FromStart, Limit, OfPipeline, Output, open_database
from redrive.cli.output.replay import exit_code, facts_of, print_report
from redrive.cli.output.replay import follow as follow_replay
from redrive.cli.output.tables import print_message, print_rows
from redrive.core.limit import parse_rate
from redrive.core.replay import CANARY, plan_of
from redrive.core.units import plural
from redrive.errors import ConfigurationError
from redrive.ops.audit import Actor
from redrive.ops.letters.preview import preview_replay
from redrive.ops.replay import replays
from redrive.ops.replay.progress import report_of
from redrive.ops.replay.validation import unused_edits
from redrive.store.protocol import Store

app = typer.Typer(help="Replay dead letters; follow, pause, cancel and close replays.", no_args_is_help=True)

LIST_SKIPPED_MAX: Final = 20
"""Skipped letters named for each replay of a list; its status names more."""
LIST_COLUMNS: Final = "id pipeline status letters recovered failed_again_same failed_again_other skipped waiting created_at".split()
ReplayId = Annotated[int, typer.Argument(metavar="ID", help="The replay's id.")]
Follow = Annotated[
    bool,
    typer.Option(
        "--follow",
        "-f",
        help="Wait until it ends or stops. Exit code: 0 all recovered, 1 not all of them, 3 stopped or paused.",
    ),
]


@app.command()
@letter_choice
@confirmed_action
def start(
    choice: LetterChoice,
    *,
    canary: Annotated[
        str, typer.Option("--canary", metavar="SIZES", help="The sizes of the first steps; '' for none.")
    ] = ",".join(map(str, CANARY)),
    rate: Annotated[
        str | None,
        typer.Option("--rate", metavar="N/UNIT", help="The maximum rate: 10/s, 600/min, 5000/hour."),
    ] = None,
    from_start: FromStart = False,
    follow: Follow = False,
    action: Action,
) -> None:
    """Replay the letters that match now, and no later ones: from the stage that failed, the canaries first."""
    per_second = None if rate is None else parse_rate("--rate", rate)
    plan = plan_of(_canary(canary), per_second, from_start=from_start)
    with action.database() as rd:
        which = choice.filter(rd.store)
        found = preview_replay(rd.store, which)
        if not found.lacking:
            if found.taken:
                print_message(f"{plural(found.taken, 'dead letter')} left out: marked by another replay")
            if unused := unused_edits(rd.store, which, from_start=from_start):
                used, edited = ("payload", "stage input") if from_start else ("stage input", "payload")
                print_message(
                    f"{plural(unused, 'edit')} will be ignored: this replay starts from the {used}, but the {edited}"
                    " was edited; redrive dlq validate lists them"
                )
            where = "the first stage" if from_start else "the stage that failed"
            action.confirm(f"Replay {plural(found.letters, 'dead letter')} of {found.pipeline} from {where}?")
        begun = replays.start(rd.store, which, action.by, plan=plan, seen=found)
        report = follow_replay(rd.store, begun.id, action.output) if follow else report_of(rd.store, begun.id)
    print_report(report, action.output)
    if follow:
        raise typer.Exit(exit_code(report))


@app.command("list")
def list_(
    *,
    pipeline: OfPipeline = None,
    before: Annotated[
        int | None, typer.Option("--before", metavar="ID", help="Older than this replay: the next page.")
    ] = None,
    limit: Limit = 20,
    database_url: Database = None,
    output: Output = "table",
) -> None:
    """List replays, newest first."""
    with open_database(database_url) as rd:
        found = replays.list_replays(rd.store, pipeline=pipeline, before=before, limit=limit)
        rows = [facts_of(report_of(rd.store, each.id, skipped_max=LIST_SKIPPED_MAX)) for each in found]
    print_rows(rows, LIST_COLUMNS, output, empty="no replays")


@app.command()
def status(
    replay: ReplayId, *, follow: Follow = False, database_url: Database = None, output: Output = "table"
) -> None:
    """Show a replay: letters recovered, failed again and skipped, what it waits for, and the time left."""
    with open_database(database_url) as rd:
        report = follow_replay(rd.store, replay, output) if follow else report_of(rd.store, replay)
    print_report(report, output)
    if follow:
        raise typer.Exit(exit_code(report))


@app.command()
@immediate_action
def pause(replay: ReplayId, *, action: Action) -> None:
    """Pause a replay: no more letters are released; released ones continue."""
    _change(replay, action, replays.pause)


@app.command()
@immediate_action
def resume(replay: ReplayId, *, action: Action) -> None:
    """Resume a replay that was paused or stopped itself."""
    _change(replay, action, replays.resume)


@app.command()
@confirmed_action
def cancel(replay: ReplayId, *, action: Action) -> None:
    """Cancel a replay: letters not released stay dead letters, released ones continue."""
    with action.database() as rd:
        found = report_of(rd.store, replay)
        # One that has ended is refused without a question.
        if found.ended_at is None:
            action.confirm(
                f"Cancel replay {replay} with {plural(found.waiting, 'dead letter')} not replayed?"
            )
    _change(replay, action, replays.cancel)


@app.command()
# The note is its own reason.
@option_group("action", Action, without={"reason", "yes"}, is_last=True)
def close(
    replay: ReplayId,
    *,
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="How it was resolved.")],
    action: Action,
) -> None:
    """Close a replay that has ended, with a note on how it was resolved."""
    if len(note) > replays.NOTE_MAX:
        raise ConfigurationError(
            field="--note",
            value=note,
            rule=f"must have at most {replays.NOTE_MAX:,} characters",
            fix="Shorten it, or name a document with the details.",
        )
    _change(replay, action, lambda store, which, by: replays.close(store, which, by, note=note))


def _change(replay: int, action: Action, change: Callable[[Store, int, Actor], object]) -> None:
    with action.database() as rd:
        change(rd.store, replay, action.by)
        report = report_of(rd.store, replay)
    print_report(report, action.output)


def _canary(text: str) -> tuple[int, ...]:
    """Return the sizes of the first steps, in rising order; none for an empty text."""
    fix = "1,5,20,100 is usual."
    try:
        sizes = tuple(int(size) for size in text.split(",")) if text.strip() else ()
    except ValueError as error:
        raise ConfigurationError(
            field="--canary", value=text, rule="must be whole numbers separated by commas", fix=fix
        ) from error
    if any(later <= earlier for earlier, later in pairwise((0, *sizes))):
        raise ConfigurationError(field="--canary", value=text, rule="must rise, from 1 or more", fix=fix)
    return sizes
