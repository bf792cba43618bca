# SPDX-License-Identifier: Apache-2.0
"""The commands: `serve` answers requests, `worker` fetches, `consume` reads the dead letters, `demo` shows everything at once.

Settings come from the environment and from the file it names; README.md lists them. The `redrive` command, on the same database,
lists, triages and replays dead letters.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated, Literal

import typer

from apps.fetchbox.api.routes import make_app, schedule_retention
from apps.fetchbox.dead_letters.consumer import consume as consume_letters
from apps.fetchbox.demo import run_demo
from apps.fetchbox.pipeline import pipeline_of
from apps.fetchbox.settings import Settings
from apps.tracing import trace_if_configured
from redrive import RedriveError, connect, redact
from redrive.telemetry import Metrics
from redrive.web import serve as serve_app

app = typer.Typer(
    name="fetchbox",
    help="A manifest of resources in, objects in a bucket out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
Level = Annotated[
    Literal["debug", "info", "warning", "error"], typer.Option("--log-level", help="The lowest level to log.")
]


@app.command()
def serve(
    *,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="The port; 0 takes a free one.")] = 8080,
    log_level: Level = "info",
) -> None:
    """Answer requests until stopped."""
    _log(log_level)
    made = make_app(Settings.read())
    serve_app(
        made, host=host, port=port, on_ready=lambda where, at: typer.echo(f"listening on http://{where}:{at}")
    )


@app.command()
def worker(
    *,
    metrics_port: Annotated[
        int | None, typer.Option("--metrics-port", help="Serve metrics for Prometheus here; 0 serves none.")
    ] = None,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="End when nothing is queued.")] = False,
    log_level: Level = "info",
) -> None:
    """Fetch what was posted until stopped."""
    _log(log_level)
    settings = Settings.read()
    pipeline = pipeline_of(settings)
    settings.root.mkdir(parents=True, exist_ok=True)
    with connect(settings.database) as rd:
        schedule_retention(rd, settings)
        end = Metrics(settings.database).serve("127.0.0.1", metrics_port) if metrics_port else None
        try:
            typer.echo("working")
            rd.work([pipeline], until_idle=until_idle, concurrency=settings.concurrency, lease=settings.lease)
        finally:
            if end is not None:
                end()


@app.command()
def consume(
    *,
    replay: Annotated[bool, typer.Option("--replay", help="Also replay each task.")] = False,
) -> None:
    """Read the dead letters on the broker, and count them by code."""
    settings = Settings.read()
    if not settings.nats_url:
        wrong = "consume needs FETCHBOX_NATS_URL"
        raise typer.BadParameter(wrong)
    with connect(settings.database) as rd:
        found = asyncio.run(consume_letters(settings.nats_url, rd if replay else None))
    for code, count in found.by_code.most_common():
        typer.echo(f"{count:6} {code}")
    counts = f"{found.replayed} replayed, {found.refused} not replayable, {found.unreadable} unreadable"
    typer.echo(f"{found.by_code.total()} read, {counts}")


@app.command()
def demo(
    *,
    once: Annotated[bool, typer.Option("--once", help="End when the sample job has ended.")] = False,
) -> None:
    """Start a broker, the API and a worker in a temporary folder, and post a sample job."""
    run_demo(is_once=once, echo=typer.echo)


def _log(level: str) -> None:
    logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)-8s %(name)s: %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


def main() -> None:
    """Run the command line."""
    trace_if_configured()
    try:
        app()
    except RedriveError as error:
        typer.echo(f"error: {redact(str(error))}", err=True)
        raise SystemExit(2) from None
