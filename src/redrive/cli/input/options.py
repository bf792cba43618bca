# SPDX-License-Identifier: Apache-2.0
"""The options that many commands share, and opening the database they name.

A command that only reads never creates a database: a mistyped address is refused instead of answered with nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import typer

from redrive.client.connection import Redrive, connect
from redrive.errors import RedriveError
from redrive.ops.breakers import breakers
from redrive.ops.limits import limits
from redrive.ops.pipelines import lane_names
from redrive.ops.upkeep import location
from redrive.store.location import open_store
from redrive.store.protocol import Store

Format = Literal["table", "json"]
Database = Annotated[
    str | None,
    typer.Option(
        "--database-url", help="The database; default: REDRIVE_DATABASE_URL, or redrive.db.", metavar="URL"
    ),
]
Output = Annotated[Format, typer.Option("-o", "--output", help="The output format.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="Show at most this many.")]
Priority = Annotated[int, typer.Option("--priority", help="From 0, claimed first, to 9, claimed last.")]
Picture = Literal["table", "json", "svg"]
OutputOrPicture = Annotated[Picture, typer.Option("-o", "--output", help="The output format.")]
Target = Annotated[
    str, typer.Argument(metavar="MODULE:PIPELINE", help="The pipeline, such as shop.flows:orders.")
]

Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        metavar="MODULE:PIPELINE",
        help="The pipeline's code, to check stored values; may be repeated.",
    ),
]
FromStart = Annotated[
    bool, typer.Option("--from-start", help="Start at the first stage instead of the failed one.")
]


def open_database(database_url: str | None) -> Redrive:
    """Open a database that exists."""
    location.require(database_url)
    return connect(database_url)


def open_any_version(database_url: str | None) -> Redrive:
    """Open a database that exists, even one with an older schema: only to copy it."""
    location.require(database_url)
    return Redrive(open_store(location.database_of(database_url), older="keep"))


def completing(names: Callable[[Store], list[str]]) -> Callable[[typer.Context], list[str]]:
    """Return what completes a name from the database; completion must never print an error."""

    def complete(ctx: typer.Context) -> list[str]:
        try:
            with open_database(ctx.params.get("database_url")) as rd:
                return names(rd.store)
        except RedriveError:
            return []

    return complete


_pipelines = completing(lambda store: sorted({pipeline for pipeline, _ in lane_names(store)}))
_breakers = completing(lambda store: [breaker.name for breaker in breakers(store)])
_limits = completing(lambda store: sorted({limit.name for limit in limits(store)}))
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
LimitName = Annotated[str, typer.Argument(metavar="NAME", help="The limit's name.", autocompletion=_limits)]
