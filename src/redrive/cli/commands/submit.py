# SPDX-License-Identifier: Apache-2.0
"""`redrive submit`: store jobs for a pipeline, one payload or a file of them.

It runs nothing. What it says was submitted is durable; of a file with a wrong line, nothing is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import typer

from redrive.cli.input.items import decoded, is_read_once, items_in, point_in_time
from redrive.cli.input.options import Database, Output, Target
from redrive.cli.input.targets import pipeline_named
from redrive.cli.output.tables import answer_facts
from redrive.client.connection import connect
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.pipeline.submission import encoded_payload
from redrive.errors import ConfigurationError, SerializationError


def submit(
    target: Target,
    payload: Annotated[str | None, typer.Argument(help="One payload as JSON.")] = None,
    *,
    file: Annotated[
        str | None,
        typer.Option("--file", metavar="FILE", help="A file with one JSON payload per line; - reads them."),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="A job with this key is not made twice.")] = None,
    run_at: Annotated[
        str | None,
        typer.Option("--run-at", metavar="WHEN", help="Not before: an ISO instant with zone, or +15m."),
    ] = None,
    priority: Annotated[int, typer.Option("--priority", help="0 goes first, 9 last.")] = 5,
    owner: Annotated[str | None, typer.Option("--owner", help="Whom they belong to.")] = None,
    database_url: Database = None,
    output: Output = "table",
) -> None:
    """Store jobs for a pipeline."""
    pipeline = pipeline_named(target)
    if (payload is None) == (file is None):
        raise ConfigurationError(
            field="submit",
            value=payload,
            rule="takes one payload, or --file",
            fix="Give exactly one of the two.",
        )
    start = None if run_at is None else point_in_time("--run-at", run_at)
    if file is None:
        value = decoded(payload or "", "the payload")
        with connect(database_url) as rd:
            job = rd.submit(pipeline, value, key=key, run_at=start, priority=priority, owner=owner)
        answer_facts(
            {
                "submitted": int(not job.is_duplicate),
                "first": job.id,
                "last": job.id,
                "is_duplicate": job.is_duplicate,
            },
            output,
        )
        return
    if key is not None:
        raise ConfigurationError(
            field="--key", value=key, rule="belongs to one job", fix="Leave it out with --file."
        )
    _submit_file(pipeline, file, _Terms(start, priority, owner), database_url, output)


@dataclass(frozen=True, slots=True)
class _Terms:
    """What all jobs of a file have in common."""

    run_at: datetime | None
    priority: int
    owner: str | None


def _submit_file(
    pipeline: Pipeline, file: str, terms: _Terms, database_url: str | None, output: Output
) -> None:
    # Looked through first: a wrong line near the end must not leave the lines before it submitted.
    if not is_read_once(file):
        for _ in _payloads(pipeline, file):
            pass
    with connect(database_url) as rd:
        ids = rd.submit_many(
            pipeline,
            _payloads(pipeline, file),
            run_at=terms.run_at,
            priority=terms.priority,
            owner=terms.owner,
        )
    answer_facts(
        {"submitted": len(ids), "first": ids[0] if ids else None, "last": ids[-1] if ids else None}, output
    )


def _payloads(pipeline: Pipeline, file: str) -> Iterator[object]:
    """Yield what fits the pipeline; what does not is refused by its line."""
    for number, value in items_in(file, "--file"):
        try:
            encoded_payload(pipeline, value)
        except SerializationError as error:
            raise SerializationError(
                where=f"{file}, line {number}: {error.where}", kind=error.kind, problem=error.problem
            ) from error
        yield value
