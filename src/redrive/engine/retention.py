# SPDX-License-Identifier: Apache-2.0
"""Retention: how long what has ended is kept, and the part of a worker that deletes it at the ticks of a schedule.

Everything is kept unless a kind is given an age: jobs by their state, failed ones with their dead letters, and runs. One worker at
a time deletes for a schedule, under a lease in its row; if that worker dies, another one continues. A step is one transaction of at
most a thousand jobs, or one run, and between two of them the store serves other callers.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Final

import msgspec

from redrive.core.arguments import seconds
from redrive.engine.clock import Clock
from redrive.engine.outage import repeat
from redrive.engine.schedules import next_tick
from redrive.engine.worker.threads import AskStore
from redrive.errors import ConfigurationError
from redrive.redaction.process import redact
from redrive.store.protocol import Store
from redrive.store.records import Step
from redrive.store.statements import operations as operation_sql
from redrive.store.statements import upkeep as upkeep_sql
from redrive.store.steps import lease_time

logger = logging.getLogger("redrive.retention")

STEP: Final = 1_000
"""Jobs per transaction."""
WINDOW: Final = 5_000
"""Jobs per read."""
LOOK_SECONDS: Final = 5.0
TEND_SECONDS: Final = 3_600.0
"""How often a worker looks after the partitions and counters of a server, besides after pruning."""
DRIVE_SECONDS: Final = 30.0
"""How long a worker that no longer renews its lease keeps a schedule to itself."""
_PARTS: Final = (
    upkeep_sql.prune_values,
    upkeep_sql.prune_edits,
    upkeep_sql.prune_letters,
    upkeep_sql.prune_attempts,
)
_FOLDS: Final = (upkeep_sql.fold_tallies, upkeep_sql.fold_letter_tallies, upkeep_sql.fold_letter_trend)
"""What adds up the counters of connections that have gone, on a server."""
RUNS: Final = "runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long after its end something is kept, by kind: jobs by their state, and runs; None keeps it forever."""

    complete: timedelta | float | None = None
    cancelled: timedelta | float | None = None
    skipped: timedelta | float | None = None
    failed: timedelta | float | None = None
    """Failed jobs, with their dead letters."""
    runs: timedelta | float | None = None
    """Runs; what is left of their jobs stays, without its run."""

    def ages(self) -> dict[str, float]:
        """Return the age of each kind that is pruned, in seconds; raises ConfigurationError when there is none."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        ages = {kind: seconds(f"Retention.{kind}", age) for kind, age in given.items() if age is not None}
        if not ages:
            raise ConfigurationError(
                field="prune",
                value=None,
                rule="needs a state and an age",
                fix="For example --complete 30d.",
            )
        return ages

    def cutoffs(self, now: float) -> dict[str, float]:
        """Return, for each kind to prune, the instant before which it must have ended."""
        return {kind: now - age for kind, age in self.ages().items()}

    def __str__(self) -> str:
        """Return the text of the operator log."""
        return ", ".join(f"{kind} > {age:g} s" for kind, age in self.ages().items())


def prune_steps(
    store: Store, cutoffs: Mapping[str, float], *, with_undelivered: bool = False, log: tuple[Step, ...] = ()
) -> Iterator[tuple[str, int]]:
    """Delete what ended long enough ago, step by step; yield the kind and the number of each step.

    Each step checks again what it deletes. `log` is applied with the first step that deletes jobs.
    """
    parts = (*_PARTS, upkeep_sql.prune_notices) if with_undelivered else _PARTS
    for window in job_windows(store, cutoffs):
        for state, jobs in window.items():
            # A job without a message gets none before it has run and ended again, and is then too young.
            ids = [job for job, is_undelivered in jobs if with_undelivered or not is_undelivered]
            for start in range(0, len(ids), STEP):
                some, before = ids[start : start + STEP], cutoffs[state]
                steps = [part(ids=some, status=state, before=before) for part in parts]
                prune = upkeep_sql.prune_jobs(ids=some, status=state, before=before)
                pruned = store.apply(*steps, prune, *log) or []
                log = ()
                yield state, len(pruned[len(parts)])
    if RUNS in cutoffs:
        for run in store.query(upkeep_sql.prunable_runs(before=cutoffs[RUNS])):
            gone = store.apply(
                upkeep_sql.prune_run(run=run, before=cutoffs[RUNS]).touching(1),
                upkeep_sql.keep_run_tallies(run=run),
                upkeep_sql.prune_run_tallies(run=run),
                upkeep_sql.leave_run(run=run),
                upkeep_sql.leave_run_letters(run=run),
            )
            yield RUNS, int(gone is not None)


def job_windows(store: Store, cutoffs: Mapping[str, float]) -> Iterator[dict[str, list[tuple[int, bool]]]]:
    """Read all jobs by id and yield those that are old enough, by state: the id, and whether it has undelivered messages."""
    newest = max((cutoff for kind, cutoff in cutoffs.items() if kind != RUNS), default=None)
    last = 0
    while newest is not None and (rows := store.query(upkeep_sql.prune_window(after=last, limit=WINDOW))):
        found: dict[str, list[tuple[int, bool]]] = {}
        for job in rows:
            cutoff = cutoffs.get(job.status)
            if cutoff is not None and job.finished_at is not None and job.finished_at < cutoff:
                found.setdefault(job.status, []).append((job.id, job.is_noticed))
        yield found
        last = rows[-1].id
        # No job ends before it was created: once all are younger than every limit, nothing older follows.
        if all(job.created_at >= newest for job in rows):
            return


class RetentionDriver:
    """Deletes what the schedules for it name, in a worker."""

    def __init__(self, store: Store, clock: Clock, *, name: Callable[[], str], ask_store: AskStore) -> None:
        self._store = store
        self._clock = clock
        self._name = name
        self._ask_store = ask_store
        self._tend_at = 0.0

    async def run(self) -> None:
        """Delete what is due, until cancelled."""
        failure = "pruning: store unavailable"
        await repeat(self._look, self._clock, logger, failure, every=LOOK_SECONDS)

    async def _look(self) -> float:
        if await self.prune_due() or self._clock.wall() >= self._tend_at:
            step = upkeep_sql.tend_attempts(now=self._clock.wall())
            await self._ask_store(lambda: self._store.apply(step))
            # Not in the transaction before, which locks tables.
            await self._ask_store(lambda: self._store.apply(*(fold() for fold in _FOLDS)))
            self._tend_at = self._clock.wall() + TEND_SECONDS
        return LOOK_SECONDS

    async def prune_due(self) -> int:
        """Prune for every schedule that is due and that no other worker has taken; return how much was deleted."""
        rows = await self._ask_store(
            lambda: self._store.query(upkeep_sql.due_retentions(now=self._clock.wall()))
        )
        total = 0
        for due in rows:
            if await self._take(due):
                total += await self._prune(due)
        return total

    async def _take(self, due: upkeep_sql.DueRetention) -> bool:
        """Take, or keep, the lease on a schedule."""

        def take() -> bool:
            now = lease_time(self._store, self._clock.wall())
            lease = upkeep_sql.drive_retention(
                driver=self._name(), until=now + DRIVE_SECONDS, name=due.name, due_at=due.next_at, now=now
            )
            return self._store.apply(lease.touching(1)) is not None

        return await self._ask_store(take)

    async def _prune(self, due: upkeep_sql.DueRetention) -> int:
        now = self._clock.wall()
        ages = msgspec.json.decode(due.ages, type=dict[str, float])
        steps = prune_steps(self._store, {kind: now - age for kind, age in ages.items()})
        deleted = Counter(dict.fromkeys(ages, 0))
        renew_at = now + DRIVE_SECONDS / 2
        while (step := await self._ask_store(lambda: next(steps, None))) is not None:
            deleted[step[0]] += step[1]
            if self._clock.wall() >= renew_at:
                if not await self._take(due):
                    return deleted.total()
                renew_at = self._clock.wall() + DRIVE_SECONDS / 2
        await self._ask_store(lambda: self._store.apply(*self._ended(due, deleted)))
        logger.info("schedule %s pruned: %s", due.name, _text(deleted))
        return deleted.total()

    def _ended(self, due: upkeep_sql.DueRetention, deleted: Mapping[str, int]) -> list[Step]:
        """Return the steps that end a tick, with its line of the operator log."""
        now, counts = self._clock.wall(), msgspec.json.encode(deleted).decode()
        following = next_tick(due.cron, due.zone, now)
        change = msgspec.json.encode({"after": {"deleted": deleted}}).decode()
        act = operation_sql.Act(now, redact(self._name()), "prune", "schedule", due.name, _text(deleted))
        end = upkeep_sql.end_retention(
            next_at=following, last_at=due.next_at, deleted=counts, name=due.name, driver=self._name()
        ).touching(1)
        return [end, operation_sql.log_letters(act=act, letters=None, change=change)]


def _text(deleted: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in deleted.items())
