# SPDX-License-Identifier: Apache-2.0
"""What the store knows exactly, as numbers for metrics: attempts by outcome, queues, breakers, retries by hand, replays.

Counters begin at zero when the readings are made, and are read on from there: each scrape adds up the attempts that were committed
since the last one. So they cost a worker nothing, are the same whichever process reads them, and miss nothing of a worker that was
killed, because an attempt is counted if and only if it was committed.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Final, NamedTuple, cast

from redrive.core.breaker_state import Phase
from redrive.ops.breakers import breakers
from redrive.store.protocol import Store
from redrive.store.statements import reports as report_sql
from redrive.store.statements import workers as worker_sql
from redrive.telemetry.catalogue import (
    BREAKERS_MAX,
    CODES_MAX,
    DURATIONS,
    FROM_STORE,
    LANES_MAX,
    OTHER,
    Labels,
)

STEP: Final = 50_000
"""Attempts that are added up in one query: a worker that shares the connection waits for no longer than that."""
ALWAYS: Final = -1e18
OUTCOMES: Final = ("ok", "retry", "hold", "dead", "crashed", "cancelled", "skipped")
"""In the order in which the statement `attempt_tally` numbers them."""


class Place(NamedTuple):
    """How far attempts have been counted, and which attempt that is; no job before the first look."""

    seq: int = 0
    job: int = 0
    dispatch: int = 0
    ended_at: float = ALWAYS


Values = dict[tuple[str, ...], float]


class Durations:
    """A histogram: how many attempts took at most each of `DURATIONS`, or longer, and their sum."""

    def __init__(self) -> None:
        self.counts = [0] * (len(DURATIONS) + 1)
        self.sum = 0.0


class StoreReadings:
    """Reads one store; `read` brings `values` and `durations` up to date. One thread at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._codes, self._lanes, self._breakers = Labels(CODES_MAX), Labels(LANES_MAX), Labels(BREAKERS_MAX)
        self._names: dict[int, tuple[str, ...]] = {}
        self._totals: dict[str, Counter[tuple[str, ...]]] = {
            metric.name: Counter() for metric in FROM_STORE if metric.kind == "counter"
        }
        self._place = self._newest()
        self._line = self._manual_retries(0)[1]
        self._replayed_before = self._replayed()
        self.durations: dict[tuple[str, ...], Durations] = {}
        """By lane."""

    def read(self) -> dict[str, Values]:
        """Return the present value of every metric that comes from the store, but for the histogram."""
        with self._lock:
            # First: every lane of an attempt that is there by now will be found.
            newest = self._newest()
            gauges = self._gauges()
            self._count_attempts(newest)
            retried, self._line = self._manual_retries(self._line)
            self._totals["manual_retry_total"][()] += retried
            self._totals["redrive_replayed_total"][()] = self._replayed() - self._replayed_before
            counters = {name: cast("Values", dict(total)) for name, total in self._totals.items()}
            return {**counters, **gauges, "redrive_store_up": {(): 1.0}}

    def _gauges(self) -> dict[str, Values]:
        queued, active, states = Values(), Values(), Values()
        for lane in self._store.query(worker_sql.lanes()):
            names = self._names[lane.id] = self._lanes.of(lane.pipeline, lane.stage)
            queued[names] = queued.get(names, 0.0) + lane.queued
            active[names] = active.get(names, 0.0) + lane.processing
        for breaker in breakers(self._store):
            (name,) = self._breakers.of(breaker.name)
            for phase in Phase:
                is_here = float(phase == breaker.phase)
                states[name, str(phase)] = max(states.get((name, str(phase)), 0.0), is_here)
        return {"queue_depth": queued, "jobs_active": active, "redrive_breaker_state": states}

    def _newest(self) -> Place:
        rows = self._store.query(report_sql.newest_attempt())
        return Place(*rows[0]) if rows else Place()

    def _manual_retries(self, since: int) -> tuple[int, int]:
        return self._store.query(report_sql.retries_by_hand(after=since))[0]

    def _replayed(self) -> int:
        return self._store.query(report_sql.released_letters())[0]

    def _count_attempts(self, newest: Place) -> None:
        place = self._place
        first, after = place.seq, ALWAYS
        if place.job and not self._store.query(
            report_sql.is_attempt(seq=place.seq, job=place.job, dispatch=place.dispatch)
        ):
            # The last one was pruned, and its number may have been given again: what ended later is new.
            first, after = 0, place.ended_at
        while first < newest.seq:
            last = min(first + STEP, newest.seq)
            tallies = self._store.query(
                report_sql.attempt_tally(after=first, last=last, since=after, limits=DURATIONS)
            )
            failures = self._store.query(report_sql.failure_tally(after=first, last=last, since=after))
            for tally in tallies:
                self._add(tally)
            for lane, outcome, code, count in failures:
                self._add_failures(lane, outcome, code or OTHER, count)
            first = last
            # What was counted must not be counted again if the store does not answer the next question.
            self._place = Place(last, ended_at=place.ended_at)
        if newest.seq:
            self._place = newest._replace(ended_at=max(newest.ended_at, place.ended_at))

    def _add(self, tally: report_sql.AttemptCount) -> None:
        names, count = self._names.get(tally.lane_id, (OTHER, OTHER)), tally.attempts
        outcome = OUTCOMES[tally.outcome]
        self._totals["redrive_attempts_total"][*names, outcome] += count
        if outcome == "hold":
            self._totals["redrive_holds_total"][names] += count
        durations = self.durations.setdefault(names, Durations())
        durations.counts[tally.width] += count
        durations.sum += tally.seconds

    def _add_failures(self, lane: int, outcome: str, code: str, count: int) -> None:
        names, coded = self._names.get(lane, (OTHER, OTHER)), self._codes.of(code)
        if outcome == "retry":
            self._totals["redrive_retries_total"][*names, *coded] += count
        else:
            self._totals["redrive_dead_letters_total"][names] += count
            self._totals["jobs_failed_total"][coded] += count
