# SPDX-License-Identifier: Apache-2.0
"""Pruning: jobs that ended long enough ago go, with their attempts, values and letters, a thousand per transaction.

Everything is kept unless a state is named with its age. Failed jobs, and so dead letters, go only when that is asked for by name.
What was pruned stays counted, by state and in its run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, cast

import msgspec

from redrive.core.checks import seconds
from redrive.engine.runtime import CURRENT
from redrive.errors import ConfigurationError
from redrive.ops.oversight import By
from redrive.store.protocol import Step, Store

STEP: Final = 1_000
"""Jobs per transaction."""
WINDOW: Final = 5_000
"""Jobs looked at per read."""
_PARTS: Final = ("prune_values", "prune_edits", "prune_notices", "prune_letters", "prune_attempts")


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


def prunable(store: Store, retention: Retention) -> dict[str, int]:
    """Count what `prune` would delete now, by state; changes nothing."""
    cutoffs = _checked(retention)
    counted: Counter[str] = Counter(dict.fromkeys(cutoffs, 0))
    for window in _windows(store, cutoffs):
        counted.update({state: len(ids) for state, ids in window.items()})
    return dict(counted)


def prune(
    store: Store, retention: Retention, by: By, *, on_step: Callable[[int], None] | None = None
) -> dict[str, int]:
    """Delete what has ended long enough ago; return how many jobs of each state that were.

    Each step is a transaction of its own and looks again at what it deletes: stopping in the middle leaves whole jobs behind, and
    a job that somebody brought back meanwhile stays. `on_step` is told how many jobs each step deleted.
    """
    cutoffs = _checked(retention)
    deleted: Counter[str] = Counter(dict.fromkeys(cutoffs, 0))
    log: tuple[Step, ...] = (by.log("prune", f"jobs {retention}"),)
    for window in _windows(store, cutoffs):
        for state, ids in window.items():
            for start in range(0, len(ids), STEP):
                which = (msgspec.json.encode(ids[start : start + STEP]).decode(), state, cutoffs[state])
                steps = (*(Step(part, which) for part in _PARTS), Step("prune_jobs", which))
                gone = cast("list[list[object]]", store.apply(*steps, *log))[len(_PARTS)]
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


def _windows(store: Store, cutoffs: dict[str, float]) -> Iterator[dict[str, list[int]]]:
    """Walk over all jobs by id, some thousands per read, and yield those that may go, by state."""
    newest = max(cutoffs.values())
    last = 0
    while rows := store.query("prune_window", last, WINDOW):
        found: dict[str, list[int]] = {}
        for job, status, finished_at, _ in rows:
            cutoff = cutoffs.get(str(status))
            if cutoff is not None and cast("float", finished_at) < cutoff:
                found.setdefault(str(status), []).append(cast("int", job))
        yield found
        last = cast("int", rows[-1][0])
        # No job ends before it was made: once all are younger than every limit, nothing older follows.
        if all(cast("float", created_at) >= newest for _, _, _, created_at in rows):
            return
