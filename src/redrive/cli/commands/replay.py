# SPDX-License-Identifier: Apache-2.0
"""`redrive replay`: bring dead letters back, step by step, and watch it.

A replay is driven by the workers that serve its pipeline; these commands only write down what is wanted, and look.
"""

from __future__ import annotations

from typing import Annotated

import typer

from redrive.cli.input.act import Act, acting, acting_at_once
from redrive.cli.input.letters import Choice, choosing
from redrive.cli.input.options import ActorName, Database, FromStart, Limit, OfPipeline, Output, by, existing
from redrive.cli.input.rates import canary_of, rate_of
from redrive.cli.output.replay import answer_report, exit_of, facts_of, watched
from redrive.cli.output.tables import answer_rows, say
from redrive.core.replay import CANARY, plan_of
from redrive.errors import ConfigurationError
from redrive.ops.letters.preview import preview_replay
from redrive.ops.replay import replays
from redrive.ops.replay.progress import report_of
from redrive.ops.replay.validation import unused_edits

app = typer.Typer(help="Replay dead letters, watch it, and stop it.", no_args_is_help=True)

LISTED_MAX = 20
"""Letters left out that are named for each replay of a list; its status names more."""
ReplayId = Annotated[int, typer.Argument(metavar="ID", help="The replay's id.")]
Follow = Annotated[
    bool,
    typer.Option(
        "--follow",
        "-f",
        help="Watch until it ends or stops. Exit code: 0 all came back, 1 not all of them, 3 it was stopped or paused.",
    ),
]


@app.command()
@choosing
@acting
def start(
    choice: Choice,
    *,
    canary: Annotated[
        str, typer.Option("--canary", metavar="SIZES", help="The first steps; '' for none.")
    ] = ",".join(map(str, CANARY)),
    rate: Annotated[
        str | None, typer.Option("--rate", metavar="N/UNIT", help="At most so many: 10/s, 600/min, 5000/h.")
    ] = None,
    from_start: FromStart = False,
    follow: Follow = False,
    act: Act,
) -> None:
    """Replay the letters that are meant, and no later ones: from the stage that failed, the canaries first."""
    plan = plan_of(canary_of(canary), rate_of(rate), from_start=from_start)
    with act.database() as rd:
        chosen = choice.means(rd.store)
        found = preview_replay(rd.store, chosen)
        where = "from the first stage" if from_start else "from the stage that failed"
        if not found.lacking:
            if found.taken:
                say(f"{_letters(found.taken)} more {_stay(found.taken)} with a replay that has not ended")
            if unused := unused_edits(rd.store, chosen, from_start=from_start):
                say(
                    f"{_letters(unused)} {_were(unused)} edited in vain: {_unused_part(from_start=from_start)}"
                )
            act.confirm(f"Replay {_letters(found.letters)} of {found.pipeline} {where}?")
        begun = replays.start(rd.store, chosen, act.by, plan=plan, seen=found)
        report = watched(rd.store, begun.id, act.output) if follow else report_of(rd.store, begun.id)
    answer_report(report, act.output)
    if follow:
        raise typer.Exit(exit_of(report))


@app.command("list")
def list_(
    *,
    pipeline: OfPipeline = None,
    before: Annotated[int | None, typer.Option("--before", metavar="ID", help="Older than this one.")] = None,
    limit: Limit = 20,
    database_url: Database = None,
    output: Output = "table",
) -> None:
    """List replays, newest first."""
    with existing(database_url) as rd:
        ids = [
            each.id for each in replays.list_replays(rd.store, pipeline=pipeline, before=before, limit=limit)
        ]
        found = [facts_of(report_of(rd.store, each, skipped_max=LISTED_MAX)) for each in ids]
    columns = (
        "id",
        "pipeline",
        "status",
        "letters",
        "recovered",
        "failed_again_same",
        "failed_again_other",
        "skipped",
        "waiting",
        "created_at",
    )
    answer_rows(found, columns, output, empty="nothing was ever replayed here")


@app.command()
def status(
    replay: ReplayId, *, follow: Follow = False, database_url: Database = None, output: Output = "table"
) -> None:
    """Show how a replay stands: what recovered, failed again or was left out, what it waits for, and for how long."""
    with existing(database_url) as rd:
        report = watched(rd.store, replay, output) if follow else report_of(rd.store, replay)
    answer_report(report, output)
    if follow:
        raise typer.Exit(exit_of(report))


@app.command()
@acting_at_once
def pause(replay: ReplayId, *, act: Act) -> None:
    """Release nothing more until it is resumed; what was released goes on."""
    with act.database() as rd:
        replays.pause(rd.store, replay, act.by)
        report = report_of(rd.store, replay)
    answer_report(report, act.output)


@app.command()
@acting_at_once
def resume(replay: ReplayId, *, act: Act) -> None:
    """Go on with a replay that was paused or stopped itself."""
    with act.database() as rd:
        replays.resume(rd.store, replay, act.by)
        report = report_of(rd.store, replay)
    answer_report(report, act.output)


@app.command()
@acting
def cancel(replay: ReplayId, *, act: Act) -> None:
    """End a replay: what was not released stays a dead letter, what was goes on to its end."""
    with act.database() as rd:
        found = report_of(rd.store, replay)
        # One that has ended is refused, and nobody needs to be asked about that.
        if found.ended_at is None:
            act.confirm(
                f"Cancel replay {replay} and leave {_letters(found.waiting)} as {_they(found.waiting)}?"
            )
        replays.cancel(rd.store, replay, act.by)
        report = report_of(rd.store, replay)
    answer_report(report, act.output)


@app.command()
def close(
    replay: ReplayId,
    *,
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="How it was resolved.")],
    actor: ActorName = None,
    database_url: Database = None,
    output: Output = "table",
) -> None:
    """Close a replay that has ended, with a note on how it was resolved."""
    if len(note) > replays.NOTE_MAX:
        raise ConfigurationError(
            field="--note",
            value=note,
            rule=f"must have at most {replays.NOTE_MAX:,} characters",
            fix="Say it shorter, or name the document that tells it all.",
        )
    with existing(database_url) as rd:
        replays.close(rd.store, replay, by(actor, None), note=note)
        report = report_of(rd.store, replay)
    answer_report(report, output)


def _unused_part(*, from_start: bool) -> str:
    unused, used = ("input", "payload") if from_start else ("payload", "input")
    return f"a replay like this starts with the {used}, and the {unused} was edited; redrive dlq validate names them"


def _letters(count: int) -> str:
    return "1 dead letter" if count == 1 else f"{count:,} dead letters"


def _stay(count: int) -> str:
    return "stays" if count == 1 else "stay"


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def _they(count: int) -> str:
    return "it is" if count == 1 else "they are"
