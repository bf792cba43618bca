# SPDX-License-Identifier: Apache-2.0
"""`redrive schedule`: submit jobs, or prune, repeatedly by a cron expression.

Stores schedules only; workers submit the jobs, and prune.
"""

from __future__ import annotations

from typing import Annotated

import typer

from redrive.cli.commands.upkeep import retention_of
from redrive.cli.input.action import Action, confirmed_action, immediate_action, option_group
from redrive.cli.input.files import decode_json
from redrive.cli.input.options import Database, Output, Priority, Target, open_database
from redrive.cli.input.targets import import_pipeline
from redrive.cli.output.tables import print_rows
from redrive.client.connection import connect
from redrive.engine.retention import Retention
from redrive.ops import schedules
from redrive.ops.suggest import unknown
from redrive.ops.upkeep.prune import schedule_prune

app = typer.Typer(help="Submit jobs, or prune, repeatedly by a cron expression.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")]
Cron = Annotated[str, typer.Option("--cron", help='A cron expression: "*/15 * * * *" is every 15 minutes.')]
Zone = Annotated[str, typer.Option("--zone", help="The time zone.")]


@app.command("list")
def list_(*, database_url: Database = None, output: Output = "table") -> None:
    """List schedules with their next tick."""
    with open_database(database_url) as rd:
        found = rd.schedules.list()
    columns = ["name", "pipeline", "cron", "zone", "next_at", "last_at"]
    columns += ["prunes", "deleted"] if any(each.prunes is not None for each in found) else []
    print_rows(found, columns, output, empty="no schedules")


@app.command()
@immediate_action
def add(
    name: Name,
    target: Target,
    *,
    cron: Cron,
    zone: Zone = "UTC",
    payload: Annotated[str, typer.Option("--payload", help="The payload of every job, as JSON.")] = "null",
    priority: Priority = 5,
    action: Action,
) -> None:
    """Submit one job at every tick, however many workers there are; an existing schedule of this name is replaced."""
    pipeline = import_pipeline(target)
    value = decode_json(payload, "the payload")
    with connect(action.database_url) as rd:
        options = schedules.ScheduleOptions(cron=cron, zone=zone, priority=priority)
        schedules.put(rd.store, name, pipeline, value, action.by, options=options)
        (made,) = (each for each in rd.schedules.list() if each.name == name)
    action.print({"name": name, "pipeline": made.pipeline, "next_at": made.next_at})


@app.command()
@immediate_action
@option_group("retention", retention_of, is_last=True)
def prune(name: Name, *, cron: Cron, zone: Zone = "UTC", retention: Retention, action: Action) -> None:
    """Let workers delete at every tick what ended long ago, as `redrive prune` does; a schedule of this name is replaced."""
    with connect(action.database_url) as rd:
        schedule_prune(rd.store, name, retention, action.by, cron=cron, zone=zone)
        (made,) = (each for each in rd.schedules.list() if each.name == name and each.prunes is not None)
    action.print({"name": name, "prunes": made.prunes, "next_at": made.next_at})


@app.command()
@confirmed_action
def drop(name: Name, *, action: Action) -> None:
    """Delete a schedule; jobs that were submitted stay."""
    with action.database() as rd:
        known = [each.name for each in rd.schedules.list()]
        if name not in known:
            raise unknown(name, known, kind="schedule", otherwise="There are no schedules.")
        action.confirm(f"Delete the schedule {name}?")
        schedules.drop(rd.store, name, action.by)
    action.print({"name": name, "is_dropped": True})
