# SPDX-License-Identifier: Apache-2.0
"""`redrive breaker`: the breakers the workers share, and moving one by hand. Workers see it with their next commit."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from redrive.cli.input.act import Act, acting, acting_at_once
from redrive.cli.input.options import BreakerName, Database, Output, existing
from redrive.cli.output.tables import answer_rows
from redrive.ops import breakers
from redrive.ops.breakers import Verb

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
@acting
def open_(name: BreakerName, *, new: New = False, act: Act) -> None:
    """Hold what needs it; a probe goes out when its time has come, and closes it again."""
    act.confirm(f"Open {name}, and hold whatever needs it until a probe succeeds?")
    _move(name, "open", act, is_new=new)


@app.command()
@acting_at_once
def close(name: BreakerName, *, new: New = False, act: Act) -> None:
    """Let calls go again, gradually."""
    _move(name, "close", act, is_new=new)


@app.command()
@acting
def isolate(name: BreakerName, *, new: New = False, act: Act) -> None:
    """Hold what needs it until the breaker is closed by hand; no probe goes out."""
    act.confirm(f"Isolate {name}, and hold whatever needs it until you close it?")
    _move(name, "isolate", act, is_new=new)


def _move(name: str, verb: Verb, act: Act, *, is_new: bool) -> None:
    with act.database() as rd:
        moved = breakers.move(rd.store, name, verb, act.by, is_new=is_new)
    act.answer(asdict(moved))
