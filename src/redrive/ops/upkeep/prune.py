# SPDX-License-Identifier: Apache-2.0
"""Pruning: jobs that ended long enough ago go, with their attempts, values and letters, a thousand per transaction.

Everything is kept unless a state is named with its age. Failed jobs, and so dead letters, go only when that is asked for by name.
So do jobs that a hook or a sink still has to be told about: without them there would be nothing left to tell. What was pruned stays
counted, by state and in its run.
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
from redrive.store.protocol import Step, Store, listed

STEP: Final = 1_000
"""Jobs per transaction."""
WINDOW: Final = 5_000
"""Jobs looked at per read."""
_PARTS: Final = ("prune_values", "prune_edits", "prune_letters", "prune_attempts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long after its end a job is kept, by state; None keeps it for ever."""

    complete: timedelta | float | None = None
    cancelled: timedelta | float | None = None
    failed: timedelta | float | None = None

    def cutoffs(self, now: float) -> dict[str, float]:
        """Return, for each state that is pruned, the instant before which a job must have ended."""
        ages = {"complete": self.complete, "cancelled": self.cancelled, "failed": self.failed}
        return {
            state: now - seconds(f"Retention.{state}", age) for state, age in ages.items() if age is not None
        }

    def __str__(self) -> str:
        """Say it as the operator log keeps it."""
        ages = {"complete": self.complete, "cancelled": self.cancelled, "failed": self.failed}
        return ", ".join(
            f"{state} > {seconds(state, age):g} s" for state, age in ages.items() if age is not None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prunable:
    """What pruning would do now."""

    jobs: Mapping[str, int]
    """How many jobs would go, by state."""
    untold: int
    """How many more have ended as long ago, and stay because a hook or a sink was not told of them yet."""


def prunable(store: Store, retention: Retention, *, with_untold: bool = False) -> Prunable:
    """Count what `prune` would delete now; changes nothing."""
    cutoffs = _checked(retention)
    counted: Counter[str] = Counter(dict.fromkeys(cutoffs, 0))
    untold = 0
    for window in _windows(store, cutoffs):
        for state, jobs in window.items():
            kept = 0 if with_untold else sum(is_untold for _, is_untold in jobs)
            counted[state] += len(jobs) - kept
            untold += kept
    return Prunable(jobs=dict(counted), untold=untold)


def prune(
    store: Store,
    retention: Retention,
    by: Actor,
    *,
    with_untold: bool = False,
    on_step: Callable[[int], None] | None = None,
) -> dict[str, int]:
    """Delete what has ended long enough ago; return how many jobs of each state that were.

    Jobs that a hook or a sink was not told of yet stay; with `with_untold` they go too, and nobody will be told. Each step is a
    transaction of its own and looks again at what it deletes: stopping in the middle leaves whole jobs behind, and a job that
    somebody brought back meanwhile stays. `on_step` is told how many jobs each step deleted.
    """
    cutoffs = _checked(retention)
    deleted: Counter[str] = Counter(dict.fromkeys(cutoffs, 0))
    parts = (*_PARTS, "prune_notices") if with_untold else _PARTS
    log: tuple[Step, ...] = (
        by.log("prune", f"jobs {retention}{' with untold ones' if with_untold else ''}"),
    )
    for window in _windows(store, cutoffs):
        for state, jobs in window.items():
            # One without a notice gets none before it has run, and so ended, anew: then it is too young to go.
            ids = [job for job, is_untold in jobs if with_untold or not is_untold]
            for start in range(0, len(ids), STEP):
                which = (listed(ids[start : start + STEP]), state, cutoffs[state])
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
            rule="needs to know what to delete",
            fix="Name a state and an age: complete after 30 days, for example.",
        )
    return cutoffs


def _windows(store: Store, cutoffs: dict[str, float]) -> Iterator[dict[str, list[tuple[int, bool]]]]:
    """Walk over all jobs by id, some thousands per read, and yield those that are old enough, by state: id, and if it is untold."""
    newest = max(cutoffs.values())
    last = 0
    while rows := store.query("prune_window", last, WINDOW):
        found: dict[str, list[tuple[int, bool]]] = {}
        for job, status, finished_at, _, is_untold in rows:
            cutoff = cutoffs.get(str(status))
            if cutoff is not None and cast("float", finished_at) < cutoff:
                found.setdefault(str(status), []).append((cast("int", job), bool(is_untold)))
        yield found
        last = cast("int", rows[-1][0])
        # No job ends before it was made: once all are younger than every limit, nothing older follows.
        if all(cast("float", created_at) >= newest for _, _, _, created_at, _ in rows):
            return
