# SPDX-License-Identifier: Apache-2.0
"""Retention: how long what has ended is kept, and the part of a worker that deletes it at the ticks of a schedule.

Everything is kept unless a kind is given an age: jobs by their state, failed ones with their dead letters, and runs. One worker at
a time deletes for a schedule, under a lease in its row; if that worker dies, another one continues. A step is one transaction of at
most a thousand jobs, or one run, and between two of them the store serves everybody else.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Final, NamedTuple, cast

import msgspec

from redrive.core.arguments import seconds
from redrive.engine.clock import Clock
from redrive.engine.outage import Outage
from redrive.engine.schedules import next_tick
from redrive.engine.worker.threads import AskStore
from redrive.errors import ConfigurationError, StoreError
from redrive.redaction.process import redact
from redrive.store.protocol import Store
from redrive.store.records import Row, Step, json_list

logger = logging.getLogger("redrive.retention")

STEP: Final = 1_000
"""Jobs per transaction."""
WINDOW: Final = 5_000
"""Jobs per read."""
LOOK_SECONDS: Final = 5.0
DRIVE_SECONDS: Final = 30.0
"""How long a worker that no longer renews its lease keeps a schedule to itself."""
_PARTS: Final = ("prune_values", "prune_edits", "prune_letters", "prune_attempts")
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
    parts = (*_PARTS, "prune_notices") if with_undelivered else _PARTS
    for window in job_windows(store, cutoffs):
        for state, jobs in window.items():
            # A job without a message gets none before it has run and ended again, and is then too young.
            ids = [job for job, is_undelivered in jobs if with_undelivered or not is_undelivered]
            for start in range(0, len(ids), STEP):
                which = (json_list(ids[start : start + STEP]), state, cutoffs[state])
                steps = (*(Step(part, which) for part in parts), Step("prune_jobs", which))
                gone = cast("list[list[object]]", store.apply(*steps, *log))[len(parts)]
                log = ()
                yield state, len(gone)
    if RUNS in cutoffs:
        for (run,) in store.query("prunable_runs", cutoffs[RUNS]):
            pruned = store.apply(
                Step("prune_run", (run, cutoffs[RUNS]), rows=1),
                Step("keep_run_tallies", (run,)),
                Step("prune_run_tallies", (run,)),
                Step("leave_run", (run,)),
                Step("leave_run_letters", (run,)),
            )
            yield RUNS, int(pruned is not None)


def job_windows(store: Store, cutoffs: Mapping[str, float]) -> Iterator[dict[str, list[tuple[int, bool]]]]:
    """Read all jobs by id and yield those that are old enough, by state: the id, and whether it has undelivered messages."""
    newest = max((cutoff for kind, cutoff in cutoffs.items() if kind != RUNS), default=None)
    last = 0
    while newest is not None and (rows := store.query("prune_window", last, WINDOW)):
        found: dict[str, list[tuple[int, bool]]] = {}
        for job, status, finished_at, _, is_undelivered in rows:
            cutoff = cutoffs.get(str(status))
            if cutoff is not None and cast("float", finished_at) < cutoff:
                found.setdefault(str(status), []).append((cast("int", job), bool(is_undelivered)))
        yield found
        last = cast("int", rows[-1][0])
        # No job ends before it was created: once all are younger than every limit, nothing older follows.
        if all(cast("float", created_at) >= newest for _, _, _, created_at, _ in rows):
            return


class _Due(NamedTuple):
    """A schedule whose tick has come: a row of `due_retentions`."""

    name: str
    ages: bytes
    cron: str
    zone: str
    due_at: float


class RetentionDriver:
    """Deletes what the schedules for it name, in a worker."""

    def __init__(self, store: Store, clock: Clock, *, name: Callable[[], str], ask_store: AskStore) -> None:
        self._store = store
        self._clock = clock
        self._name = name
        self._ask_store = ask_store

    async def run(self) -> None:
        """Delete what is due, until cancelled."""
        outage = Outage(logger)
        while True:
            try:
                await self.prune_due()
                outage.answered()
            except StoreError as error:
                outage.failed("pruning waits for the store: %s", error)
            await self._clock.asleep(LOOK_SECONDS)

    async def prune_due(self) -> int:
        """Prune for every schedule that is due and that no other worker has taken; return how much was deleted."""
        rows = await self._ask(lambda: self._store.query("due_retentions", self._clock.wall()))
        total = 0
        for row in cast("list[Row]", rows):
            due = _Due(*cast("tuple[str, bytes, str, str, float]", row))
            if await self._take(due):
                total += await self._prune(due)
        return total

    async def _take(self, due: _Due) -> bool:
        """Take, or keep, the lease on a schedule."""
        now = self._clock.wall()
        lease = (self._name(), now + DRIVE_SECONDS, due.name, due.due_at, now)
        taken = await self._ask(lambda: self._store.apply(Step("drive_retention", lease, rows=1)))
        return taken is not None

    async def _prune(self, due: _Due) -> int:
        now = self._clock.wall()
        ages = msgspec.json.decode(due.ages, type=dict[str, float])
        steps = prune_steps(self._store, {kind: now - age for kind, age in ages.items()})
        deleted = Counter(dict.fromkeys(ages, 0))
        renew_at = now + DRIVE_SECONDS / 2
        while (
            step := cast("tuple[str, int] | None", await self._ask(lambda: next(steps, None)))
        ) is not None:
            deleted[step[0]] += step[1]
            if self._clock.wall() >= renew_at:
                if not await self._take(due):
                    return deleted.total()
                renew_at = self._clock.wall() + DRIVE_SECONDS / 2
        await self._ask(lambda: self._store.apply(*self._ended(due, deleted)))
        logger.info("schedule %s pruned: %s", due.name, _text(deleted))
        return deleted.total()

    def _ended(self, due: _Due, deleted: Mapping[str, int]) -> list[Step]:
        """Return the steps that end a tick, with its line of the operator log."""
        now, counts = self._clock.wall(), msgspec.json.encode(deleted).decode()
        following = next_tick(due.cron, due.zone, now)
        change = msgspec.json.encode({"after": {"deleted": deleted}}).decode()
        line = (now, redact(self._name()), "prune", f"schedule {due.name}", _text(deleted), None, change)
        end = Step("end_retention", (following, due.due_at, counts, due.name, self._name()), rows=1)
        return [end, Step("log_letters", line)]

    async def _ask(self, question: Callable[[], object]) -> object:
        return await self._ask_store(question)


def _text(deleted: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in deleted.items())
