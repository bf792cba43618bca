# SPDX-License-Identifier: Apache-2.0
"""What another policy would have done with the attempts on record.

Only what happened is known. A policy that gives up earlier is known to make dead letters; one that tries more often needs attempts
that never happened, and those are counted as unknown, not guessed. Delays are those of the backoff at its mean draw.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from redrive.core.decide import DeadLetter, History, Reason, Recorded, RetryAt, decide
from redrive.core.decision_text import decode_decision
from redrive.core.failure import Failure
from redrive.core.policy import RetryPolicy
from redrive.core.taxonomy import BUG_UNKNOWN, CODES
from redrive.errors import UnknownNameError
from redrive.store.protocol import Store
from redrive.store.statements import reports as report_sql
from redrive.store.statements.reports import StageAttempt

MEAN_DRAW: Final = 0.5


@dataclass(slots=True, kw_only=True)
class HistoryReport:
    """The record, and what another policy would have made of it; `stages` counts a job once for each of its stages and rounds."""

    stages: int = 0
    retries: int = 0
    delay: float = 0.0
    dead: int = 0
    would_retries: int = 0
    would_delay: float = 0.0
    would_dead: int = 0
    would_succeed: int = 0
    unknown: int = 0
    """Stages that ended dead or are open, and that the other policy would have tried again: their outcome is unknown."""
    notes: tuple[str, ...] = (
        "unknown: the other policy would have made an attempt that never happened",
        "an attempt at another time may end differently; only those on record are counted",
        "delays are the backoff at its mean draw, or what the dependency asked for",
    )


def replay_history(
    store: Store, policy: RetryPolicy, *, pipeline: str | None = None, stage: str | None = None
) -> HistoryReport:
    """Read the attempts of a store, and apply another policy to them."""
    if pipeline is not None and not store.query(report_sql.pipeline_lanes(pipeline=pipeline)):
        raise UnknownNameError(
            field="pipeline",
            value=pipeline,
            rule="is not known here",
            fix="redrive pipeline list names them.",
        )
    rows = store.query(report_sql.attempts_of_stages(pipeline=pipeline, stage=stage))
    report = HistoryReport()
    for _, group in groupby(rows, key=lambda row: row[:3]):
        _add(report, policy, [*group])
    return report


def _add(report: HistoryReport, policy: RetryPolicy, attempts: Sequence[StageAttempt]) -> None:
    """Add one stage of one job in one round."""
    report.stages += 1
    report.retries += sum(each.outcome == "retry" for each in attempts)
    report.dead += attempts[-1].outcome == "dead"
    decisions = [decode_decision(each.decision) for each in attempts]
    report.delay += sum(each.delay for each in decisions if isinstance(each, RetryAt))
    failures: Counter[str] = Counter()
    for number, (each, decision) in enumerate(zip(attempts, decisions, strict=True), start=1):
        if each.outcome not in {"retry", "dead"}:
            report.would_succeed += each.outcome == "ok"
            return
        failure = _failure_of(each, decision)
        history = History(attempt=number, failures_by_code=failures)
        would = decide(policy, failure, history, 0.0, MEAN_DRAW)
        if not isinstance(would, RetryAt):
            report.would_dead += 1
            return
        failures[failure.code] += 1
        report.would_retries += 1
        report.would_delay += would.delay
    report.unknown += 1


def _failure_of(attempt: StageAttempt, decision: Recorded | None) -> Failure:
    name = attempt.code or BUG_UNKNOWN.name
    code = CODES.get(name, BUG_UNKNOWN)
    is_retried = isinstance(decision, RetryAt)
    is_spent = isinstance(decision, DeadLetter) and decision.reason in {
        Reason.EXHAUSTED,
        Reason.CODE_EXHAUSTED,
    }
    return Failure(
        code=name,
        category=code.category,
        retryable=is_retried or is_spent or (name in CODES and code.retryable == "yes"),
        severity=code.severity,
        message="",
        exception="",
        rule="history",
        canonical=code.name,
        http_status=attempt.http_status,
        retry_after=decision.delay
        if isinstance(decision, RetryAt) and decision.delay_from == "dependency"
        else None,
    )


def rows_of(report: HistoryReport) -> Iterable[dict[str, object]]:
    """Return the report as two rows: as it was, and as it would have been."""
    yield {
        "policy": "as recorded",
        "retries": report.retries,
        "delay": report.delay,
        "dead": report.dead,
        "unknown": 0,
    }
    yield {
        "policy": "the other",
        "retries": report.would_retries,
        "delay": report.would_delay,
        "dead": report.would_dead,
        "unknown": report.unknown,
    }
