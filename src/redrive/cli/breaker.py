# SPDX-License-Identifier: Apache-2.0
"""`redrive breaker`: the breakers the workers share, and moving one by hand. Workers see it with their next commit."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from redrive.cli.answers import answer_facts, answer_rows
from redrive.cli.options import (
    Actor,
    BreakerName,
    Database,
    Format,
    Output,
    Reason,
    Yes,
    by,
    confirm,
    existing,
)
from redrive.ops import breakers
from redrive.ops.breakers import Verb
from redrive.ops.oversight import By

app = typer.Typer(help="Look at breakers, and open, close or isolate them.", no_args_is_help=True)

New = Annotated[bool, typer.Option("--new", help="Also a name that no worker has written down yet.")]


@app.command("list")
def list_(*, database_url: Database = None, output: Output = "table") -> None:
    """List breakers that have seen a failure, or were moved by hand."""
    with existing(database_url) as rd:
        found = breakers.breakers(rd.store)
    columns = ("name", "phase", "changed_at", "failures", "probe_at")
    answer_rows(found, columns, output, empty="no breaker has seen a failure yet")


@app.command("open")
def open_(
    name: BreakerName,
    *,
    new: New = False,
    reason: Reason = None,
    actor: Actor = None,
    yes: Yes = False,
    database_url: Database = None,
    output: Output = "table",
) -> None:
    """Hold what needs it; a probe goes out when its time has come, and closes it again."""
    confirm(f"Open {name}, and hold whatever needs it until a probe succeeds?", is_sure=yes)
    _move(name, "open", who=by(actor, reason), is_new=new, database_url=database_url, output=output)


@app.command()
def close(
    name: BreakerName,
    *,
    new: New = False,
    reason: Reason = None,
    actor: Actor = None,
    database_url: Database = None,
    output: Output = "table",
) -> None:
    """Let calls go again, gradually."""
    _move(name, "close", who=by(actor, reason), is_new=new, database_url=database_url, output=output)


@app.command()
def isolate(
    name: BreakerName,
    *,
    new: New = False,
    reason: Reason = None,
    actor: Actor = None,
    yes: Yes = False,
    database_url: Database = None,
    output: Output = "table",
) -> None:
    """Hold what needs it until the breaker is closed by hand; no probe goes out."""
    confirm(f"Isolate {name}, and hold whatever needs it until you close it?", is_sure=yes)
    _move(name, "isolate", who=by(actor, reason), is_new=new, database_url=database_url, output=output)


def _move(name: str, verb: Verb, *, who: By, is_new: bool, database_url: str | None, output: Format) -> None:
    with existing(database_url) as rd:
        moved = breakers.move(rd.store, name, verb, who, is_new=is_new)
    answer_facts(asdict(moved), output)
