# SPDX-License-Identifier: Apache-2.0
"""redrive's own errors, as a stage meets them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from redrive.engine.classifier import classify
from redrive.engine.clock import SystemClock
from redrive.engine.runtime import CURRENT, SYSTEM
from redrive.errors import (
    AttemptsSpentError,
    AttemptTimeoutError,
    BreakerOpenError,
    ConfigurationError,
    DeadlineExceededError,
    SchemaMismatchError,
    StoreUnavailableError,
    UnknownNameError,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class StandingClock(SystemClock):
    """A clock that always shows the same time; nothing here sleeps."""

    def wall(self) -> float:
        return NOW.timestamp()


@pytest.mark.parametrize(
    ("retry_at", "delay"),
    [
        (NOW + timedelta(seconds=90), 90.0),
        (NOW - timedelta(seconds=5), 0.0),
        (None, None),
        (datetime(2026, 1, 2, 3, 4, 5), None),  # noqa: DTZ001 - an instant without a zone tells nothing.
    ],
)
def test_an_open_breaker_heals_at_the_time_it_names(retry_at: datetime | None, delay: float | None) -> None:
    exc = BreakerOpenError(breaker="gateway", retry_at=retry_at, reason="half of the calls failed")

    token = CURRENT.set(replace(SYSTEM, clock=StandingClock()))
    failure = classify(exc)
    CURRENT.reset(token)

    assert (failure.code, failure.retryable, failure.retry_after) == ("BREAKER_OPEN", True, delay)


@pytest.mark.parametrize(
    ("exc", "code", "retryable"),
    [
        (AttemptTimeoutError(timeout=5), "TIMEOUT", True),
        (DeadlineExceededError(deadline=5), "TIMEOUT", True),
        (AttemptsSpentError(name="fetch", sentence="it asked again"), "STAGE_FAILED", False),
        (StoreUnavailableError(database="jobs.db", cause="locked"), "UPSTREAM_NOT_READY", True),
        (SchemaMismatchError(database="jobs.db", found=1, known=2), "CONFIG_INVALID", False),
        (UnknownNameError(field="pipeline", value="x", rule="is not known here", fix=""), "NOT_FOUND", False),
        (ConfigurationError(field="x", value=0, rule="must be 1", fix="Write 1."), "CONFIG_INVALID", False),
    ],
)
def test_our_own_errors_say_what_they_are(exc: BaseException, code: str, retryable: bool) -> None:
    assert (classify(exc).code, classify(exc).retryable) == (code, retryable)
