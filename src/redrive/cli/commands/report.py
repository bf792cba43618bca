# SPDX-License-Identifier: Apache-2.0
"""`redrive report`: retries, errors, stages and the account of jobs, as a table, as JSON, or as an SVG chart.

A chart goes to standard output, as all results do: `redrive report errors -o svg > errors.svg`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated

import typer

from redrive.cli.input.action import option_group
from redrive.cli.input.letters import OfStage
from redrive.cli.input.options import Database, OfPipeline, OutputOrPicture, Picture, open_database
from redrive.cli.output.errors import FAILED
from redrive.cli.output.tables import print_facts, print_message, print_rows
from redrive.ops.reports import charts, reports
from redrive.ops.reports.reports import Bucket, ErrorReport, Scope

app = typer.Typer(help="Report retries, errors, stages and the account of jobs.", no_args_is_help=True)

OfRun = Annotated[int | None, typer.Option("--run", metavar="ID", help="Of this run.")]


def _scope(*, pipeline: OfPipeline = None, stage: OfStage = None, run: OfRun = None) -> Scope:
    return Scope(pipeline=pipeline, stage=stage, run=run)


scoped = option_group("scope", _scope)
"""Adds the options that narrow a report down."""


@app.command()
@scoped
def retries(scope: Scope, *, database_url: Database = None, output: OutputOrPicture = "table") -> None:
    """Count jobs by how many retries they needed: 0, 1, 2, and 3 or more."""
    with open_database(database_url) as rd:
        found = reports.retry_histogram(rd.store, scope)
    chart = partial(
        charts.histogram, f"Jobs by retries: {scope}", [(each.retries, each.jobs) for each in found]
    )
    _print(found, ("retries", "jobs", "share"), output, chart, empty="no attempts")


@app.command()
@scoped
def errors(scope: Scope, *, database_url: Database = None, output: OutputOrPicture = "table") -> None:
    """Rank the error codes of failed attempts, the most frequent first."""
    with open_database(database_url) as rd:
        found = reports.error_ranking(rd.store, scope)
    bars = [(each.code, each.failures) for each in found]
    chart = partial(charts.ranking, f"Failed attempts by code: {scope}", bars)
    columns = ("code", "category", "failures", "jobs", "share", "last_at")
    _print(found, columns, output, chart, empty="no failed attempts")


@app.command()
@scoped
def stages(scope: Scope, *, database_url: Database = None, output: OutputOrPicture = "table") -> None:
    """Show how reliable each stage is: the outcomes of its attempts, and their mean duration."""
    with open_database(database_url) as rd:
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
    rows = (
        found
        if output == "json"
        else [
            {**asdict(each), "success": f"{each.success:.1%}", "duration": f"{each.seconds:.3g} s"}
            for each in found
        ]
    )
    columns = "pipeline stage attempts ok retry hold dead crashed cancelled skipped success duration".split()
    print_rows(rows, columns, output, empty="no attempts")


@app.command()
@option_group("scope", _scope, without={"stage"})
def account(scope: Scope, *, database_url: Database = None, output: OutputOrPicture = "table") -> None:
    """Account for the jobs of a pipeline or a run; exit code 1 when the parts differ from the total."""
    with open_database(database_url) as rd:
        found = reports.account(rd.store, scope)
    if output == "svg":
        parts = ("succeeded", "dead", "cancelled", "skipped", "queued", "processing")
        bars = [(part, int(getattr(found, part))) for part in parts]
        typer.echo(charts.ranking(f"{found.total:,} jobs of {found.subject}", bars))
    else:
        facts = {**asdict(found), "open": found.open, "adds_up": found.adds_up}
        print_facts({name: fact for name, fact in facts.items() if fact is not None}, output)
    if not found.adds_up:
        print_message(
            f"error: the parts differ from the total by {found.difference}; if workers are running, try again,"
            " or run redrive doctor --deep"
        )
        raise typer.Exit(FAILED)


def _print(
    found: Sequence[Bucket | ErrorReport],
    columns: Sequence[str],
    output: Picture,
    chart: Callable[[], str],
    *,
    empty: str,
) -> None:
    if output == "svg":
        typer.echo(chart())
        return
    shares = [{**asdict(each), "share": f"{each.share:.1%}"} for each in found]
    print_rows(found if output == "json" else shares, columns, output, empty=empty)
