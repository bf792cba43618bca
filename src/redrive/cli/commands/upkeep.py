# SPDX-License-Identifier: Apache-2.0
"""`redrive doctor`, `backup`, `prune` and `migrate`: what keeps a database well.

Only `prune` deletes, only what it is told to, and only after asking. `doctor` and `migrate --print` change nothing.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from redrive.cli.input.act import Act, acting, acting_at_once
from redrive.cli.input.items import length_of_time
from redrive.cli.input.options import ActorName, Database, Output, Reason, as_it_is, by
from redrive.cli.input.targets import pipelines_named
from redrive.cli.output.errors import DONE, FAILED
from redrive.cli.output.tables import answer_json, console, is_interactive, say, text_of
from redrive.cli.output.terminal import shown
from redrive.client.connection import connect
from redrive.core.arguments import number
from redrive.errors import ConfigurationError
from redrive.ops.checkup.doctor import examine, has_problems, unopened
from redrive.ops.checkup.file import GIB, Limits
from redrive.ops.checkup.findings import Finding
from redrive.ops.upkeep import location, migrations
from redrive.ops.upkeep import prune as pruning
from redrive.ops.upkeep.backup import backup as take_backup
from redrive.ops.upkeep.prune import Retention

Age = Annotated[str | None, typer.Option(metavar="AGE", help="Such jobs, this long after their end: 30d.")]


def doctor(
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODULE:PIPELINE]...", help="Compare with these pipelines' code, too."),
    ] = None,
    *,
    deep: Annotated[bool, typer.Option("--deep", help="Read everything: integrity, recount.")] = False,
    size_max: Annotated[
        float, typer.Option("--size-max", help="Warn when the database has more GiB.")
    ] = Limits().size_max / GIB,
    database_url: Database = None,
    output: Output = "table",
) -> None:
    """Check the database, its schema, clock, disk, workers, leases and breakers, and say what to do."""
    size = number(size_max)
    if size is None or size <= 0:
        raise ConfigurationError(
            field="--size-max", value=size_max, rule="must be more than 0 GiB", fix="10 is the default."
        )
    known = pipelines_named(targets or [])
    finding = unopened(location.path_of(database_url))
    if finding is not None:
        findings = [finding]
    else:
        with connect(database_url) as rd:
            limits = Limits(size_max=size * GIB)
            findings = examine(rd.store, known=known, is_deep=deep, limits=limits)
    is_well = not has_problems(findings)
    if output == "json":
        answer_json({"is_well": is_well, "findings": findings})
    else:
        _tell(findings, is_well=is_well)
    raise typer.Exit(DONE if is_well else FAILED)


@acting_at_once
def backup(
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="The new file.")], *, act: Act
) -> None:
    """Copy the database into a new file while workers go on, and check the copy."""
    with (
        as_it_is(act.database_url) as rd,
        Progress(console=console(), disable=not is_interactive(), transient=True) as progress,
    ):
        task = progress.add_task("copying", total=None)
        report = take_backup(
            rd.store,
            target,
            act.by,
            on_pages=lambda done, total: progress.update(task, completed=done, total=total),
        )
    act.answer(asdict(report))


@acting
def prune(
    *,
    complete: Age = None,
    cancelled: Age = None,
    failed: Annotated[
        str | None,
        typer.Option("--failed", metavar="AGE", help="Failed jobs too, with their dead letters."),
    ] = None,
    with_untold: Annotated[
        bool,
        typer.Option(
            "--with-untold", help="Also jobs of which a hook or a sink was not told yet; it never will be."
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would go.")] = False,
    act: Act,
) -> None:
    """Delete jobs that ended long ago, a thousand at a time; failed ones only when asked for by name."""
    retention = Retention(
        complete=_age("--complete", complete),
        cancelled=_age("--cancelled", cancelled),
        failed=_age("--failed", failed),
    )
    with act.database() as rd:
        found = pruning.prunable(rd.store, retention, with_untold=with_untold)
        if found.untold:
            say(
                f"{found.untold:,} more stay: a hook or a sink was not told of them yet; redrive doctor says which"
            )
        total = sum(found.jobs.values())
        if dry_run or not total:
            act.answer({**found.jobs, "total": total, "untold": found.untold, "is_dry_run": dry_run})
            return
        told = ", ".join(f"{count:,} {state}" for state, count in found.jobs.items())
        act.confirm(f"Delete {told} jobs with all that belongs to them, for good?")
        with Progress(console=console(), disable=not is_interactive(), transient=True) as progress:
            task = progress.add_task("pruning", total=total)
            deleted = pruning.prune(
                rd.store,
                retention,
                act.by,
                with_untold=with_untold,
                on_step=lambda jobs: progress.update(task, advance=jobs),
            )
    act.answer({**deleted, "total": sum(deleted.values()), "untold": found.untold, "is_dry_run": False})
    if act.output == "table":
        say("the room is used again for new jobs; the file itself does not shrink")


def migrate(
    *,
    print_: Annotated[
        bool, typer.Option("--print", help="Only show the SQL that is still to be applied.")
    ] = False,
    reason: Reason = None,
    actor: ActorName = None,
    database_url: Database = None,
    output: Output = "table",
) -> None:
    """Bring the database to the schema of this redrive, or make a new one."""
    path = location.path_of(database_url)
    state = migrations.schema_state(path) if print_ else migrations.migrate(path, by(actor, reason))
    if output == "json":
        answer_json({**asdict(state), "is_applied": not print_})
    elif print_:
        typer.echo(state.sql or f"-- {path} is up to date: version {state.found}")
    elif state.sql:
        say(f"{path}: schema version {state.found} -> {state.known}")
    else:
        say(f"{path} is up to date: schema version {state.found}")


def _age(option: str, text: str | None) -> float | None:
    return None if text is None else length_of_time(option, text)


def _tell(findings: list[Finding], *, is_well: bool) -> None:
    for finding in findings:
        line = text_of(finding.level.ljust(8))
        line.stylize({"ok": "green", "warn": "yellow", "problem": "bold red"}[finding.level])
        line.append(f"{finding.about}: ", style="bold")
        line.append(shown(finding.sentence), style="not bold default")
        console().print(line, soft_wrap=True)
        if finding.advice:
            console().print(f"        -> {finding.advice}", soft_wrap=True, style="dim")
    problems = sum(finding.level == "problem" for finding in findings)
    console().print("no problems" if is_well else f"{problems} to look at now", style="bold")
