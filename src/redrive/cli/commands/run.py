# SPDX-License-Identifier: Apache-2.0
"""`redrive run`: run every item of a file through a pipeline, in this process, within a failure budget; resume it later.

A run stores its pipeline and file, so resuming it needs only its id. Exit codes: 0 completed; 1 failed, aborted or a partial
success; 2 wrong arguments or input; 3 held, paused or interrupted: it can be resumed. A run is paused, cancelled and labelled from
any process; the one that drives it follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Literal, cast

import msgspec
import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from redrive.cli.input.action import Action, confirmed_action, immediate_action
from redrive.cli.input.files import STANDARD_INPUT, check_all, values_in
from redrive.cli.input.options import Database, Format, Limit, Output, Target, open_database
from redrive.cli.input.targets import import_pipeline
from redrive.cli.output.errors import DONE, FAILED, HELD, print_error
from redrive.cli.output.tables import (
    console,
    is_interactive,
    print_facts,
    print_json_line,
    print_message,
    print_rows,
)
from redrive.client.connection import Redrive, connect, work_options
from redrive.core.arguments import seconds
from redrive.core.budget import FailureBudget
from redrive.core.units import plural
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.pipeline.submission import check_size
from redrive.engine.runs.driver import drive_run
from redrive.engine.runs.runs import RunOptions, RunReport
from redrive.errors import ConfigurationError, FailureBudgetExceededError, RedriveError
from redrive.ops import runs
from redrive.ops.audit import present_user
from redrive.store.statements import runs as run_sql

app = typer.Typer(help="Run many items through a pipeline and account for each.", no_args_is_help=True)

RunId = Annotated[int, typer.Argument(metavar="ID", help="The run's id.")]
Concurrency = Annotated[int, typer.Option("--concurrency", help="Stages that run at once.")]

FailureShare = typer.Option("--failure-budget", help="Stop when more than this share of items has failed.")
CheckEvery = typer.Option("--check-every", help="Check the budget each time this many items have ended.")
MinFinished = typer.Option(
    "--min-finished",
    help="Do not check before this many have ended; default: --check-every.",
    show_default=False,
)
OnBudget = typer.Option("--on-budget", help="What to do when the budget is exceeded.")


@app.command()
def start(
    target: Target,
    *,
    items: Annotated[
        str, typer.Option("--items", metavar="FILE", help="One JSON value per line; - for standard input.")
    ],
    concurrency: Concurrency = 64,
    failure_budget: Annotated[float, FailureShare] = 0.10,
    check_every: Annotated[int, CheckEvery] = 1_000,
    min_finished: Annotated[int | None, MinFinished] = None,
    on_budget: Annotated[Literal["abort", "pause"], OnBudget] = "abort",
    hold_max: Annotated[
        float, typer.Option("--hold-max", help="Stop when the rest has been held for this many seconds.")
    ] = 3_600.0,
    database_url: Database = None,
    output: Output = "table",
) -> None:
    """Start a run and work on it until it ends."""
    pipeline = import_pipeline(target)
    budget = FailureBudget(
        max_rate=failure_budget, check_every=check_every, min_finished=min_finished, on_exceeded=on_budget
    )
    options = RunOptions(
        budget=budget,
        hold_max=seconds("--hold-max", hold_max),
        target=target,
        source=None if items == STANDARD_INPUT else str(Path(items).absolute()),
    )
    check_all(items, lambda: _values(pipeline, items))
    with connect(database_url) as rd:
        code = _drive(rd, pipeline, source=items, options=options, concurrency=concurrency, output=output)
    raise typer.Exit(code)


@app.command()
def resume(
    run: RunId,
    *,
    items: Annotated[
        str | None,
        typer.Option(
            "--items",
            metavar="FILE",
            help="Its file, if it was moved; items that were read before are compared.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--target", metavar="MODULE:PIPELINE", help="Its pipeline, if it was moved."),
    ] = None,
    concurrency: Concurrency = 64,
    failure_budget: Annotated[float | None, FailureShare] = None,
    check_every: Annotated[int | None, CheckEvery] = None,
    min_finished: Annotated[int | None, MinFinished] = None,
    on_budget: Annotated[Literal["abort", "pause"] | None, OnBudget] = None,
    database_url: Database = None,
    output: Output = "table",
) -> None:
    """Resume a run that was interrupted, paused or held. It keeps its budget, unless another is given.

    A run that a program opened with its items is continued by its workers; any other is driven by this command.
    """
    budget = {
        "max_rate": failure_budget,
        "check_every": check_every,
        "min_finished": min_finished,
        "on_exceeded": on_budget,
    }
    with open_database(database_url) as rd:
        options, is_fed = _with_budget(rd.runs.options(run), budget), rd.runs.is_fed(run)
        if options.target is None and target is None and items is None and is_fed:
            # It was not started here: its workers continue it.
            print_facts(_facts_of(rd.runs.resume(run, actor=present_user())), output)
            return
        # A run that has read its file to the end does not need it; one that is given is compared anyway.
        where, source = target or options.target, items or (None if is_fed else options.source)
        for field, given in (("--target", where), ("--items", "" if is_fed else source)):
            if given is None:
                raise ConfigurationError(
                    field=field,
                    value=None,
                    rule=f"is needed to resume run {run}",
                    fix="The run was not started from a file with `redrive run start`.",
                )
        pipeline = import_pipeline(where or "")
        if source is not None:
            check_all(source, lambda: _values(pipeline, source))
        code = _drive(
            rd,
            pipeline,
            source=source,
            options=options,
            concurrency=concurrency,
            output=output,
            resume=run,
        )
    raise typer.Exit(code)


@app.command("list")
def list_(*, limit: Limit = 20, database_url: Database = None, output: Output = "table") -> None:
    """List runs, newest first."""
    with open_database(database_url) as rd:
        found = [_facts_of(report) for report in rd.runs.latest(limit)]
    columns = "id pipeline status total succeeded dead cancelled skipped open label reason".split()
    print_rows(found, columns, output, empty="no runs")


@app.command()
def show(run: RunId, *, database_url: Database = None, output: Output = "table") -> None:
    """Show one run: its account, its failures, and its budget."""
    with open_database(database_url) as rd:
        report, options = rd.runs.report(run), rd.runs.options(run)
        codes = {str(code): count for code, count in rd.store.query(run_sql.run_codes(run=run))}
        is_fed = rd.runs.is_fed(run)
    facts: dict[str, object] = {**_facts_of(report), "is_fed": is_fed, "failures": codes}
    facts |= {"target": options.target, "source": options.source, "hold_max": options.hold_max}
    facts["failure_budget"] = None if options.budget is None else options.budget.max_rate
    print_facts(facts, output)


@app.command()
@immediate_action
def pause(run: RunId, *, action: Action) -> None:
    """Pause a run: no more items start, those in a stage finish it; a process that drives it ends."""
    with action.database() as rd:
        action.print(_facts_of(runs.pause(rd.store, run, action.by)))


@app.command()
@confirmed_action
def cancel(run: RunId, *, action: Action) -> None:
    """Cancel a run: items that have not started are cancelled, finished ones stay."""
    with action.database() as rd:
        report = rd.runs.report(run)
        # One that has ended is refused without a question.
        if report.status in {"running", "paused"}:
            action.confirm(f"Cancel run {run} with {plural(report.open, 'open item')}?")
        action.print(_facts_of(runs.cancel(rd.store, run, action.by)))


@app.command()
@immediate_action
def label(
    run: RunId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The new label.")],
    *,
    action: Action,
) -> None:
    """Give a run another label."""
    with action.database() as rd:
        action.print(_facts_of(runs.label(rd.store, run, text, action.by)))


@app.command()
def results(
    run: RunId,
    *,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for items that have not ended.")] = False,
    database_url: Database = None,
) -> None:
    """Print the outcome of each item, in their order, one JSON document per line; it stops at the first that has not ended."""
    with open_database(database_url) as rd:
        for one in rd.runs.results(run, wait=wait):
            print_json_line(one)


def _with_budget(options: RunOptions, given: Mapping[str, object]) -> RunOptions:
    changes = {name: value for name, value in given.items() if value is not None}
    if not changes:
        return options
    budget = replace(options.budget or FailureBudget(), **changes)  # type: ignore[arg-type] # By the name of each option.
    return msgspec.structs.replace(options, budget=budget)


def _drive(
    rd: Redrive,
    pipeline: Pipeline,
    *,
    source: str | None,
    options: RunOptions,
    concurrency: int,
    output: Format,
    resume: int | None = None,
) -> int:
    how = work_options(concurrency, 30.0, until_idle=False, hold_max=0.0, health=None)
    code: int | None = None
    is_hidden = output != "table" or not is_interactive()
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("[red]{task.fields[dead]} dead[/]"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console(), transient=True, disable=is_hidden) as progress:
        task = progress.add_task(pipeline.name, total=None, dead=0)

        def on_progress(report: RunReport) -> None:
            progress.update(task, total=report.total, completed=report.total - report.open, dead=report.dead)

        driving = drive_run(
            rd.store,
            pipeline,
            items=None if source is None else _values(pipeline, source),
            options=options,
            how=how,
            resume=resume,
            on_progress=on_progress,
        )
        try:
            report = asyncio.run(driving)
        except FailureBudgetExceededError as error:
            code, report = print_error(error), cast("RunReport", error.report)
        except RedriveError as error:
            for note in getattr(error, "__notes__", ()):
                print_message(str(note))
            raise
    print_facts(_facts_of(report), output)
    is_open = report.status in {"running", "paused"}
    if is_open:
        print_message(f"run {report.id} has not ended: redrive run resume {report.id}")
    if code is not None:
        return code
    return HELD if is_open else DONE if report.status == "completed" else FAILED


def _values(pipeline: Pipeline, source: str) -> Iterator[object]:
    """Yield the items of a file; refuse one that is too large to store. One of the wrong type fails later, as its own job."""
    first = pipeline.stages[0]
    return values_in(
        source,
        "--items",
        lambda value: check_size(first.name, first.input.encode(value)),
        hint="Change this line, then start or resume the run.",
    )


def _facts_of(report: RunReport) -> dict[str, object]:
    facts = asdict(report)
    reason, _ = facts.pop("reason"), facts.pop("is_duplicate")
    return {**facts, "open": report.open, "reason": reason}
