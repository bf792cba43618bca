# SPDX-License-Identifier: Apache-2.0
"""`redrive doctor`, `backup`, `prune` and `migrate`: maintain a database.

Only `prune` deletes, only what is named, and only after a confirmation. `doctor` and `migrate --print` change nothing.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from redrive.cli.input.action import Action, confirmed_action, immediate_action, option_group
from redrive.cli.input.options import Database, Output, open_any_version
from redrive.cli.input.targets import import_pipelines
from redrive.cli.input.times import duration
from redrive.cli.output.errors import DONE, FAILED
from redrive.cli.output.tables import cell, console, is_interactive, print_json, print_message
from redrive.cli.output.terminal import escaped
from redrive.client.connection import connect
from redrive.core.arguments import number
from redrive.core.units import plural
from redrive.engine.retention import Retention
from redrive.errors import ConfigurationError
from redrive.ops.checkup.doctor import examine, has_problems, unopened
from redrive.ops.checkup.file import GIB, Limits
from redrive.ops.checkup.findings import Finding
from redrive.ops.upkeep import location, migrations
from redrive.ops.upkeep.backup import backup as copy_database
from redrive.ops.upkeep.prune import prunable
from redrive.ops.upkeep.prune import prune as prune_now
from redrive.ops.upkeep.transfer import transfer as transfer_rows

Age = Annotated[
    str | None, typer.Option(metavar="AGE", help="Jobs in this state that ended this long ago: 30d.")
]


def retention_of(
    *,
    complete: Age = None,
    cancelled: Age = None,
    skipped: Age = None,
    failed: Annotated[
        str | None, typer.Option(metavar="AGE", help="Also failed jobs, with their dead letters.")
    ] = None,
    runs: Annotated[
        str | None, typer.Option(metavar="AGE", help="Also runs that ended this long ago; their jobs stay.")
    ] = None,
) -> Retention:
    """Return how long each kind is kept, from the options of a command."""
    ages = {"complete": complete, "cancelled": cancelled, "skipped": skipped, "failed": failed, "runs": runs}
    return Retention(**{kind: duration(f"--{kind}", age) for kind, age in ages.items() if age is not None})


def doctor(
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODULE:PIPELINE]...", help="Also compare with the code of these pipelines."),
    ] = None,
    *,
    deep: Annotated[
        bool, typer.Option("--deep", help="Read everything: check integrity, recount all counters.")
    ] = False,
    size_max: Annotated[
        float, typer.Option("--size-max", help="Warn when the database is larger than this many GiB.")
    ] = Limits().size_max / GIB,
    database_url: Database = None,
    output: Output = "table",
) -> None:
    """Check the database, its schema, clock, disk, workers, leases and breakers, and advise what to do."""
    size = number(size_max)
    if size is None or size <= 0:
        raise ConfigurationError(
            field="--size-max", value=size_max, rule="must be more than 0 GiB", fix="10 is the default."
        )
    known = import_pipelines(targets)
    finding = unopened(location.database_of(database_url))
    if finding is not None:
        findings = [finding]
    else:
        with connect(database_url) as rd:
            limits = Limits(size_max=size * GIB)
            findings = examine(rd.store, known=known, is_deep=deep, limits=limits)
    is_well = not has_problems(findings)
    if output == "json":
        print_json({"is_well": is_well, "findings": findings})
    else:
        _print_findings(findings)
    raise typer.Exit(DONE if is_well else FAILED)


@immediate_action
def backup(
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="The new file.")], *, action: Action
) -> None:
    """Copy the database into a new file while workers keep running, and check the copy."""
    with (
        open_any_version(action.database_url) as rd,
        Progress(console=console(), disable=not is_interactive(), transient=True) as progress,
    ):
        task = progress.add_task("copying", total=None)
        report = copy_database(
            rd.store,
            target,
            action.by,
            on_pages=lambda done, total: progress.update(task, completed=done, total=total),
        )
    action.print(asdict(report))


@option_group("retention", retention_of)
@confirmed_action
def prune(
    retention: Retention,
    *,
    with_undelivered: Annotated[
        bool,
        typer.Option("--with-undelivered", help="Also jobs with undelivered notices to a hook or a sink."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be deleted.")] = False,
    action: Action,
) -> None:
    """Delete jobs that ended long ago, a thousand per transaction; failed ones only with --failed."""
    with action.database() as rd:
        found = prunable(rd.store, retention, with_undelivered=with_undelivered)
        if found.undelivered:
            print_message(
                f"{plural(found.undelivered, 'more job')} kept: notices to a hook or a sink are undelivered;"
                " redrive doctor reports which"
            )
        total = sum(found.jobs.values())
        facts = {**found.jobs, "total": total, "undelivered": found.undelivered, "is_dry_run": dry_run}
        if dry_run or not total:
            action.print(facts)
            return
        counts = ", ".join(
            f"{count:,} {kind}{'' if kind == 'runs' else ' jobs'}" for kind, count in found.jobs.items()
        )
        action.confirm(f"Permanently delete {counts}, with all their data?")
        with Progress(console=console(), disable=not is_interactive(), transient=True) as progress:
            task = progress.add_task("pruning", total=total)
            deleted = prune_now(
                rd.store,
                retention,
                action.by,
                with_undelivered=with_undelivered,
                on_step=lambda jobs: progress.update(task, advance=jobs),
            )
    action.print({**facts, **deleted, "total": sum(deleted.values())})
    if action.output == "table":
        print_message("freed space is reused for new jobs; the file does not shrink")


@immediate_action
def migrate(
    *,
    print_: Annotated[
        bool, typer.Option("--print", help="Only print the SQL that would be applied.")
    ] = False,
    partition_attempts: Annotated[
        bool,
        typer.Option(
            "--partition-attempts",
            help="Keep attempts in one table per week; on PostgreSQL, before the first one.",
        ),
    ] = False,
    action: Action,
) -> None:
    """Migrate the database to the schema of this redrive, or create a new one."""
    database = location.database_of(action.database_url)
    state = (
        migrations.schema_state(database, partition_attempts=partition_attempts)
        if print_
        else migrations.migrate(database, action.by, partition_attempts=partition_attempts)
    )
    if action.output == "json":
        print_json({**asdict(state), "is_applied": not print_})
    elif print_:
        typer.echo(state.sql or f"-- {state.database} is up to date: version {state.found}")
    elif state.sql:
        change = f"schema version {state.found} -> {state.known}" if state.found < state.known else ""
        parts = "attempts are partitioned by week" if partition_attempts else ""
        print_message(f"{state.database}: {', '.join(filter(None, (change, parts)))}")
    else:
        print_message(f"{state.database} is up to date: schema version {state.found}")


@option_group("action", Action, without={"yes", "database_url"}, is_last=True)
def transfer(
    source: Annotated[str, typer.Argument(metavar="SQLITE", help="The file of the stopped installation.")],
    target: Annotated[str, typer.Argument(metavar="POSTGRES", help="The address of an empty database.")],
    *,
    action: Action,
) -> None:
    """Move a stopped installation from a file to a PostgreSQL server, and compare all counts."""
    with Progress(console=console(), disable=not is_interactive(), transient=True) as progress:
        task = progress.add_task("copying", total=None)
        report = transfer_rows(
            source, target, action.by, on_table=lambda table, _: progress.update(task, description=table)
        )
    rows = {table: count for table, count in report.rows.items() if count}
    action.print({"source": report.source, "target": report.target, **rows})


def _print_findings(findings: list[Finding]) -> None:
    for finding in findings:
        line = cell(finding.level.ljust(8))
        line.stylize({"ok": "green", "warn": "yellow", "problem": "bold red"}[finding.level])
        line.append(f"{finding.about}: ", style="bold")
        line.append(escaped(finding.sentence), style="not bold default")
        console().print(line, soft_wrap=True)
        if finding.advice:
            console().print(f"        -> {finding.advice}", soft_wrap=True, style="dim")
    problems = sum(finding.level == "problem" for finding in findings)
    warnings = sum(finding.level == "warn" for finding in findings)
    total = plural(problems, "problem") if problems else "no problems"
    console().print(f"{total}, {plural(warnings, 'warning')}" if warnings else total, style="bold")
