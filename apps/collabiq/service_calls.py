# SPDX-License-Identifier: Apache-2.0
"""Call a service outside of a job: the list of the mail, and the keys.

Such a call has the policy and the breaker of its service, as the stages have. The breaker is the one in the database, so a service
that is down is left alone by every process, and by the next command.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

from apps.collabiq.files import ErrorLog
from apps.collabiq.records import Operation
from apps.collabiq.retry_config import RetryConfig, Service, breaker_for
from redrive import Breaker, BreakerOpenError, CallEvent, Redrive, classify, guard
from redrive.core import breaker_state as step
from redrive.core.breaker import Evidence
from redrive.core.breaker_state import Admitted, BreakerState, Refused
from redrive.engine.runtime import CURRENT
from redrive.engine.worker.breakers import SharedBreakers

T = TypeVar("T")


class ServiceCall:
    """One service, called with retries and behind its breaker; each failure is recorded."""

    def __init__(self, rd: Redrive, log: ErrorLog, service: Service, operation: Operation) -> None:
        self._breaker = StoredBreaker(rd, breaker_for(service))
        self._log = log
        self._operation = operation
        self._last: Exception | None = None
        self.retries = 0
        """Retries of the last call."""

    def __call__(
        self,
        fn: Callable[[], T],
        config: RetryConfig,
        *,
        fallback: Callable[[Exception], T],
        records_retries: bool,
    ) -> T:
        """Call a function; return what `fallback` makes of the last error, unless that is a bug.

        `records_retries` also records the failures that are followed by a retry.
        """
        # Nobody waits for a breaker here: a person is waiting for the command.
        policy = replace(config.to_policy(), give_up_on=[BreakerOpenError])
        on_retry = self._record if records_retries else None
        guarded = guard(
            self._attempt, retry=policy, on_retry=on_retry, on_dead=self._record, fallback=fallback
        )
        return guarded(fn)

    def _attempt(self, fn: Callable[[], T]) -> T:
        try:
            with self._breaker.admitted():
                return fn()
        except Exception as error:
            self._last = error
            raise

    def _record(self, event: CallEvent) -> None:
        self.retries = event.attempt - 1
        self._log.call_failed(self._operation, event, self._last)


class StoredBreaker:
    """A breaker in the database, shared with the stages and with other processes."""

    def __init__(self, rd: Redrive, breaker: Breaker) -> None:
        self._breaker = breaker
        self._shared = SharedBreakers(rd.store, [breaker])

    @contextmanager
    def admitted(self) -> Generator[None]:
        """Record what the block proves about the service; raise BreakerOpenError instead while the breaker is open."""
        token = uuid.uuid4().hex
        answer: Admitted | Refused = Admitted(is_probe=False)

        def admit(state: BreakerState) -> BreakerState:
            nonlocal answer
            after, answer = step.admit(self._breaker, state, _now(), token)
            return after

        self._shared.change(self._breaker, admit)
        if isinstance(answer, Refused):
            retry_at = None if answer.retry_at is None else datetime.fromtimestamp(answer.retry_at, UTC)
            raise BreakerOpenError(breaker=self._breaker.name, retry_at=retry_at, reason=answer.reason)
        try:
            yield
        except Exception as error:
            failure = classify(error)
            self._record(self._breaker.evidence_of(failure), token, failure.code)
            raise
        except BaseException:
            self._record(Evidence.NOTHING, token)
            raise
        self._record(Evidence.ALIVE, token)

    def _record(self, evidence: Evidence, token: str, code: str | None = None) -> None:
        def record(state: BreakerState) -> BreakerState:
            if evidence is Evidence.NOTHING:
                return step.release(state, token)
            ok = int(evidence is Evidence.ALIVE)
            return step.record(self._breaker, state, _now(), ok=ok, failed=1 - ok, token=token)

        self._shared.change(self._breaker, record, code=code)


def _now() -> float:
    return CURRENT.get().clock.wall()
