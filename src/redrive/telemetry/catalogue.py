# SPDX-License-Identifier: Apache-2.0
"""Every metric of redrive: its name, kind, labels and meaning; the page about them is compared with this table.

No label has more values than its `Labels` allow: codes and names come from the application, and every value is a series of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

LANE: Final = ("pipeline", "stage")
DURATIONS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""The upper limits of an attempt's duration, in seconds; the statement `attempt_tally` takes exactly so many."""
BATCHES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)
COMMITS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
CODES_MAX: Final = 100
LANES_MAX: Final = 200
BREAKERS_MAX: Final = 100
TEXT_MAX: Final = 100
"""Characters of one value."""
OTHER: Final = "other"
"""Stands for every value after the first so many."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric, by the name under which it is scraped."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    meaning: str

    @property
    def family(self) -> str:
        """Its name as prometheus-client takes it: it adds `_total` itself."""
        return self.name.removesuffix("_total")


FROM_STORE: Final = (
    Metric("jobs_failed_total", "counter", ("error_code",), "Jobs that became dead letters, by the code of their failure."),
    Metric("job_processing_duration_seconds", "histogram", LANE, "How long attempts took, from their start to their end."),
    Metric("queue_depth", "gauge", LANE, "Queued jobs, those that wait for a time or a breaker included."),
    Metric("jobs_active", "gauge", LANE, "Jobs that are leased to workers."),
    Metric("manual_retry_total", "counter", (), "Failed jobs that somebody retried one by one; replays are counted apart."),
    Metric(
        "redrive_attempts_total", "counter", (*LANE, "outcome"),
        "Attempts, by outcome: ok, retry, hold, dead, crashed, cancelled or skipped.",
    ),
    Metric("redrive_retries_total", "counter", (*LANE, "error_code"), "Attempts that are retried, by the code of their failure."),
    Metric("redrive_holds_total", "counter", LANE, "Attempts after which the job waits: for a breaker, or as its stage asked."),
    Metric("redrive_dead_letters_total", "counter", LANE, "Attempts after which the job became a dead letter."),
    Metric("redrive_replayed_total", "counter", (), "Dead letters that replays have released."),
    Metric("redrive_breaker_state", "gauge", ("breaker", "state"), "1 for the present state: closed, open, half_open or isolated."),
    Metric("redrive_store_up", "gauge", (), "1 if the store answered this scrape; without an answer nothing above is reported."),
)  # fmt: skip
"""Read from the store when scraped: the same for every process, and exact even if processes were killed."""

FROM_WORKERS: Final = (
    Metric("redrive_limit_waits_total", "counter", LANE, "Claims that left out a stage, or a job of it, because of a limit."),
    Metric("redrive_settle_batch_size", "histogram", (), "Settlements per commit."),
    Metric("redrive_settle_seconds", "histogram", (), "How long the store took for a commit, its claim included."),
    Metric("redrive_lease_losses_total", "counter", (), "Runs whose outcome did not count, because their lease was lost."),
    Metric("redrive_reaped_jobs_total", "counter", (), "Jobs of dead workers that were queued again."),
)  # fmt: skip
"""Counted by the workers themselves."""

METRICS: Final = FROM_STORE + FROM_WORKERS
BY_NAME: Final = {metric.name: metric for metric in METRICS}


class Labels:
    """The first so many values of a label, or of several that belong together; all later ones are counted as `other`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[tuple[str, ...], tuple[str, ...]] = {}

    def of(self, *values: str) -> tuple[str, ...]:
        """Return the values to report."""
        found = self._known.get(values)
        if found is None:
            if len(self._known) >= self._most:
                return (OTHER,) * len(values)
            found = self._known[values] = tuple(value[:TEXT_MAX] for value in values)
        return found
