# SPDX-License-Identifier: Apache-2.0
"""`redrive submit`: store jobs for a pipeline, one payload or a file of them.

Runs nothing. Jobs that it reports as submitted are durable; of a file with a wrong line, none is submitted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from redrive.cli.input.files import check_all, decode_json, values_in
from redrive.cli.input.options import Database, Output, Priority, Target
from redrive.cli.input.targets import import_pipeline
from redrive.cli.input.times import future_instant
from redrive.cli.output.tables import print_facts
from redrive.client.connection import connect
from redrive.engine.pipeline.submission import encoded_payload
from redrive.errors import ConfigurationError


def submit(
    target: Target,
    payload: Annotated[str | None, typer.Argument(help="One payload as JSON.")] = None,
    *,
    file: Annotated[
        str | None,
        typer.Option("--file", metavar="FILE", help="One JSON payload per line; - for standard input."),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="A second job with this key is not created.")
    ] = None,
    run_at: Annotated[
        str | None,
        typer.Option("--run-at", metavar="TIME", help="Not before: an ISO instant with zone, or +15m."),
    ] = None,
    priority: Priority = 5,
    owner: Annotated[str | None, typer.Option("--owner", help="The owner of the jobs.")] = None,
    database_url: Database = None,
    output: Output = "table",
) -> None:
    """Submit jobs to a pipeline."""
    pipeline = import_pipeline(target)
    if (payload is None) == (file is None):
        raise ConfigurationError(
            field="submit",
            value=payload,
            rule="takes one payload, or --file",
            fix="Give exactly one of the two.",
        )
    start = None if run_at is None else future_instant("--run-at", run_at)
    if file is None:
        value = decode_json(payload or "", "the payload")
        with connect(database_url) as rd:
            job = rd.submit(pipeline, value, key=key, run_at=start, priority=priority, owner=owner)
        facts = {"submitted": int(not job.is_duplicate), "first": job.id, "last": job.id}
        print_facts({**facts, "is_duplicate": job.is_duplicate}, output)
        return
    if key is not None:
        raise ConfigurationError(
            field="--key", value=key, rule="is for one job", fix="Leave it out with --file."
        )

    def payloads() -> Iterator[object]:
        return values_in(file, "--file", lambda value: encoded_payload(pipeline, value))

    check_all(file, payloads)
    with connect(database_url) as rd:
        ids = rd.submit_many(pipeline, payloads(), run_at=start, priority=priority, owner=owner)
    first, last = (ids[0], ids[-1]) if ids else (None, None)
    print_facts({"submitted": len(ids), "first": first, "last": last}, output)
