# SPDX-License-Identifier: Apache-2.0
"""Every error that redrive raises, in one tree. Each module is a branch; import all names from here.

    RedriveError                                    root
    |-- ConfigurationError (also ValueError)            a constructor, decorator or rule got an invalid argument
    |   |-- MissingExtraError (also ImportError)        a library is not installed that this needs
    |   `-- UnknownNameError (also LookupError)         the database has no pipeline, stage, breaker, ... of this name
    |-- SerializationError (also ValueError)            a value cannot become JSON, or JSON does not fit its type
    |                                               calls
    |-- BreakerOpenError                                a breaker refused the call; `retry_at` is when to try again
    |-- AttemptTimeoutError (also TimeoutError)         one attempt took longer than its `timeout`
    |-- AttemptsSpentError                              a function asked for a retry after its last attempt
    |-- DeadlineExceededError (also TimeoutError)       the total deadline ended while the call ran or waited
    |                                               jobs
    |-- JobNotFoundError (also LookupError)             there is no job with this id
    |-- JobFailedError                                  there is no result: the job failed
    |-- JobErasedError                                  there is no result: it was erased
    |-- JobCancelledError                               there is no result: the job was cancelled
    |-- JobSkippedError                                 there is no result: a stage skipped the job
    |-- WaitTimeoutError (also TimeoutError)            the job did not end within the timeout of the wait
    |-- JobExpiredError                                 the job was not started before its `expires_at`
    |-- WorkerCrashError                                the process that ran the stage alone died
    |-- BatchResultError                                a batch function did not return one result for each input
    |-- RunError                                        a run cannot be started, found or resumed
    |-- FailureBudgetExceededError                      more of a run failed than its budget allows
    |                                               letters
    |-- LetterNotFoundError (also LookupError)          there is no dead letter with this id
    |-- ReplayNotFoundError (also LookupError)          there is no replay with this id
    |-- ReplayRefusedError                              a replay, a retry or a change of a replay is not possible now
    |   |-- EvidenceMissingError                        the replay rules require evidence of a fix first
    |   `-- NotOwnerError                               only the owner of a job may do this
    |                                               web
    |-- BodyError                                       the body of a request cannot be accepted
    |   |-- BodyTooLargeError                           it has too many bytes, as sent or after decompression
    |   |-- BodyInvalidError                            it is damaged, incomplete, or not what it is declared to be
    |   |-- BodyEncodingError                           its Content-Encoding is not supported
    |   `-- BodyTimeoutError (also TimeoutError)        no byte of it arrived for too long
    |                                               store
    `-- StoreError
        |-- StoreUnavailableError                       the database is unavailable; nothing of the batch was stored
        |-- StoreRefusedError                           another program's file, a closed connection, a broken constraint
        |-- StoreDamagedError                           the file is damaged, or is not a database
        `-- SchemaMismatchError                         the database has the schema of another version of redrive

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
