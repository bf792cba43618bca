# SPDX-License-Identifier: Apache-2.0
"""Deletes jobs that ended long enough ago, with their attempts, values and letters, a thousand per transaction.

Everything is kept unless a state is named with an age; that includes failed jobs, and so dead letters. Jobs with messages that
were not delivered to a hook or a sink are kept unless they are named too: the message is built from the job. Pruned jobs stay
counted, by state and in their run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, cast

from redrive.core.arguments import seconds
from redrive.engine.runtime import CURRENT
from redrive.errors import ConfigurationError
from redrive.ops.audit import Actor
from redrive.store.protocol import Store
from redrive.store.records import Step, json_list

STEP: Final = 1_000
"""Jobs per transaction."""
WINDOW: Final = 5_000
"""Jobs per read."""
_PARTS: Final = ("prune_values", "prune_edits", "prune_letters", "prune_attempts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long after its end a job is kept, by state; None keeps it forever."""

    complete: timedelta | float | None = None
    cancelled: timedelta | float | None = None
    skipped: timedelta | float | None = None
    failed: timedelta | float | None = None

    def cutoffs(self, now: float) -> dict[str, float]:
        """Return, for each state to prune, the instant before which a job must have ended."""
        return {
            state: now - seconds(f"Retention.{state}", age) for state, age in self._ages() if age is not None
        }

    def __str__(self) -> str:
        """Return the text of the operator log."""
        return ", ".join(
            f"{state} > {seconds(state, age):g} s" for state, age in self._ages() if age is not None
        )

    def _ages(self) -> list[tuple[str, timedelta | float | None]]:
        return [(state, getattr(self, state)) for state in ("complete", "cancelled", "skipped", "failed")]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunePreview:
    """What pruning would do now."""

    jobs: Mapping[str, int]
    """Jobs that would be deleted, by state."""
    undelivered: int
    """Jobs as old that are kept, because a message to a hook or a sink was not delivered yet."""


def prunable(store: Store, retention: Retention, *, with_undelivered: bool = False) -> PrunePreview:
    """Count what `prune` would delete now; changes nothing."""
    cutoffs = _checked(retention)
    counted: Counter[str] = Counter(dict.fromkeys(cutoffs, 0))
    undelivered = 0
    for window in _windows(store, cutoffs):
        for state, jobs in window.items():
            kept = 0 if with_undelivered else sum(is_undelivered for _, is_undelivered in jobs)
            counted[state] += len(jobs) - kept
            undelivered += kept
    return PrunePreview(jobs=dict(counted), undelivered=undelivered)


def prune(
    store: Store,
    retention: Retention,
    by: Actor,
    *,
    with_undelivered: bool = False,
    on_step: Callable[[int], None] | None = None,
) -> dict[str, int]:
    """Delete jobs that ended long enough ago; return how many of each state.

    Jobs with undelivered messages are kept; with `with_undelivered` they are deleted with their messages. Each step is its own
    transaction and checks again what it deletes: an interrupted prune leaves whole jobs, and a job that was replayed meanwhile
    stays. `on_step` is called with the number of jobs that each step deleted.
    """
    cutoffs = _checked(retention)
    deleted: Counter[str] = Counter(dict.fromkeys(cutoffs, 0))
    parts = (*_PARTS, "prune_notices") if with_undelivered else _PARTS
    log: tuple[Step, ...] = (
        by.log("prune", f"jobs {retention}{' with undelivered ones' if with_undelivered else ''}"),
    )
    for window in _windows(store, cutoffs):
        for state, jobs in window.items():
            # A job without a message gets none before it has run and ended again, and is then too young.
            ids = [job for job, is_undelivered in jobs if with_undelivered or not is_undelivered]
            for start in range(0, len(ids), STEP):
                which = (json_list(ids[start : start + STEP]), state, cutoffs[state])
                steps = (*(Step(part, which) for part in parts), Step("prune_jobs", which))
                gone = cast("list[list[object]]", store.apply(*steps, *log))[len(parts)]
                deleted[state] += len(gone)
                log = ()
                if on_step is not None:
                    on_step(len(gone))
    return dict(deleted)


def _checked(retention: Retention) -> dict[str, float]:
    cutoffs = retention.cutoffs(CURRENT.get().clock.wall())
    if not cutoffs:
        raise ConfigurationError(
            field="prune",
            value=None,
            rule="needs a state and an age",
            fix="For example --complete 30d.",
        )
    return cutoffs


def _windows(store: Store, cutoffs: dict[str, float]) -> Iterator[dict[str, list[tuple[int, bool]]]]:
    """Read all jobs by id and yield those that are old enough, by state: the id, and whether it has undelivered messages."""
    newest = max(cutoffs.values())
    last = 0
    while rows := store.query("prune_window", last, WINDOW):
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
