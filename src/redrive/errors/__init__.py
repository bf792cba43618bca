# SPDX-License-Identifier: Apache-2.0
"""Every error that redrive raises, in one tree below `RedriveError`. Each module is a branch; import all names from here.

Each error has its facts as attributes, a stable `code` slug, and a `hint` with what to do next. All of them survive pickling
and copying, although their constructors take keywords only. What a *stage* raises to control its own job (Retry, Snooze,
Cancel, Skip, Finish, Fail) is not an error and has a root class of its own in `redrive.core.signals`.
"""

from __future__ import annotations

from redrive.errors.calls import (
    AttemptsSpentError,
    AttemptTimeoutError,
    BreakerOpenError,
    DeadlineExceededError,
)
from redrive.errors.jobs import (
    BatchResultError,
    FailureBudgetExceededError,
    JobCancelledError,
    JobErasedError,
    JobExpiredError,
    JobFailedError,
    JobNotFoundError,
    JobSkippedError,
    RunError,
    WaitTimeoutError,
    WorkerCrashError,
)
from redrive.errors.letters import (
    EvidenceMissingError,
    LetterNotFoundError,
    NotOwnerError,
    ReplayNotFoundError,
    ReplayRefusedError,
)
from redrive.errors.root import (
    SHOWN_MAX,
    ConfigurationError,
    MissingExtraError,
    RedriveError,
    SerializationError,
    UnknownNameError,
    short_repr,
)
from redrive.errors.store import (
    SchemaMismatchError,
    StoreDamagedError,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
)
from redrive.errors.web import (
    BodyEncodingError,
    BodyError,
    BodyInvalidError,
    BodyTimeoutError,
    BodyTooLargeError,
)

__all__ = [
    "SHOWN_MAX",
    "AttemptTimeoutError",
    "AttemptsSpentError",
    "BatchResultError",
    "BodyEncodingError",
    "BodyError",
    "BodyInvalidError",
    "BodyTimeoutError",
    "BodyTooLargeError",
    "BreakerOpenError",
    "ConfigurationError",
    "DeadlineExceededError",
    "EvidenceMissingError",
    "FailureBudgetExceededError",
    "JobCancelledError",
    "JobErasedError",
    "JobExpiredError",
    "JobFailedError",
    "JobNotFoundError",
    "JobSkippedError",
    "LetterNotFoundError",
    "MissingExtraError",
    "NotOwnerError",
    "RedriveError",
    "ReplayNotFoundError",
    "ReplayRefusedError",
    "RunError",
    "SchemaMismatchError",
    "SerializationError",
    "StoreDamagedError",
    "StoreError",
    "StoreRefusedError",
    "StoreUnavailableError",
    "UnknownNameError",
    "WaitTimeoutError",
    "WorkerCrashError",
    "short_repr",
]
