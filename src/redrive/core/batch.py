# SPDX-License-Identifier: Apache-2.0
"""Batches: one call of a stage for many jobs.

Only what a batch is, and what follows from it alone: which evidence a call gives, and how one is halved. Gathering jobs and calling
the function is the work of `engine.worker.batches`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, TypeVar

from redrive.core.arguments import one_of, seconds, whole
from redrive.core.breaker import Evidence

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """How many jobs share one call of a stage, and how long the first of them waits for the others.

    A call starts when `size` jobs are there, or when the first of them has waited for `wait` seconds; 0 takes what was claimed
    together. When the function raises, `on_error="fail"` makes it the failure of each job, by its own policy; with `"split"` a call
    whose failure would give up any job is halved and made again, until the job that causes it is alone.
    """

    size: int
    wait: timedelta | float = 0.05
    on_error: Literal["fail", "split"] = "fail"
    limit_by: Literal["items", "calls"] = "items"
    """What counts against the limits of the stage, unless a limit has a cost of its own."""

    def __post_init__(self) -> None:
        whole("Batch.size", self.size, minimum=1, fix="Batch(size=64), for example.")
        object.__setattr__(self, "wait", seconds("Batch.wait", self.wait))
        one_of("Batch.on_error", self.on_error, ("fail", "split"))
        one_of("Batch.limit_by", self.limit_by, ("items", "calls"))

    @property
    def items_per_count(self) -> int:
        """How many jobs of a full call count as one against a limit."""
        return self.size if self.limit_by == "calls" else 1


def halves(items: Sequence[T]) -> tuple[list[T], list[T]]:
    """Return the first and the second half of at least two items; the first is larger by one if they are odd."""
    middle = (len(items) + 1) // 2
    return list(items[:middle]), list(items[middle:])


def evidence_of_call(found: Iterable[Evidence]) -> Evidence:
    """Return what one call proves: a dependency that served any item is alive, and one that served none may be down."""
    kinds = set(found)
    return next((each for each in (Evidence.ALIVE, Evidence.DOWN) if each in kinds), Evidence.NOTHING)
