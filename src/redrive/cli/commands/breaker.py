# SPDX-License-Identifier: Apache-2.0
"""`redrive breaker`: list the breakers that workers share, and open, close or isolate one.

Workers see a change with their next commit.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Final

import typer

from redrive.cli.input.action import Action, confirmed_action, immediate_action
from redrive.cli.input.options import BreakerName, Database, Output, open_database
from redrive.cli.output.tables import print_rows
from redrive.ops import breakers
from redrive.ops.breakers import Verb

app = typer.Typer(help="List breakers; open, close or isolate them.", no_args_is_help=True)

New = Annotated[bool, typer.Option("--new", help="Allow a name that no worker has stored yet.")]
_QUESTIONS: Final[dict[Verb, str]] = {
    "open": "Open {} and hold jobs that need it until a probe succeeds?",
    "isolate": "Isolate {} and hold jobs that need it until you close it?",
}


@app.command("list")
def list_(*, database_url: Database = None, output: Output = "table") -> None:
    """List breakers that have recorded a failure or were changed by hand."""
    with open_database(database_url) as rd:
        found = breakers.breakers(rd.store)
    columns = ("name", "phase", "changed_at", "failures", "probe_at", "next_probe_at")
    print_rows(found, columns, output, empty="no breakers")


@app.command("open")
@confirmed_action
def open_(name: BreakerName, *, new: New = False, action: Action) -> None:
    """Open a breaker: hold jobs that need it until a probe succeeds."""
    _move(name, "open", action, is_new=new)


@app.command()
@immediate_action
def close(name: BreakerName, *, new: New = False, action: Action) -> None:
    """Close a breaker: release the jobs that need it, gradually."""
    _move(name, "close", action, is_new=new)


@app.command()
@confirmed_action
def isolate(name: BreakerName, *, new: New = False, action: Action) -> None:
    """Isolate a breaker: hold jobs that need it until it is closed by hand; no probe is sent."""
    _move(name, "isolate", action, is_new=new)


def _move(name: str, verb: Verb, action: Action, *, is_new: bool) -> None:
    with action.database() as rd:
        if not is_new:
            breakers.known_breaker(rd.store, name)
        if verb in _QUESTIONS:
            action.confirm(_QUESTIONS[verb].format(name))
        moved = breakers.move(rd.store, name, verb, action.by, is_new=is_new)
    action.print(asdict(moved))
