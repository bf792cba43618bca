# SPDX-License-Identifier: Apache-2.0
"""`redrive worker`: work on the jobs of some pipelines, in this process or in several that are watched over.

Exit codes: 0 told to stop, or nothing is left; 3 with --until-idle when all that is left is held.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal

import typer

from redrive.cli.input.options import Database
from redrive.cli.input.targets import pipelines_named
from redrive.cli.output.errors import DONE, HELD
from redrive.cli.output.tables import is_interactive, say
from redrive.cli.output.terminal import LineFormatter
from redrive.cli.supervisor import Supervisor
from redrive.client.connection import Redrive, connect
from redrive.core.arguments import whole
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.worker.health import check_port
from redrive.ops.pipelines import stale_lanes

logger = logging.getLogger("redrive.cli")

LOOPBACK: Final = "127.0.0.1"
LOG_FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(job)s%(message)s"


def worker(
    targets: Annotated[
        list[str],
        typer.Argument(metavar="MODULE:PIPELINE...", help="The pipelines, such as shop.flows:orders."),
    ],
    *,
    concurrency: Annotated[int, typer.Option("--concurrency", help="How many stages run at once.")] = 64,
    processes: Annotated[int, typer.Option("--processes", help="How many such workers to keep up.")] = 1,
    lease: Annotated[
        float, typer.Option("--lease", help="Seconds until a silent worker counts as dead.")
    ] = 30.0,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="End when nothing is queued.")] = False,
    hold_max: Annotated[
        float, typer.Option("--hold-max", help="With --until-idle: wait so many seconds for what is held.")
    ] = 0.0,
    health_port: Annotated[
        int | None,
        typer.Option("--health-port", help="Answer supervisors there; each further process one higher."),
    ] = None,
    health_host: Annotated[str, typer.Option("--health-host", help="On this address.")] = LOOPBACK,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], typer.Option("--log-level", help="What to log.")
    ] = "info",
    lifeline: Annotated[int | None, typer.Option("--lifeline", hidden=True)] = None,
    database_url: Database = None,
) -> None:
    """Work on the jobs of some pipelines until told to stop."""
    log_to_standard_error(log_level)
    pipelines = pipelines_named(targets)
    whole("--processes", processes, minimum=1, fix="1 is the default.")
    if health_port is not None:
        check_port("--health-port", health_port, further=processes - 1)
    if processes > 1:
        given = {
            "--concurrency": concurrency,
            "--lease": lease,
            "--hold-max": hold_max,
            "--health-host": health_host,
            "--log-level": log_level,
            "--database-url": database_url,
        }
        raise typer.Exit(_supervised(targets, processes, given, until_idle=until_idle, port=health_port))
    if lifeline is not None:
        end_with(lifeline)
    with connect(database_url) as rd:
        _say_what_is_served(rd, pipelines)
        ending = rd.work(
            pipelines,
            concurrency=concurrency,
            lease=lease,
            until_idle=until_idle,
            hold_max=hold_max,
            health=None if health_port is None else (health_host, health_port),
        )
    if ending == "held":
        say("all that is left is held: redrive doctor says by what")
    raise typer.Exit(HELD if ending == "held" else DONE)


def _supervised(
    targets: Sequence[str],
    processes: int,
    given: Mapping[str, object],
    *,
    until_idle: bool,
    port: int | None,
) -> int:
    """Keep several such workers up, each told what this one was told."""
    command = [sys.executable, "-m", "redrive.cli", "worker", *targets]
    command += [part for name, value in given.items() if value is not None for part in (name, str(value))]
    command += ["--until-idle"] if until_idle else []
    return Supervisor(command, processes, is_ending=until_idle, health_port=port).run()


def _say_what_is_served(rd: Redrive, pipelines: Sequence[Pipeline]) -> None:
    for lane in stale_lanes(rd.store, pipelines):
        logger.warning(
            "%s jobs wait in %s.%s, a stage the pipeline no longer has: give it its name back with @stage(name=%r)",
            lane.queued,
            lane.pipeline,
            lane.stage,
            lane.stage,
        )
    if is_interactive():
        say(f"serving {', '.join(each.name for each in pipelines)}; Ctrl-C ends it")


def log_to_standard_error(level: str) -> None:
    """Log what happens, each line with the job it is about."""
    writer = logging.StreamHandler()
    # Records made before the worker starts do not know about jobs.
    writer.setFormatter(LineFormatter(LOG_FORMAT, defaults={"job": ""}))
    logging.basicConfig(level=level.upper(), handlers=[writer], force=True)


def end_with(lifeline: int) -> None:
    """End this worker politely when the other end of a pipe is closed, because whoever held it is gone."""
    os.set_inheritable(lifeline, False)  # noqa: FBT003 - os takes it by position only.

    def watch() -> None:
        os.read(lifeline, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()
