# SPDX-License-Identifier: Apache-2.0
"""The tally of a run, the rules for its status, and whether too much of it failed to continue.

    success rate = succeeded / (total - skipped)     a run without any such job has succeeded
    failure rate = dead / rated                     rated = succeeded + dead + cancelled

Skipped jobs are neither successes nor failures: both rates leave them out.
Pure: the driver of the run counts, and acts on the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, cast

from msgspec import Struct

from redrive.core.arguments import one_of, share, whole
from redrive.core.stop_reason import BudgetExceeded
from redrive.errors import ConfigurationError


class RunStatus(StrEnum):
    """The status of a run."""

    RUNNING = "running"
    COMPLETED = "completed"
    PARTIAL_SUCCESS = "partial_success"
    FAILED = "failed"
    ABORTED = "aborted"
    PAUSED = "paused"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The jobs of a run by outcome; always `total = succeeded + dead + cancelled + skipped + open`."""

    total: int = 0
    succeeded: int = 0
    dead: int = 0
    cancelled: int = 0
    skipped: int = 0

    def __post_init__(self) -> None:
        for name in ("total", "succeeded", "dead", "cancelled", "skipped"):
            whole(f"Tally.{name}", getattr(self, name), minimum=0, fix="Count from the store.")
        if self.open < 0:
            raise ConfigurationError(
                field="Tally.total",
                value=self.total,
                rule=f"must be at least the {self.finished} finished jobs",
                fix="Recount.",
            )

    def since(self, before: Tally | None) -> Tally:
        """Return what has ended since then; not less than nothing, because a replay may have taken an earlier failure back."""
        if before is None:
            return self
        ended = {
            name: max(0, getattr(self, name) - getattr(before, name))
            for name in ("succeeded", "dead", "cancelled", "skipped")
        }
        return Tally(total=sum(ended.values()) + self.open, **ended)

    @property
    def finished(self) -> int:
        """How many jobs have reached a final state."""
        return self.rated + self.skipped

    @property
    def rated(self) -> int:
        """How many of them count in the rates: all but the skipped ones."""
        return self.succeeded + self.dead + self.cancelled

    @property
    def open(self) -> int:
        """How many jobs are still queued or processing."""
        return self.total - self.finished


@dataclass(frozen=True, slots=True, kw_only=True)
class RunThresholds:
    """The success rates from which a run counts as completed, and as a partial success."""

    completed: float = 0.95
    partial_success: float = 0.50

    def __post_init__(self) -> None:
        share("RunThresholds.completed", self.completed, fix="0.95 is the default.")
        share("RunThresholds.partial_success", self.partial_success, fix="0.50 is the default.")
        if self.partial_success > self.completed:
            raise ConfigurationError(
                field="RunThresholds.partial_success",
                value=self.partial_success,
                rule=f"must not exceed completed ({self.completed:g})",
                fix="Lower it.",
            )

    @classmethod
    def of(cls, field: str, given: object) -> RunThresholds:
        """Convert an argument to thresholds: an instance, a mapping with one or both of the rates, or None for the defaults."""
        if given is None:
            return cls()
        if isinstance(given, RunThresholds):
            return given
        rates = _by_name(given)
        if rates is None or not rates.keys() <= {"completed", "partial_success"}:
            raise ConfigurationError(
                field=field,
                value=given,
                rule="must name the rates completed and partial_success, or one of them",
                fix=f'{field}={{"completed": 0.95, "partial_success": 0.50}} are the defaults.',
            )
        return cls(**cast("dict[str, float]", dict(rates)))

    def status_of(self, tally: Tally) -> RunStatus:
        """Return the status of a run that was not stopped; it is `running` while jobs are open."""
        if tally.open:
            return RunStatus.RUNNING
        rate = tally.succeeded / tally.rated if tally.rated else 1.0
        if rate >= self.completed:
            return RunStatus.COMPLETED
        return RunStatus.PARTIAL_SUCCESS if rate >= self.partial_success else RunStatus.FAILED


class FailureRule(Struct, frozen=True, tag_field="rule", tag="failure"):
    """Decides by kinds of failures instead of rates, whatever the share of successes.

    A failure that cannot heal, or the failure of all jobs, makes a run `failed`, at once and for good. If only some of them are out
    of attempts it is a partial success, otherwise completed.
    """

    def status_of(self, tally: Tally, *, has_permanent: bool) -> RunStatus:
        """Return the status of a run that has not failed before; `running` while jobs are open, unless one failed for good."""
        if has_permanent:
            return RunStatus.FAILED
        if tally.open:
            return RunStatus.RUNNING
        if not tally.dead:
            return RunStatus.COMPLETED
        return RunStatus.FAILED if tally.dead == tally.rated else RunStatus.PARTIAL_SUCCESS


def decide_status(
    rule: RunThresholds | FailureRule, before: RunStatus, tally: Tally, *, has_permanent: bool
) -> RunStatus:
    """Return the status of a run by its rule; it is the one before while that stays: stopped, failed for good, or jobs are open."""
    if before in {RunStatus.ABORTED, RunStatus.CANCELLED, RunStatus.PAUSED}:
        return before
    if isinstance(rule, FailureRule):
        if before is RunStatus.FAILED:
            return before
        found = rule.status_of(tally, has_permanent=has_permanent)
    else:
        found = rule.status_of(tally)
    return before if found is RunStatus.RUNNING else found


def _by_name(given: object) -> Mapping[object, object] | None:
    return cast("Mapping[object, object]", given) if isinstance(given, Mapping) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureBudget:
    """The share of failed jobs at which a run stops itself.

    The rate is cumulative. It is checked each time another `check_every` jobs have finished, but not before `min_finished` jobs
    that were not skipped have finished (default: `check_every`). A `max_rate` of 0 stops the run at the first failure.
    """

    max_rate: float = 0.10
    check_every: int = 1000
    min_finished: int | None = None
    on_exceeded: Literal["abort", "pause"] = "abort"

    def __post_init__(self) -> None:
        share(
            "FailureBudget.max_rate",
            self.max_rate,
            fix="0.10 stops a run of which more than a tenth failed.",
            least=0.0,
        )
        whole("FailureBudget.check_every", self.check_every, minimum=1, fix="1000 is the default.")
        if self.min_finished is not None:
            whole("FailureBudget.min_finished", self.min_finished, minimum=1, fix="A rate needs a sample.")
        one_of("FailureBudget.on_exceeded", self.on_exceeded, ("abort", "pause"))

    def is_due(self, finished_before: int, finished_now: int) -> bool:
        """Return whether another interval of `check_every` jobs was completed between the two counts."""
        return finished_now // self.check_every > finished_before // self.check_every

    def check(self, tally: Tally) -> BudgetExceeded | None:
        """Return why the run has to stop, or None if it may continue."""
        # Of jobs that count: skipped ones are no sample.
        if tally.rated < (self.min_finished or self.check_every):
            return None
        if tally.dead / tally.rated <= self.max_rate:
            return None
        return BudgetExceeded(dead=tally.dead, finished=tally.rated, max_rate=self.max_rate)
