# SPDX-License-Identifier: Apache-2.0
"""`redrive limit`: list the limits that workers share, set other numbers, pause and resume one.

Workers see a change with their next commit.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from redrive.cli.input.action import Action, confirmed_action, immediate_action
from redrive.cli.input.options import Database, LimitName, Output, open_database
from redrive.cli.output.tables import print_rows
from redrive.ops import limits

app = typer.Typer(help="List limits; set, pause or resume them.", no_args_is_help=True)

Key = Annotated[str, typer.Option("--key", help="Only this key of the limit.")]
COLUMNS = "name key rate burst tokens concurrency slots status until refused_at is_set".split()


@app.command("list")
def list_(*, database_url: Database = None, output: Output = "table") -> None:
    """List limits with the tokens and slots that are left, and who paused them."""
    with open_database(database_url) as rd:
        found = limits.limits(rd.store)
    print_rows(found, COLUMNS, output, empty="no limits")


@app.command("set")
@immediate_action
def set_(
    name: LimitName,
    *,
    rate: Annotated[str | None, typer.Option("--rate", help="Such as 500/min.")] = None,
    burst: Annotated[float | None, typer.Option("--burst", help="How much may be spent at once.")] = None,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", help="How many calls run at once.")
    ] = None,
    key: Key = "",
    action: Action,
) -> None:
    """Override the numbers of the code; without any number, use those of the code again."""
    with action.database() as rd:
        made = limits.set_limit(
            rd.store, name, by=action.by, key=key, rate=rate, burst=burst, concurrency=concurrency
        )
    action.print(asdict(made))


@app.command()
@confirmed_action
def pause(name: LimitName, *, key: Key = "", action: Action) -> None:
    """Pause a limit: start no job that needs it until it is resumed."""
    with action.database() as rd:
        limits.known_limit(rd.store, name, key)
        action.confirm(f"Pause {name} and start no job that needs it until you resume it?")
        made = limits.pause(rd.store, name, action.by, key=key)
    action.print(asdict(made))


@app.command()
@immediate_action
def resume(name: LimitName, *, key: Key = "", action: Action) -> None:
    """Resume a limit that is paused, by hand or because the dependency asked to wait."""
    with action.database() as rd:
        made = limits.resume(rd.store, name, action.by, key=key)
    action.print(asdict(made))
