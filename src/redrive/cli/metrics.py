# SPDX-License-Identifier: Apache-2.0
"""The metrics of `redrive worker`: served by the worker itself, or by the supervisor of several for all of them.

Processes count in a folder that the supervisor makes and deletes: what one has counted stays there when it is killed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from contextlib import closing, contextmanager

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
    if port is None:
        yield
        return
    from redrive.telemetry import Metrics

    with closing(Metrics(database_url)) as metrics:
        end = metrics.serve(host, port)
        try:
            yield
        finally:
            end()


@contextmanager
def measured_processes(database_url: str | None, host: str, port: int | None) -> Generator[str | None]:
    """Serve the metrics of processes that are about to be started, if a port is given; yield the folder to count in."""
    if port is None:
        yield None
        return
    from redrive.telemetry import Metrics

    with (
        tempfile.TemporaryDirectory(prefix="redrive-metrics-") as folder,
        closing(Metrics(database_url, folder=folder)) as metrics,
    ):
        end = metrics.serve(host, port)
        try:
            yield folder
        finally:
            end()
