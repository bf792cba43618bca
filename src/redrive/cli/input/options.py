# SPDX-License-Identifier: Apache-2.0
"""The options that many commands share, and opening the database they name.

A command that only looks never makes a database: an address with a slip in it is refused instead of answered with nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Annotated, Literal

import typer

from redrive.cli.output.terminal import shown
from redrive.client.connection import Redrive, connect
from redrive.errors import RedriveError
from redrive.ops.audit import Actor, present_user
from redrive.ops.breakers import breakers
from redrive.ops.pipelines import lanes
from redrive.ops.upkeep import location
from redrive.store.sqlite.store import SqliteStore

Format = Literal["table", "json"]
Database = Annotated[
    str | None,
    typer.Option(
        "--database-url", help="Where the jobs live; default: REDRIVE_DATABASE_URL, redrive.db", metavar="URL"
    ),
]
Output = Annotated[Format, typer.Option("-o", "--output", help="How to show the answer.")]
Reason = Annotated[str | None, typer.Option("--reason", help="Why, for the operator log.", metavar="TEXT")]
ActorName = Annotated[
    str | None,
    typer.Option("--actor", help="Who, for the operator log; default: the user.", metavar="NAME"),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="Show at most so many.")]
Target = Annotated[
    str, typer.Argument(metavar="MODULE:PIPELINE", help="The pipeline, such as shop.flows:orders.")
]

Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        metavar="MODULE:PIPELINE",
        help="The pipeline's code, to decode values against; may be repeated.",
    ),
]
FromStart = Annotated[
    bool, typer.Option("--from-start", help="Begin at the first stage, although later ones were done.")
]


@contextmanager
def existing(database_url: str | None) -> Generator[Redrive]:
    """Open a database that is there."""
    location.require(database_url)
    with connect(database_url) as rd:
        yield rd


@contextmanager
def as_it_is(database_url: str | None) -> Generator[Redrive]:
    """Open a database that is there, even if its schema is older: to be copied, and nothing else."""
    location.require(database_url)
    with Redrive(SqliteStore(location.path_of(database_url), older="keep")) as rd:
        yield rd


def by(actor: str | None, reason: str | None) -> Actor:
    """Return who acts and why; without a name it is the user."""
    return Actor(actor or present_user(), reason)


def confirm(question: str, *, is_sure: bool, instead: str = ": --yes does it without asking") -> None:
    """Ask before something that cannot be taken back; a no, or nobody to answer, ends the command with exit code 1."""
    if is_sure:
        return
    try:
        is_wanted = typer.confirm(shown(question), err=True)
    except typer.Abort:
        if not sys.stdin.isatty():
            typer.echo(f"\nnobody is here to say yes{instead}", err=True)
        raise
    if not is_wanted:
        raise typer.Abort


def _pipelines(ctx: typer.Context) -> list[str]:
    return _names(ctx, lambda rd: sorted({lane.pipeline for lane in lanes(rd.store)}))


def _breakers(ctx: typer.Context) -> list[str]:
    return _names(ctx, lambda rd: [breaker.name for breaker in breakers(rd.store)])


def _names(ctx: typer.Context, ask: Callable[[Redrive], list[str]]) -> list[str]:
    """Complete a name from the database; a shell that completes must never see an error."""
    try:
        with existing(ctx.params.get("database_url")) as rd:
            return ask(rd)
    except RedriveError:
        return []


PipelineName = Annotated[
    str, typer.Argument(metavar="NAME", help="The pipeline's name.", autocompletion=_pipelines)
]
OfPipeline = Annotated[
    str | None,
    typer.Option("--pipeline", "-p", metavar="NAME", help="Of this pipeline.", autocompletion=_pipelines),
]
BreakerName = Annotated[
    str, typer.Argument(metavar="NAME", help="The breaker's name.", autocompletion=_breakers)
]
