# SPDX-License-Identifier: Apache-2.0
"""Errors that a guarded call adds; exceptions of the function itself pass through unchanged."""

from __future__ import annotations

from datetime import datetime

from redrive.errors.root import RedriveError


class BreakerOpenError(RedriveError):
    """A breaker refused the call, and the call was not made.

    `retry_at` is the aware UTC instant from which a call may be admitted, or None while an operator isolates the breaker.
    """

    code = "breaker-open"

    def __init__(self, *, breaker: str, retry_at: datetime | None, reason: str) -> None:
        self.breaker = breaker
        self.retry_at = retry_at
        self.reason = reason
        when = (
            f"try again at {retry_at.isoformat(timespec='seconds')}"
            if retry_at
            else "it stays isolated until an operator closes it"
        )
        super().__init__(
            f"breaker {breaker!r} refused the call: {reason}; {when}",
            hint=f"Check the dependency behind {breaker!r}.",
        )


class AttemptTimeoutError(RedriveError, TimeoutError):
    """One attempt ran longer than its `timeout` and was cancelled."""

    code = "attempt-timeout"

    def __init__(self, *, timeout: float) -> None:
        self.timeout = timeout
        super().__init__(
            f"the attempt took longer than its timeout of {timeout:g} s",
            hint="Raise timeout=, or find out why the dependency is slow.",
        )


class AttemptsSpentError(RedriveError):
    """A function asked for another run by a signal, but the policy allows no more; the signal is the cause."""

    code = "attempts-spent"

    def __init__(self, *, name: str, sentence: str) -> None:
        self.name = name
        self.sentence = sentence
        super().__init__(
            f"{name}: {sentence}",
            hint="Raise max_attempts= or snooze_max=, or find out what the function waits for.",
        )


class DeadlineExceededError(RedriveError, TimeoutError):
    """The total deadline over all attempts ended while an attempt was running."""

    code = "deadline"

    def __init__(self, *, deadline: float) -> None:
        self.deadline = deadline
        super().__init__(
            f"the call did not finish within its deadline of {deadline:g} s",
            hint="Raise deadline=, or lower timeout= so that more attempts fit in.",
        )
