# SPDX-License-Identifier: Apache-2.0
"""`redrive replay`: bring dead letters back, step by step, and watch it.

A campaign is driven by the workers that serve its pipeline; these commands only write down what is wanted, and look.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from redrive.cli.acting import Act, acting, acting_at_once
from redrive.cli.answers import answer_facts, answer_json, answer_rows, console, is_interactive, say, table_of
from redrive.cli.options import Actor, Database, Format, FromStart, Limit, OfPipeline, Output, by, existing
from redrive.cli.rates import canary_of, rate_of
from redrive.cli.refusals import DONE, FAILED, HELD
from redrive.cli.selections import Choice, choosing
from redrive.core.replay import CANARY, plan_of
from redrive.engine.runtime import CURRENT
from redrive.ops import replay
from redrive.ops.campaign_report import REASONS_MAX, CampaignReport, report_of
from redrive.store.protocol import Store

app = typer.Typer(help="Replay dead letters, watch it, and stop it.", no_args_is_help=True)

LOOK_SECONDS = 0.5
LISTED_MAX = 20
"""Letters left out that are named for each replay of a list; its status names more."""
CampaignId = Annotated[int, typer.Argument(metavar="ID", help="The replay's id.")]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Watch until it ends or stops itself.")]


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
        found = replay.prospect(rd.store, chosen)
        where = "from the first stage" if from_start else "from the stage that failed"
        if not found.lacking:
            act.confirm(f"Replay {found.letters} dead letters of {found.pipeline} {where}?")
        begun = replay.start(rd.store, chosen, act.by, plan=plan, seen=found)
        report = _watched(rd.store, begun.id, act.output) if follow else report_of(rd.store, begun.id)
    _answer(report, act.output)
    if follow:
        raise typer.Exit(_exit_of(report))


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
            each.id for each in replay.list_campaigns(rd.store, pipeline=pipeline, before=before, limit=limit)
        ]
        found = [_facts_of(report_of(rd.store, each, skipped_max=LISTED_MAX)) for each in ids]
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
    campaign: CampaignId, *, follow: Follow = False, database_url: Database = None, output: Output = "table"
) -> None:
    """Show how a replay stands: what recovered, failed again or was left out, what it waits for, and for how long."""
    with existing(database_url) as rd:
        report = _watched(rd.store, campaign, output) if follow else report_of(rd.store, campaign)
    _answer(report, output)
    if follow:
        raise typer.Exit(_exit_of(report))


@app.command()
@acting_at_once
def pause(campaign: CampaignId, *, act: Act) -> None:
    """Release nothing more until it is resumed; what was released goes on."""
    with act.database() as rd:
        replay.pause(rd.store, campaign, act.by)
        report = report_of(rd.store, campaign)
    _answer(report, act.output)


@app.command()
@acting_at_once
def resume(campaign: CampaignId, *, act: Act) -> None:
    """Go on with a replay that was paused or stopped itself."""
    with act.database() as rd:
        replay.resume(rd.store, campaign, act.by)
        report = report_of(rd.store, campaign)
    _answer(report, act.output)


@app.command()
@acting
def cancel(campaign: CampaignId, *, act: Act) -> None:
    """End a replay: what was not released stays a dead letter, what was goes on to its end."""
    with act.database() as rd:
        waiting = report_of(rd.store, campaign).waiting
        act.confirm(f"Cancel replay {campaign} and leave {waiting} letters where they are?")
        replay.cancel(rd.store, campaign, act.by)
        report = report_of(rd.store, campaign)
    _answer(report, act.output)


@app.command()
def close(
    campaign: CampaignId,
    *,
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="How it was resolved.")],
    actor: Actor = None,
    database_url: Database = None,
    output: Output = "table",
) -> None:
    """Close a replay that has ended, with a note on how it was resolved."""
    with existing(database_url) as rd:
        replay.close(rd.store, campaign, by(actor, None), note=note)
        report = report_of(rd.store, campaign)
    _answer(report, output)


def _watched(store: Store, campaign: int, output: Format) -> CampaignReport:
    """Look again and again until it has ended or needs somebody; a bar for who watches, a line per change for logs."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
    )
    is_hidden = output != "table" or not is_interactive()
    with Progress(*columns, console=console(), transient=True, disable=is_hidden) as progress:
        task = progress.add_task(f"replay {campaign}", total=None)
        last: tuple[int, str] | None = None
        while True:
            report = report_of(store, campaign)
            ended = report.letters - report.waiting - report.replaying
            told = f"replay {campaign}: {report.waits_for or report.status}"
            progress.update(task, total=report.letters, completed=ended, description=told)
            if is_hidden and output == "table" and (ended, told) != last:
                say(f"{told}; {ended} of {report.letters} have ended")
            last = (ended, told)
            if report.ended_at is not None or report.status in {"paused", "stopped"}:
                return report
            CURRENT.get().clock.sleep(LOOK_SECONDS)


def _exit_of(report: CampaignReport) -> int:
    if report.ended_at is None:
        return HELD
    failed = report.failed_again_same + report.failed_again_other + report.skipped
    return FAILED if failed or report.status == "cancelled" else DONE


def _facts_of(report: CampaignReport) -> dict[str, object]:
    """Return a report as programs read it, with what was left out by name."""
    facts: dict[str, object] = asdict(report)
    del facts["first_skipped"]
    facts["skips"] = [
        {
            "reason": reason,
            "letters": letters,
            "first": [letter for letter, _ in report.first_skipped.get(reason, ())],
        }
        for reason, letters in report.skips
    ]
    facts["skipped_letters"] = [
        {"letter": letter, "reason": reason} for letter, reason in report.skipped_letters
    ]
    return facts


def _answer(report: CampaignReport, output: Format) -> None:
    if output == "json":
        answer_json(_facts_of(report))
        return
    lists = {"failures", "skips", "first_skipped", "skipped_letters", "selection", "canary"}
    # What is nothing is left out for people; programs get it all.
    shown = {
        name: value
        for name, value in asdict(report).items()
        if name not in lists and (value or name == "recovered")
    }
    answer_facts(shown, output)
    if report.failures:
        rows = [asdict(each) for each in report.failures]
        console().print(table_of(rows, ("code", "group", "letters", "escalated", "sample")))
    _tell_skips(report)
    if report.status == "stopped":
        say(
            f"it stopped itself; look at redrive dlq show {_sample(report)}, then redrive replay resume or cancel {report.id}"
        )
    elif report.ended_at is not None and report.closed_at is None:
        say(f'close it with: redrive replay close {report.id} --note "..."')


def _tell_skips(report: CampaignReport) -> None:
    """Show why letters were left out, and which: the first few for each reason."""
    if not report.skips:
        return
    rows: list[dict[str, object]] = []
    is_all = True
    for reason, letters in report.skips[:REASONS_MAX]:
        first = report.first_skipped.get(reason, ())
        # What is told of one letter alone stands behind the reason: "(job 12)".
        named = [f"{letter}{full.removeprefix(reason)}" for letter, full in first]
        more = letters - len(first)
        is_all &= not more
        told = ", ".join([*named, *([f"and {more:,} more"] if more else [])])
        rows.append({"skipped": letters, "because": reason, "letters": told})
    console().print(table_of(rows, ("skipped", "because", "letters")))
    if unshown := len(report.skips) - len(rows):
        say(f"and {unshown:,} more reason{'' if unshown == 1 else 's'}")
    if not is_all or unshown:
        say(f"more of them by name: redrive replay status {report.id} -o json")


def _sample(report: CampaignReport) -> str:
    return str(report.failures[0].sample) if report.failures else "ID"
