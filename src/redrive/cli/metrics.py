# SPDX-License-Identifier: Apache-2.0
"""The metrics of `redrive worker`: served by the worker itself, or by the supervisor of several for all of them.

Processes count in a folder that the supervisor makes and deletes: what one has counted stays there when it is killed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager

from redrive.config import count_in


@contextmanager
def measured(database_url: str | None, host: str, port: int | None, folder: str | None) -> Generator[None]:
    """Serve the metrics of this process, if a port is given; one of several processes only counts, in their folder."""
    if folder is not None:
        # Before prometheus-client is imported, which reads it then.
        count_in(folder)
        from redrive.engine.observers import install
        from redrive.telemetry.worker_metrics import WorkerMetrics

        install(WorkerMetrics())
    with ExitStack() as stack:
        if port is not None:
            _serve(stack, database_url, host, port)
        yield


@contextmanager
def measured_processes(database_url: str | None, host: str, port: int | None) -> Generator[str | None]:
    """Serve the metrics of processes that are about to be started, if a port is given; yield the folder to count in."""
    folder = None
    with ExitStack() as stack:
        if port is not None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="redrive-metrics-"))
            _serve(stack, database_url, host, port, folder)
        yield folder


def _serve(
    stack: ExitStack, database_url: str | None, host: str, port: int, folder: str | None = None
) -> None:
    from redrive.telemetry import Metrics

    metrics = stack.enter_context(closing(Metrics(database_url, folder=folder)))
    stack.callback(metrics.serve(host, port))
