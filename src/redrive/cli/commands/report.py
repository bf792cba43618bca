# SPDX-License-Identifier: Apache-2.0
"""`redrive report`: what the attempts add up to, as a table, as JSON, or as a picture to put into a page.

A picture goes to standard output, as all answers do: `redrive report errors -o svg > errors.svg`.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Final, Literal

import typer

from redrive.cli.input.letter_options import OfStage
from redrive.cli.input.options import Database, OfPipeline, existing
from redrive.cli.output.tables import answer_facts, answer_rows, say
from redrive.ops.reports import charts, reports
from redrive.ops.reports.reports import Scope

app = typer.Typer(help="Show what attempts add up to.", no_args_is_help=True)

OfRun = Annotated[int | None, typer.Option("--run", metavar="ID", help="Of this run.")]
Shown = Annotated[
    Literal["table", "json", "svg"], typer.Option("-o", "--output", help="How to show the answer.")
]
NOTHING: Final = "nothing has happened yet"


@app.command()
def retries(
    *,
    pipeline: OfPipeline = None,
    stage: OfStage = None,
    run: OfRun = None,
    database_url: Database = None,
    output: Shown = "table",
) -> None:
    """Count jobs by how many retries they needed: 0, 1, 2, and 3 or more."""
    scope = Scope(pipeline=pipeline, stage=stage, run=run)
    with existing(database_url) as rd:
        found = reports.retry_histogram(rd.store, scope)
    if output == "svg":
        bars = [(bucket.retries, bucket.jobs) for bucket in found]
        typer.echo(charts.histogram(f"Jobs by retries: {scope}", bars))
        return
    rows = found if output == "json" else [{**asdict(each), "share": f"{each.share:.1%}"} for each in found]
    answer_rows(rows, ("retries", "jobs", "share"), output, empty=NOTHING)


@app.command()
def errors(
    *,
    pipeline: OfPipeline = None,
    stage: OfStage = None,
    run: OfRun = None,
    database_url: Database = None,
    output: Shown = "table",
) -> None:
    """Rank the errors of failed attempts, the most frequent first."""
    scope = Scope(pipeline=pipeline, stage=stage, run=run)
    with existing(database_url) as rd:
        found = reports.error_ranking(rd.store, scope)
    if output == "svg":
        bars = [(ranked.code, ranked.failures) for ranked in found]
        typer.echo(charts.ranking(f"Failed attempts by code: {scope}", bars))
        return
    rows = found if output == "json" else [{**asdict(each), "share": f"{each.share:.1%}"} for each in found]
    columns = ("code", "category", "failures", "jobs", "share", "last_at")
    answer_rows(rows, columns, output, empty="nothing has failed")


@app.command()
def stages(
    *,
    pipeline: OfPipeline = None,
    stage: OfStage = None,
    run: OfRun = None,
    database_url: Database = None,
    output: Shown = "table",
) -> None:
    """Show how reliable each stage is: what its attempts came to, and how long they take."""
    scope = Scope(pipeline=pipeline, stage=stage, run=run)
    with existing(database_url) as rd:
        found = reports.stage_reliability(rd.store, scope)
    if output == "svg":
        bars = [
            (
                f"{each.pipeline}.{each.stage}",
                {part: getattr(each, part) for part in charts.PARTS},
                f"{each.success:.1%} ok",
            )
            for each in found
        ]
        typer.echo(charts.shares(f"Attempts by outcome: {scope}", bars))
        return
    if output == "json":
        answer_rows(found, (), output, empty=NOTHING)
        return
    rows = [
        {**asdict(each), "success": f"{each.success:.1%}", "takes": f"{each.seconds:.3g} s"} for each in found
    ]
    columns = "pipeline stage attempts ok retry hold dead crashed cancelled success takes".split()
    answer_rows(rows, columns, output, empty=NOTHING)


@app.command()
def account(
    *,
    pipeline: OfPipeline = None,
    run: OfRun = None,
    database_url: Database = None,
    output: Shown = "table",
) -> None:
    """Account for the jobs of a pipeline or a run; ends with 1 if they do not add up."""
    with existing(database_url) as rd:
        found = reports.account(rd.store, Scope(pipeline=pipeline, run=run))
    if output == "svg":
        parts = ("succeeded", "dead", "cancelled", "queued", "processing")
        bars = [(part, int(getattr(found, part))) for part in parts]
        typer.echo(charts.ranking(f"{found.total:,} jobs of {found.subject}", bars))
    else:
        facts = {**asdict(found), "open": found.open, "adds_up": found.adds_up}
        answer_facts({name: fact for name, fact in facts.items() if fact is not None}, output)
    if not found.adds_up:
        say(
            f"error: the parts differ from the total by {found.difference}; if work goes on this moment, ask again,"
            " or let redrive doctor --deep look"
        )
        raise typer.Exit(1)
