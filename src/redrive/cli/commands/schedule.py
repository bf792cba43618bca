# SPDX-License-Identifier: Apache-2.0
"""`redrive schedule`: jobs submitted again and again by the clock. Workers keep the time; here it is only written down."""

from __future__ import annotations

from typing import Annotated

import typer

from redrive.cli.input.act import Act, acting, acting_at_once
from redrive.cli.input.items import decoded
from redrive.cli.input.options import Database, Output, Target, existing
from redrive.cli.input.targets import pipeline_named
from redrive.cli.output.tables import answer_rows
from redrive.client.connection import connect
from redrive.ops.suggest import unknown

app = typer.Typer(help="Submit jobs again and again by the clock.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")]


@app.command("list")
def list_(*, database_url: Database = None, output: Output = "table") -> None:
    """List schedules, with their next tick."""
    with existing(database_url) as rd:
        found = rd.schedules.all()
    columns = ("name", "pipeline", "cron", "zone", "next_at", "last_at")
    answer_rows(found, columns, output, empty="there is no schedule")


@app.command()
@acting_at_once
def add(
    name: Name,
    target: Target,
    *,
    cron: Annotated[str, typer.Option("--cron", help='When: "*/15 * * * *" is every quarter of an hour.')],
    zone: Annotated[str, typer.Option("--zone", help="In this time zone.")] = "UTC",
    payload: Annotated[str, typer.Option("--payload", help="The payload of every job, as JSON.")] = "null",
    priority: Annotated[int, typer.Option("--priority", help="0 goes first, 9 last.")] = 5,
    act: Act,
) -> None:
    """Submit a job at every tick, once over all workers; the same name changes it."""
    pipeline = pipeline_named(target)
    value = decoded(payload, "the payload")
    with connect(act.database_url) as rd:
        rd.schedules.put(name, pipeline, value, cron=cron, zone=zone, priority=priority)
        rd.store.apply(act.by.log("schedule", f"schedule {name}"))
        (made,) = (each for each in rd.schedules.all() if each.name == name)
    act.answer({"name": name, "pipeline": made.pipeline, "next_at": made.next_at})


@app.command()
@acting
def drop(name: Name, *, act: Act) -> None:
    """Submit no more jobs under this name; what was submitted stays."""
    with act.database() as rd:
        known = [each.name for each in rd.schedules.all()]
        if name not in known:
            raise unknown(name, known, kind="schedule", otherwise="There is no schedule.")
        act.confirm(f"Drop the schedule {name}?")
        rd.schedules.drop(name)
        rd.store.apply(act.by.log("drop", f"schedule {name}"))
    act.answer({"name": name, "is_dropped": True})
