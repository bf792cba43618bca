# SPDX-License-Identifier: Apache-2.0
"""Configure a breaker: when it opens, which failures count, how it closes again.

The state machine is in `core.breaker_state`; nothing here depends on time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Literal

from redrive.core.arguments import (
    NAME_MAX,
    TEXT_MAX,
    function,
    is_http_status,
    one_of,
    seconds,
    share,
    text,
    whole,
)
from redrive.core.failure import Category, Failure
from redrive.core.taxonomy import refuse_mistyped
from redrive.errors import ConfigurationError

Counts = Literal["reachability", "all"] | Collection[str | int | Category]


class Evidence(StrEnum):
    """What one call proves about the dependency behind a breaker."""

    ALIVE = "alive"
    DOWN = "down"
    NOTHING = "nothing"  # a mistake of our own, for instance


@dataclass(frozen=True, slots=True)
class Breaker:
    """When to stop calling a dependency, and how to start again.

    It opens after `consecutive` counting failures in a row, or when at least `failure_rate` of at least `min_calls` calls within
    `window` seconds failed. `mode="hold"` makes work wait; `mode="fail_fast"` refuses it at once. `counts` selects the failures
    that count: by default only those that show that the dependency is unreachable or cannot serve; a 4xx proves it alive. Guards
    share a breaker by sharing the object; the name identifies it in logs, errors and commands.
    """

    name: str
    _: KW_ONLY
    consecutive: int | None = None
    failure_rate: float | None = None
    window: timedelta | float = 60.0
    min_calls: int = 10
    open_for: timedelta | float = 30.0
    close_after: int = 1
    mode: Literal["hold", "fail_fast"] = "hold"
    probe: Callable[[], object] | None = None
    """Called instead of a real call, or of a job, while the breaker is half open; returning without an exception means alive. May
    be async."""
    counts: Counts = "reachability"
    probe_timeout: timedelta | float = 60.0
    ramp: timedelta | float = 10.0
    """Seconds after closing during which held work is released gradually; 0 releases all at once."""
    key: Callable[[Any], str | int | None] | None = None
    """A function of the job: every key it returns has a breaker of its own, and is held alone. For stages."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise ConfigurationError(
                field="Breaker.name",
                value=self.name,
                rule="must be a non-empty string",
                fix='Write Breaker("openai", ...).',
            )
        # A breaker of a key is stored by both, and together they have to fit into an index.
        longest = TEXT_MAX if self.key is None else NAME_MAX
        text("Breaker.name", self.name, longest=longest, fix='Write Breaker("openai", ...).')
        where = f"Breaker({self.name})"
        self._check_thresholds(where)
        for field, above in (("window", True), ("open_for", True), ("probe_timeout", True), ("ramp", False)):
            object.__setattr__(self, field, seconds(f"{where}.{field}", getattr(self, field), above=above))
        whole(f"{where}.close_after", self.close_after, minimum=1, fix="1 closes after the first good probe.")
        one_of(f"{where}.mode", self.mode, ("hold", "fail_fast"))
        function(f"{where}.probe", self.probe, fix="Pass a function without parameters.")
        function(f"{where}.key", self.key, fix="key=lambda job: job.owner, for example.")
        if self.key is not None and self.probe is not None:
            raise ConfigurationError(
                field=f"{where}.probe",
                value=self.probe,
                rule="cannot be given with key=: it does not know which key to ask about",
                fix="Leave one of them out; without probe=, a job of the key is the probe.",
            )
        object.__setattr__(self, "counts", _checked_counts(f"{where}.counts", self.counts))

    def evidence_of(self, failure: Failure) -> Evidence:
        """Return what this failure proves about the dependency."""
        if self._is_counted(failure):
            return Evidence.DOWN
        return Evidence.ALIVE if failure.proves_alive else Evidence.NOTHING

    def _is_counted(self, failure: Failure) -> bool:
        if isinstance(self.counts, frozenset):
            return not self.counts.isdisjoint(
                (failure.code, failure.canonical, failure.category, failure.http_status)
            )
        # A bug of ours is no evidence about the dependency.
        is_any = self.counts == "all" and failure.category is not Category.BUG
        return is_any or failure.is_reachability

    def _check_thresholds(self, where: str) -> None:
        if self.consecutive is None and self.failure_rate is None:
            raise ConfigurationError(
                field=where,
                value=None,
                rule="needs a threshold",
                fix="Give consecutive=5, or failure_rate=0.5 with window= and min_calls=.",
            )
        if self.consecutive is not None:
            whole(f"{where}.consecutive", self.consecutive, minimum=1, fix="5 is a common choice.")
        if self.failure_rate is not None:
            share(f"{where}.failure_rate", self.failure_rate, fix="0.5 opens when half of the calls fail.")
        fix = "A rate needs a minimum sample; 10 is common."
        whole(f"{where}.min_calls", self.min_calls, minimum=1, fix=fix)


def _checked_counts(field: str, counts: Counts) -> Counts:
    if isinstance(counts, str):
        if counts not in {"reachability", "all"}:
            raise ConfigurationError(
                field=field,
                value=counts,
                rule='must be "reachability", "all", or a set of codes, categories and HTTP statuses',
                fix=f"Write counts={{{counts!r}}} to count that code alone.",
            )
        return counts
    if not isinstance(counts, Collection) or not counts or not all(map(_is_countable, counts)):
        raise ConfigurationError(
            field=field,
            value=counts,
            rule="must hold codes, categories or HTTP statuses, at least one",
            fix='Write counts={"GW_5XX", "GW_TIMEOUT"}, for example.',
        )
    refuse_mistyped(field, counts)
    return frozenset(counts)


def _is_countable(entry: object) -> bool:
    return bool(entry) if isinstance(entry, str) else is_http_status(entry)
