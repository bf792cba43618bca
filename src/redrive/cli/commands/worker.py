# SPDX-License-Identifier: Apache-2.0
"""`redrive worker`: run the jobs of some pipelines, in this process or in several supervised ones.

Exit codes: 0 stopped by a signal, or no jobs left; 3 with --until-idle when all that is left is held, or
queued in a stage that the pipeline no longer has.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Annotated, Final, Literal, NoReturn

import typer

from redrive.cli.input.action import option_group
from redrive.cli.input.options import Database
from redrive.cli.input.targets import import_pipelines
from redrive.cli.output.errors import DONE, HELD
from redrive.cli.output.logs import log_own_packages, log_to_standard_error
from redrive.cli.output.tables import is_interactive, print_message
from redrive.cli.supervisor import Supervisor
from redrive.client.connection import Redrive, connect
from redrive.config import count_in
from redrive.core.arguments import whole
from redrive.core.units import plural
from redrive.engine.observers import install
from redrive.engine.outage import Outage
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.runtime import CURRENT
from redrive.engine.worker.health import check_port
from redrive.engine.worker.worker import RESEND_SECONDS
from redrive.errors import StoreUnavailableError
from redrive.ops.pipelines import stale_lanes

logger = logging.getLogger("redrive.cli")

LOOPBACK: Final = "127.0.0.1"
WAIT_MAX: Final = 5.0
"""The longest time between two tries to connect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """What was typed about a worker."""

    concurrency: Annotated[int, typer.Option("--concurrency", help="Stages that run at once.")] = 64
    processes: Annotated[int, typer.Option("--processes", help="Worker processes to keep running.")] = 1
    lease: Annotated[
        float, typer.Option("--lease", help="Seconds without a heartbeat until a worker counts as dead.")
    ] = 30.0
    until_idle: Annotated[bool, typer.Option("--until-idle", help="End when no jobs are queued.")] = False
    hold_max: Annotated[
        float, typer.Option("--hold-max", help="With --until-idle: seconds to wait for held jobs.")
    ] = 0.0
    health_port: Annotated[
        int | None,
        typer.Option("--health-port", help="Port of the health check; more processes use the next ones."),
    ] = None
    health_host: Annotated[
        str, typer.Option("--health-host", help="Address of the health check and of the metrics.")
    ] = LOOPBACK
    metrics: Annotated[
        int | None,
        typer.Option(
            "--metrics",
            metavar="PORT",
            help="Port on which Prometheus scrapes the metrics of all processes; see also /metrics of the health port.",
        ),
    ] = None
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None,
        typer.Option(
            "--log-level",
            help="The lowest level to log, of all libraries. Default: info of redrive and your own package, warnings of others.",
        ),
    ] = None
    log_format: Annotated[
        Literal["text", "json"],
        typer.Option("--log-format", help="Lines for people, or one JSON object each."),
    ] = "text"
    lifeline: Annotated[int | None, typer.Option("--lifeline", hidden=True)] = None
    count_in: Annotated[str | None, typer.Option("--count-in", hidden=True)] = None
    database_url: Database = None


@option_group("how", WorkerOptions, is_last=True)
def worker(
    targets: Annotated[
        list[str],
        typer.Argument(metavar="MODULE:PIPELINE...", help="The pipelines, such as shop.flows:orders."),
    ],
    *,
    how: WorkerOptions,
) -> None:
    """Run the jobs of some pipelines until stopped by a signal."""
    log_to_standard_error(how.log_level, how.log_format)
    pipelines = import_pipelines(targets)
    if how.log_level is None:
        log_own_packages(pipelines)
    whole("--processes", how.processes, minimum=1, fix="1 is the default.")
    if how.health_port is not None:
        check_port("--health-port", how.health_port, further=how.processes - 1)
    if how.metrics is not None:
        check_port("--metrics", how.metrics)
    if how.lifeline is not None:
        stop_with(how.lifeline)
    raise typer.Exit(_supervise(targets, how) if how.processes > 1 else _work(pipelines, how))


def _work(pipelines: Sequence[Pipeline], how: WorkerOptions) -> int:
    with connect_when_started(how.database_url, is_awaited=not how.until_idle) as rd, ExitStack() as stack:
        if how.count_in is not None:
            # Before prometheus-client is imported, which reads it then.
            count_in(how.count_in)
            from redrive.telemetry.worker_metrics import WorkerMetrics

            install(WorkerMetrics())
        if how.metrics is not None:
            _serve_metrics(stack, how, how.metrics)
        _report_served(rd, pipelines)
        ending = rd.work(
            pipelines,
            concurrency=how.concurrency,
            lease=how.lease,
            until_idle=how.until_idle,
            hold_max=how.hold_max,
            health=None if how.health_port is None else (how.health_host, how.health_port),
        )
    if ending == "held":
        print_message("all jobs that are left are held: redrive doctor reports why")
    return HELD if ending == "held" else DONE


def connect_when_started(database_url: str | None, *, is_awaited: bool = False) -> Redrive:
    """Connect; wait while the server starts or stops, as a running worker does.

    With `is_awaited`, also while nothing listens: a machine may be up before its database. A signal ends the command.
    """
    outage, clock, wait = Outage(logger), CURRENT.get().clock, RESEND_SECONDS
    passing = ("starting", "absent") if is_awaited else ("starting",)
    with ExitStack() as stack:
        while True:
            try:
                return connect(database_url)
            except StoreUnavailableError as error:
                if error.server not in passing:
                    raise
                if wait == RESEND_SECONDS:
                    _end_on_signals(stack)
                outage.failed("waiting for the database: %s", error)
            clock.sleep(wait)
            wait = min(2 * wait, WAIT_MAX)


def _end_on_signals(stack: ExitStack) -> None:
    """End at once on SIGTERM and SIGINT, as a worker that has nothing to settle."""

    def end(*_: object) -> NoReturn:
        # Not an Exception: the handlers of a log, in which this may happen, keep those to themselves.
        raise SystemExit(DONE)

    for number in (signal.SIGTERM, signal.SIGINT):
        stack.callback(signal.signal, number, signal.signal(number, end))


def _supervise(targets: Sequence[str], how: WorkerOptions) -> int:
    """Keep several workers running; their counts are in files of a folder, and survive a worker that is killed."""
    with ExitStack() as stack:
        folder = None
        if how.metrics is not None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="redrive-metrics-"))
            _serve_metrics(stack, how, how.metrics, folder)
        given = {
            "--concurrency": how.concurrency,
            "--lease": how.lease,
            "--hold-max": how.hold_max,
            "--health-host": how.health_host,
            "--log-level": how.log_level,
            "--log-format": how.log_format,
            "--count-in": folder,
            "--database-url": how.database_url,
        }
        command = [sys.executable, "-m", "redrive.cli", "worker", *targets]
        command += [part for name, value in given.items() if value is not None for part in (name, str(value))]
        command += ["--until-idle"] if how.until_idle else []
        keeper = Supervisor(command, how.processes, is_ending=how.until_idle, health_port=how.health_port)
        return keeper.run()


def _serve_metrics(stack: ExitStack, how: WorkerOptions, port: int, folder: str | None = None) -> None:
    from redrive.telemetry import Metrics

    metrics = stack.enter_context(closing(Metrics(how.database_url, folder=folder)))
    stack.callback(metrics.serve(how.health_host, port))


def _report_served(rd: Redrive, pipelines: Sequence[Pipeline]) -> None:
    for lane in stale_lanes(rd.store, pipelines):
        logger.warning(
            "%s queued in %s.%s, a stage the pipeline no longer has: restore its name with @stage(name=%r)",
            plural(lane.queued, "job"),
            lane.pipeline,
            lane.stage,
            lane.stage,
        )
    if is_interactive():
        print_message(f"serving {', '.join(each.name for each in pipelines)}; stop with Ctrl-C")


def stop_with(lifeline: int) -> None:
    """Stop this worker when the other end of a pipe is closed, because the process that started it is gone."""
    os.set_inheritable(lifeline, False)  # noqa: FBT003 - os takes it by position only.

    def watch() -> None:
        os.read(lifeline, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()
