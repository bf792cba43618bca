# SPDX-License-Identifier: Apache-2.0
"""redrive's own errors, when a stage raises them from a guarded call."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.core.verdict import RuleTable, Verdict
from redrive.rules.shared.inspection import attribute


def _breaker(exc: BaseException, now: float) -> Verdict:
    """Classify a refused call; the breaker also has the time from which a call may be admitted."""
    retry_at = attribute(exc, "retry_at")
    is_known = isinstance(retry_at, datetime) and retry_at.tzinfo is not None
    wait = max(0.0, retry_at.timestamp() - now) if isinstance(retry_at, datetime) and is_known else None
    return Verdict(code=taxonomy.BREAKER_OPEN, retry_after=wait)


def _injected(exc: BaseException, _now: float) -> Verdict | None:
    """Return the verdict that an injected error carries."""
    verdict = attribute(exc, "verdict")
    return verdict if isinstance(verdict, Verdict) else None


def _serialization(exc: BaseException, _now: float) -> Code:
    """Classify a value that does not fit: what a stage returned is its own mistake, anything else is in the payload."""
    is_output = str(attribute(exc, "where")).endswith("(output)") and attribute(exc, "kind") != "row"
    return taxonomy.BUG_CODE if is_output else taxonomy.SCHEMA_INVALID


RULES: Final[RuleTable] = {
    # It called sys.exit, for example.
    "StageEndingError": taxonomy.BUG_CODE,
    "BatchResultError": taxonomy.BUG_CODE,
    "InjectedError": _injected,
    "BreakerOpenError": _breaker,
    "AttemptTimeoutError": taxonomy.TIMEOUT,
    "DeadlineExceededError": taxonomy.TIMEOUT,
    # A guard around a guard must not multiply the attempts of the inner one.
    "AttemptsSpentError": taxonomy.STAGE_FAILED,
    # redrive's own store is unavailable: retryable, and no evidence against the dependency of the stage.
    "StoreUnavailableError": taxonomy.UPSTREAM_NOT_READY,
    "SchemaMismatchError": taxonomy.CONFIG_INVALID,
    "StoreDamagedError": taxonomy.CONFIG_INVALID,
    "StoreRefusedError": taxonomy.BUG_CODE,
    "StoreError": taxonomy.BUG_CODE,
    "ConfigurationError": taxonomy.CONFIG_INVALID,
    "UnknownNameError": taxonomy.NOT_FOUND,
    "JobNotFoundError": taxonomy.NOT_FOUND,
    "LetterNotFoundError": taxonomy.NOT_FOUND,
    "ReplayNotFoundError": taxonomy.NOT_FOUND,
    "JobErasedError": taxonomy.NOT_FOUND,
    "ReplayRefusedError": taxonomy.REJECTED_POLICY,
    "EvidenceMissingError": taxonomy.REJECTED_POLICY,
    "NotOwnerError": taxonomy.AUTH_DENIED,
    "SerializationError": _serialization,
    "JobExpiredError": taxonomy.JOB_EXPIRED,
    "WorkerCrashError": taxonomy.WORKER_CRASH,
    "JobFailedError": taxonomy.STAGE_FAILED,
    "JobCancelledError": taxonomy.CANCELLED,
    # Whoever waits for the result of a job that its stage skipped waits for something that will never be there.
    "JobSkippedError": taxonomy.NOT_FOUND,
    "WaitTimeoutError": taxonomy.LOCAL_TIMEOUT,
    "RunError": taxonomy.CONFIG_INVALID,
    "BodyError": taxonomy.SCHEMA_INVALID,
    "BodyTooLargeError": taxonomy.SCHEMA_INVALID,
    "BodyInvalidError": taxonomy.SCHEMA_INVALID,
    "BodyEncodingError": taxonomy.SCHEMA_INVALID,
    "BodyTimeoutError": taxonomy.TIMEOUT,
    "FailureBudgetExceededError": taxonomy.STAGE_FAILED,
}
