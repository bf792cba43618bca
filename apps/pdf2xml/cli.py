# SPDX-License-Identifier: Apache-2.0
"""The commands: `api`, `worker` and `gateway` are the three processes, `demo` starts all of them, `purge` deletes old files.

Settings come from the environment. Each process prints its address once it is ready, and ends at SIGINT or SIGTERM.
"""

from __future__ import annotations

import logging
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Final

import typer

import redrive
from apps.pdf2xml.pipeline import build
from apps.pdf2xml.settings import Settings
from apps.tracing import trace_if_configured
from redrive import RedriveError, redact
from redrive.telemetry import Metrics

app = typer.Typer(
    name="pdf2xml",
    help="Convert uploaded PDFs to XML through a gateway.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

LOG: Final = "%(asctime)s %(levelname)-8s %(name)s: %(message)s"
NICENESS: Final = 10
Host = Annotated[str, typer.Option("--host", help="The address to listen on.")]
Port = Annotated[int, typer.Option("--port", help="The port to listen on; 0 takes a free one.")]


def _yield_to_visitors() -> None:
    """Run behind the API where all share a machine: a page is waited for, a conversion is not."""
    os.nice(NICENESS)


def _ready(name: str) -> None:
    logging.basicConfig(level="INFO", format=LOG)
    # One line per request, with its address, is more than a log of failures needs.
    logging.getLogger("httpx").setLevel("WARNING")
    logging.getLogger("pdf2xml").debug("%s starts", name)


def _announce(name: str, host: str, port: int) -> None:
    typer.echo(f"{name}: http://{host}:{port}")


@app.command()
def api(
    *,
    host: Host = "127.0.0.1",
    port: Port = 8080,
    sample: Annotated[bool, typer.Option("--sample", help="Show every new visitor a sample file.")] = False,
) -> None:
    """Serve the API and the queue page."""
    from apps.pdf2xml.api import api as make
    from redrive.web import serve

    _ready("api")
    made = make(Settings.read(), has_sample=sample)
    serve(made, host=host, port=port, on_ready=lambda host, port: _announce("api", host, port))


@app.command()
def worker(
    *,
    health_port: Annotated[
        int | None,
        typer.Option("--health-port", help="Answer supervisors, and /metrics, on this port of loopback."),
    ] = None,
) -> None:
    """Convert what is queued until stopped."""
    _ready("worker")
    _yield_to_visitors()
    settings = Settings.read()
    settings.folder.mkdir(parents=True, exist_ok=True)
    health = None if health_port is None else ("127.0.0.1", health_port)
    with redrive.connect(settings.database) as rd, ExitStack() as stack:
        if health is not None:
            stack.callback(Metrics(settings.database).close)
        typer.echo("worker: ready")
        rd.work([build(settings)], concurrency=settings.concurrency, lease=settings.lease, health=health)


@app.command()
def gateway(
    *,
    host: Host = "127.0.0.1",
    port: Port = 8090,
    seconds: Annotated[
        float, typer.Option("--seconds", help="The most that one conversion may take.")
    ] = 60.0,
    memory: Annotated[
        int, typer.Option("--memory", help="The most megabytes that one conversion may use.")
    ] = 1_500,
    faults: Annotated[
        bool,
        typer.Option("--faults", help="For tests: let loopback addresses make it fail, hang and recover."),
    ] = False,
) -> None:
    """Serve the converter."""
    from apps.pdf2xml.gateway.service import GatewayLimits
    from apps.pdf2xml.gateway.service import gateway as make
    from redrive.web import serve

    _ready("gateway")
    _yield_to_visitors()
    made = make(GatewayLimits(seconds=seconds, memory=memory * 1_000_000), has_switch=faults)
    serve(made, host=host, port=port, on_ready=lambda host, port: _announce("gateway", host, port))


@app.command()
def purge(
    *,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="AGE", help="Such as 12h or 30d; instead of PDF2XML_RETENTION."),
    ] = None,
) -> None:
    """Delete results and sources that are older than the retention; the API does it by itself, again and again."""
    from apps.pdf2xml.jobs import Jobs
    from redrive.cli.input.times import duration

    age = None if older_than is None else duration("--older-than", older_than)
    jobs = Jobs(Settings.read())
    try:
        typer.echo(f"{jobs.purge(age)} files deleted")
    finally:
        jobs.close()


@app.command()
def demo(
    *,
    folder: Annotated[Path | None, typer.Option("--folder", help="Keep the files here.")] = None,
    port: Port = 8080,
    check: Annotated[bool, typer.Option("--check", help="Convert the sample, print it, and end.")] = False,
) -> None:
    """Start API, worker and gateway with a sample, and print the address of the page; ^C ends all of them."""
    from apps.pdf2xml.demo import run_demo

    raise typer.Exit(run_demo(folder, port=port, is_check=check, say=typer.echo))


def main() -> None:
    """Run the command line."""
    trace_if_configured()
    try:
        app()
    except RedriveError as error:
        typer.echo(f"error: {redact(str(error))}", err=True)
        raise SystemExit(2) from None
