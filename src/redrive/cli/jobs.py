# SPDX-License-Identifier: Apache-2.0
"""The commands about jobs: submit, worker, job show, stats. Each has `-o json` for programs.

A pipeline is named as `package.module:name`; the present folder is searched as well, as `python -m` does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table

from redrive.engine.client import Redrive, connect
from redrive.engine.pipeline import Pipeline
from redrive.errors import ConfigurationError

Format = Literal["table", "json"]
Database = Annotated[
    str | None,
    typer.Option("--database-url", help="Where the jobs live; default: REDRIVE_DATABASE_URL, redrive.db"),
]
Output = Annotated[Format, typer.Option("-o", "--output", help="How to show the answer.")]
Target = Annotated[
    str, typer.Argument(metavar="MODULE:PIPELINE", help="The pipeline, such as shop.flows:orders.")
]

job_app = typer.Typer(help="Look at jobs.", no_args_is_help=True)


def submit(
    target: Target,
    payload: Annotated[str | None, typer.Argument(help="One payload as JSON.")] = None,
    *,
    file: Annotated[
        Path | None, typer.Option("--file", help="A file with one JSON payload per line.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="A job with this key is not made twice.")] = None,
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
    with connect(database_url) as rd:
        if file is not None:
            ids = rd.submit_many(pipeline, _payloads_in(file))
        else:
            ids = [rd.submit(pipeline, _decoded(payload or "", "the payload"), key=key).id]
    _answer(
        {"submitted": len(ids), "first": ids[0] if ids else None, "last": ids[-1] if ids else None}, output
    )


def worker(
    target: Target,
    *,
    concurrency: Annotated[int, typer.Option("--concurrency", help="How many stages run at once.")] = 64,
    lease: Annotated[
        float, typer.Option("--lease", help="Seconds until a silent worker counts as dead.")
    ] = 30.0,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="End when nothing is queued.")] = False,
    database_url: Database = None,
) -> None:
    """Work on the jobs of a pipeline."""
    pipeline = pipeline_named(target)
    with connect(database_url) as rd:
        rd.work([pipeline], concurrency=concurrency, lease=lease, until_idle=until_idle)


def stats(*, database_url: Database = None, output: Output = "table") -> None:
    """Count all jobs by status."""
    with connect(database_url) as rd:
        counts = rd.counts()
    _answer({**counts, "total": sum(counts.values())}, output)


@job_app.command("show")
def show(job_id: int, *, database_url: Database = None, output: Output = "table") -> None:
    """Show one job."""
    with connect(database_url) as rd:
        _answer(_shown(rd, job_id), output)


def pipeline_named(target: str) -> Pipeline:
    """Import the pipeline that `module:name` names, or say what is wrong with the name."""
    module_name, separator, name = target.partition(":")
    if not separator or not module_name or not name:
        raise ConfigurationError(
            field="MODULE:PIPELINE",
            value=target,
            rule="must name a module and a pipeline",
            fix="shop.flows:orders, for example.",
        )
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = import_module(module_name)
    except ImportError as error:
        raise ConfigurationError(
            field="MODULE:PIPELINE",
            value=module_name,
            rule="cannot be imported",
            fix=f"Python says: {error}.",
        ) from error
    found = getattr(module, name, None)
    if isinstance(found, Pipeline):
        return found
    known = ", ".join(key for key, value in vars(module).items() if isinstance(value, Pipeline)) or "none"
    raise ConfigurationError(
        field="MODULE:PIPELINE",
        value=name,
        rule=f"is no pipeline of {module_name}",
        fix=f"Its pipelines: {known}.",
    )


def _shown(rd: Redrive, job_id: int) -> dict[str, object]:
    return asdict(rd.job(job_id).facts)


def _payloads_in(file: Path) -> Iterator[object]:
    try:
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _decoded(line, f"{file}, line {number}")
    except OSError as error:
        raise ConfigurationError(
            field="--file", value=str(file), rule="cannot be read", fix=str(error)
        ) from error


def _decoded(text: str, where: str) -> object:
    try:
        value: object = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(
            field=where, value=text.strip(), rule="must be JSON", fix=f"{error}."
        ) from error
    return value


def _answer(facts: dict[str, object], output: Format) -> None:
    if output == "json":
        typer.echo(json.dumps(facts, default=str))
        return
    table = Table(show_header=False)
    for name, value in facts.items():
        table.add_row(name, "" if value is None else str(value))
    Console().print(table)
