# SPDX-License-Identifier: Apache-2.0
"""What only a worker knows, counted by it: sizes and times of commits, lost leases, reaped jobs, claims that met a limit.

Once per process, in a registry of its own. A process that was started with PROMETHEUS_MULTIPROC_DIR counts in files of that folder,
which outlive it: that is how `redrive worker --processes` adds up what killed processes did.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from redrive.engine.observers import CommitFacts, Observer, Page
from redrive.engine.pipeline.lanes import Lane
from redrive.telemetry.catalogue import BATCHES, BY_NAME, COMMITS, LANES_MAX, Labels

WORKERS: Final = CollectorRegistry()
"""The counts of this process."""


def _counter(name: str) -> Counter:
    metric = BY_NAME[name]
    return Counter(metric.family, metric.meaning, metric.labels, registry=WORKERS)


def _histogram(name: str, buckets: Sequence[float]) -> Histogram:
    metric = BY_NAME[name]
    return Histogram(metric.family, metric.meaning, metric.labels, registry=WORKERS, buckets=buckets)


_LIMIT_WAITS: Final = _counter("redrive_limit_waits_total")
_LEASE_LOSSES: Final = _counter("redrive_lease_losses_total")
_REAPED: Final = _counter("redrive_reaped_jobs_total")
_BATCH_SIZE: Final = _histogram("redrive_settle_batch_size", BATCHES)
_SECONDS: Final = _histogram("redrive_settle_seconds", COMMITS)
_LANES: Final = Labels(LANES_MAX)


class WorkerMetrics(Observer):
    """Counts what the workers of this process do; `page` is what their health port answers to /metrics."""

    def __init__(self, page: Page | None = None) -> None:
        self._page = page

    def committed(self, commit: CommitFacts) -> None:
        """Count a commit; one that only claims settles nothing."""
        if commit.batch:
            _BATCH_SIZE.observe(len(commit.batch))
            _SECONDS.observe(commit.seconds)
        if commit.answer.lost:
            _LEASE_LOSSES.inc(len(commit.answer.lost))

    def limited(self, lanes: Sequence[Lane]) -> None:
        """Count a claim that left lanes out."""
        for lane in lanes:
            _LIMIT_WAITS.labels(*_LANES.of(lane.pipeline.name, lane.stage.name)).inc()

    def declared_dead(self, runs: int) -> None:
        """Count the attempts that are dropped."""
        _LEASE_LOSSES.inc(runs)

    def reaped(self, jobs: int) -> None:
        """Count jobs of dead workers."""
        _REAPED.inc(jobs)

    def health_page(self, path: str) -> Page | None:
        """Return the metrics."""
        return self._page if path == "/metrics" else None
