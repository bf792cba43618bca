# SPDX-License-Identifier: Apache-2.0
"""Every error redrive raises, in one tree; its files are its branches, and all of it is imported from here.

    RedriveError                                    root
    |-- ConfigurationError (also ValueError)            a constructor, decorator or rule was given something it cannot use
    |-- SerializationError (also ValueError)            a value cannot become JSON, or JSON does not fit its type
    |-- IllegalTransitionError                          a job or dead letter was asked to make a move its lifecycle lacks
    |                                               calls
    |-- BreakerOpenError                                a breaker refused the call; `retry_at` says when to come back
    |-- AttemptTimeoutError (also TimeoutError)         one attempt took longer than its `timeout`
    |-- AttemptsSpentError                              a function asked to be tried again once more often than it may
    |-- DeadlineExceededError (also TimeoutError)       the total deadline ended while the call ran or waited
    |                                               jobs
    |-- JobNotFoundError (also LookupError)             there is no job with this id
    |-- JobFailedError                                  the job whose result was asked for failed
    |-- JobErasedError                                  the result that was asked for was erased
    |-- JobCancelledError                               the job whose result was asked for was cancelled
    |-- WaitTimeoutError (also TimeoutError)            the job did not end while it was waited for
    |-- JobExpiredError                                 the job was not started before its `expires_at`
    |-- WorkerCrashError                                the process that ran the stage alone died
    |-- RunError                                        a run cannot be started, found or resumed as asked
    |-- FailureBudgetExceededError                      so much of a run failed that it stopped itself
    |                                               letters
    |-- LetterNotFoundError (also LookupError)          there is no dead letter with this id
    |-- ReplayNotFoundError (also LookupError)        there is no replay with this id
    |-- ReplayRefusedError                              a replay, a retry or a change of a replay cannot be done now
    |   |-- EvidenceMissingError                        the rules ask for evidence of a fix first
    |   `-- NotOwnerError                               only the owner of a job may do this
    |                                               store
    `-- StoreError
        |-- StoreUnavailableError                       the database did not take the statement; nothing of the batch was stored
        |-- StoreRefusedError                           the database refused what it was asked, and would again
        |-- StoreDamagedError                           the database file is damaged, or is no database
        `-- SchemaMismatchError                         the database was made by another version of redrive

Each error carries its facts as attributes, a stable `code` slug, and a `hint` that says what to do next. All of them survive
pickling and copying, although their constructors take keywords only. What a *stage* raises to steer its own job (Retry, Snooze,
Cancel, Fail) is no error and has a root of its own in `redrive.core.signals`.
"""

from __future__ import annotations

from redrive.errors.calls import (
    AttemptsSpentError,
    AttemptTimeoutError,
    BreakerOpenError,
    DeadlineExceededError,
)
from redrive.errors.jobs import (
    FailureBudgetExceededError,
    JobCancelledError,
    JobErasedError,
    JobExpiredError,
    JobFailedError,
    JobNotFoundError,
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
    IllegalTransitionError,
    RedriveError,
    SerializationError,
    shown,
)
from redrive.errors.store import (
    SchemaMismatchError,
    StoreDamagedError,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
)

__all__ = [
    "SHOWN_MAX",
    "AttemptTimeoutError",
    "AttemptsSpentError",
    "BreakerOpenError",
    "ConfigurationError",
    "DeadlineExceededError",
    "EvidenceMissingError",
    "FailureBudgetExceededError",
    "IllegalTransitionError",
    "JobCancelledError",
    "JobErasedError",
    "JobExpiredError",
    "JobFailedError",
    "JobNotFoundError",
    "LetterNotFoundError",
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
    "WaitTimeoutError",
    "WorkerCrashError",
    "shown",
]
