# SPDX-License-Identifier: Apache-2.0
"""Metrics as Prometheus scrapes them: of one database, of the workers of this process, and of what the application counts itself.

Needs prometheus-client (the extra `metrics`), which nothing else imports. What the store knows is read from it when somebody asks
(`readings`); what only a worker knows is counted by it (`worker_metrics`). With a folder, those counts are of all processes that
write to it, dead ones included.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, cast

from prometheus_client import REGISTRY, CollectorRegistry, generate_latest, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from redrive.client.async_connection import AsyncRedrive
from redrive.client.connection import Redrive, connect
from redrive.engine.observers import install, uninstall
from redrive.errors import ConfigurationError, StoreError
from redrive.telemetry.catalogue import BY_NAME, DURATIONS, FROM_STORE, FROM_WORKERS, Metric
from redrive.telemetry.readings import Durations, StoreReadings, Values

if TYPE_CHECKING:
    from redrive.telemetry.worker_metrics import WorkerMetrics

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_BOUNDS: Final = (*(str(limit) for limit in DURATIONS), "+Inf")
_HELP: Final = {metric.family: metric.meaning for metric in FROM_WORKERS}


class Metrics:
    """The metrics of a database and of the workers of this process; counters begin at zero when it is made.

    `database` is a connection, or an address as `connect` takes it; then the metrics have a connection of their own, and no
    worker ever waits for a scrape. `folder` is for processes that share their counts; see `redrive worker --processes`.
    """

    def __init__(
        self,
        database: Redrive | AsyncRedrive | str | os.PathLike[str] | None = None,
        *,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        self._own: Redrive | None = None
        if isinstance(database, Redrive | AsyncRedrive):
            rd = database.face if isinstance(database, AsyncRedrive) else database
        else:
            rd = self._own = connect(database)
        self._registry = CollectorRegistry()
        self._registry.register(_FromStore(StoreReadings(rd.store)))
        self._observer: WorkerMetrics | None = None
        if folder is not None:
            self._registry.register(_Shared(os.fspath(folder)))
            return
        from redrive.telemetry.worker_metrics import WORKERS, WorkerMetrics

        # What the workers of this process do, and what the application itself counts.
        self._registry.register(WORKERS)
        self._registry.register(REGISTRY)
        self._observer = WorkerMetrics(page=lambda: (CONTENT_TYPE, self.text()))
        install(self._observer)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format, `CONTENT_TYPE`. Reads the store: call it off an event loop."""
        return generate_latest(self._registry)

    def serve(self, host: str, port: int) -> Callable[[], None]:
        """Answer scrapes on this address, from a thread of its own; return what ends that. Raises ConfigurationError."""
        try:
            server, thread = start_http_server(port, host, self._registry)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise ConfigurationError(
                field="metrics", value=f"{host}:{port}", rule="cannot be listened on", fix=f"{reason}."
            ) from error

        def end() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return end

    def close(self) -> None:
        """Stop counting, and close the connection if it is its own."""
        if self._observer is not None:
            uninstall(self._observer)
        if self._own is not None:
            self._own.close()


class _Shared(Collector):
    """The counts of several processes, with the meanings that their files do not have."""

    def __init__(self, folder: str) -> None:
        self._files = cast("Collector", MultiProcessCollector(None, folder))  # type: ignore[no-untyped-call] # It has no annotations.

    def collect(self) -> Iterable[Family]:
        for family in self._files.collect():
            family.documentation = _HELP.get(family.name, family.documentation)
            yield family


class _FromStore(Collector):
    """What the store knows; nothing but `redrive_store_up 0` while it does not answer."""

    def __init__(self, readings: StoreReadings) -> None:
        self._readings = readings

    def collect(self) -> Iterable[Family]:
        try:
            values = self._readings.read()
        except StoreError:
            yield _family(BY_NAME["redrive_store_up"], {(): 0.0})
            return
        for metric in FROM_STORE:
            if metric.kind == "histogram":
                yield _histogram(metric, self._readings.durations)
            else:
                yield _family(metric, values[metric.name])


def _family(metric: Metric, values: Values) -> Family:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.family, metric.meaning, labels=metric.labels)
    for labels, value in sorted(values.items()):
        family.add_metric(labels, value)
    return family


def _histogram(metric: Metric, durations: dict[tuple[str, ...], Durations]) -> Family:
    family = HistogramMetricFamily(metric.family, metric.meaning, labels=metric.labels)
    for labels, one in sorted(durations.items()):
        # Prometheus wants how many took at most so long.
        buckets = [(bound, float(sum(one.counts[: place + 1]))) for place, bound in enumerate(_BOUNDS)]
        family.add_metric(labels, buckets, one.sum)
    return family
