# SPDX-License-Identifier: Apache-2.0
"""Every error redrive raises, in one tree.

    RedriveError
    |-- ConfigurationError (also ValueError)   a constructor, decorator or rule was given something it cannot use
    |-- BreakerOpenError                       a breaker refused the call; `retry_at` says when to come back
    |-- AttemptTimeoutError (also TimeoutError)   one attempt took longer than its `timeout`
    |-- AttemptsSpentError                     a function asked to be tried again once more often than it may
    |-- DeadlineExceededError (also TimeoutError) the total deadline ended while the call ran or waited
    |-- JobNotFoundError (also LookupError)    there is no job with this id
    |-- LetterNotFoundError (also LookupError)   there is no dead letter with this id
    |-- SerializationError (also ValueError)   a value cannot become JSON, or JSON does not fit its type
    |-- StoreError
    |   |-- StoreUnavailableError              the database did not take the statement; nothing of the batch was stored
    |   `-- SchemaMismatchError                the database was made by another version of redrive
    `-- IllegalTransitionError                 a job or dead letter was asked to make a move its lifecycle lacks

Each error carries its facts as attributes, a stable `code` slug, and a `hint` that says what to do next. All of them survive
pickling and copying, although their constructors take keywords only. What a *stage* raises to steer its own job (Retry, Snooze,
Cancel, Fail) is no error and has a root of its own in `redrive.core.signals`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from datetime import datetime

SHOWN_MAX: Final = 120


def shown(value: object) -> str:
    """Return `repr(value)`, cut to a length that fits in a message, even when `repr` itself raises."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a broken __repr__ must not hide the error being reported.
        text = f"<{type(value).__name__} whose repr fails>"
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 3] + "..."


def _rebuild(cls: type[RedriveError], args: tuple[object, ...], state: dict[str, object]) -> RedriveError:
    error = cls.__new__(cls, *args)
    error.args = args  # OSError, and so TimeoutError, leaves this to the constructor that is not called here.
    error.__dict__.update(state)
    return error


class RedriveError(Exception):
    """The root: catch this to catch everything redrive itself raises."""

    code: ClassVar[str] = "redrive"
    hint: str

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        """Rebuild from state, because the keyword-only constructors cannot be called with `args`."""
        return _rebuild, (type(self), self.args, dict(self.__dict__))


class ConfigurationError(RedriveError, ValueError):
    """Something was configured in a way that cannot work; names the field, the rule, the value and the fix."""

    code = "configuration"

    def __init__(self, *, field: str, value: object, rule: str, fix: str) -> None:
        self.field = field
        self.got = shown(value)
        self.rule = rule
        self.fix = fix
        super().__init__(f"{field} {rule}, got {self.got}. {fix}", hint=fix)


class BreakerOpenError(RedriveError):
    """A breaker refused the call without making it.

    `retry_at` is the aware UTC instant from which a call may be let through, or None while an operator isolates the breaker.
    """

    code = "breaker-open"

    def __init__(self, *, breaker: str, retry_at: datetime | None, reason: str) -> None:
        self.breaker = breaker
        self.retry_at = retry_at
        self.reason = reason
        when = (
            f"try again at {retry_at.isoformat(timespec='seconds')}"
            if retry_at
            else "it stays so until it is closed by hand"
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
    """A function asked for another run by a signal, and the policy has none left; the signal is its cause."""

    code = "attempts-spent"

    def __init__(self, *, name: str, sentence: str) -> None:
        self.name = name
        self.sentence = sentence
        super().__init__(
            f"{name}: {sentence}", hint="Raise max_attempts= or snooze_max=, or find out what it waits for."
        )


class DeadlineExceededError(RedriveError, TimeoutError):
    """The total deadline over all attempts ended while an attempt was running."""

    code = "deadline"

    def __init__(self, *, deadline: float) -> None:
        self.deadline = deadline
        super().__init__(
            f"the call did not finish within its deadline of {deadline:g} s",
            hint="Raise deadline=, or lower timeout= so that more attempts fit into it.",
        )


class JobNotFoundError(RedriveError, LookupError):
    """There is no job with this id."""

    code = "job-not-found"

    def __init__(self, *, job_id: int) -> None:
        self.job_id = job_id
        super().__init__(
            f"there is no job {job_id}", hint="Check the id, and that this is the right database."
        )


class LetterNotFoundError(RedriveError, LookupError):
    """There is no dead letter with this id."""

    code = "letter-not-found"

    def __init__(self, *, letter_id: int) -> None:
        self.letter_id = letter_id
        super().__init__(
            f"there is no dead letter {letter_id}",
            hint="Check the id, and that this is the right database; redrive dlq list shows those there are.",
        )


class JobFailedError(RedriveError):
    """The job whose result was asked for failed; its dead letter says why."""

    code = "job-failed"

    def __init__(self, *, job_id: int, error_code: str, message: str) -> None:
        self.job_id = job_id
        self.error_code = error_code
        super().__init__(
            f"job {job_id} failed with {error_code}: {message}",
            hint=f"redrive job show {job_id} tells its whole story.",
        )


class JobErasedError(RedriveError):
    """The result that was asked for was erased; the record of its job is still there."""

    code = "job-erased"

    def __init__(self, *, job_id: int) -> None:
        self.job_id = job_id
        super().__init__(
            f"the values of job {job_id} were erased",
            hint=f"Its record is still there: redrive job show {job_id}.",
        )


class JobCancelledError(RedriveError):
    """The job whose result was asked for was cancelled."""

    code = "job-cancelled"

    def __init__(self, *, job_id: int) -> None:
        self.job_id = job_id
        super().__init__(f"job {job_id} was cancelled", hint="Submit it again if it is still wanted.")


class WaitTimeoutError(RedriveError, TimeoutError):
    """The job did not end while it was waited for; it goes on."""

    code = "wait-timeout"

    def __init__(self, *, job_id: int, status: str, timeout: float) -> None:
        self.job_id = job_id
        self.status = status
        super().__init__(
            f"job {job_id} is still {status} after {timeout:g} s",
            hint="Wait longer, and check that a worker serves its pipeline.",
        )


class JobExpiredError(RedriveError):
    """The job was not started before its `expires_at`."""

    code = "job-expired"

    def __init__(self, *, late: float) -> None:
        self.late = late
        super().__init__(
            f"the job came to its turn {late:.0f} s after it had expired",
            hint="Add workers, or give such jobs more time.",
        )


class WorkerCrashError(RedriveError):
    """The process that ran the stage, and nothing else, died."""

    code = "worker-crash"

    def __init__(self, *, stage: str, exit_code: int | None, crashes: int) -> None:
        self.stage = stage
        self.exit_code = exit_code
        self.crashes = crashes
        how = "died" if exit_code is None else f"died with exit code {exit_code}"
        super().__init__(
            f"the process that ran {stage} alone {how} ({crashes} so far)",
            hint="Look for os._exit, memory limits and crashes of native libraries in this stage.",
        )


class RunError(RedriveError):
    """A run cannot be started, found or resumed as asked; nothing was changed."""

    code = "run"

    def __init__(self, *, run: int, problem: str, fix: str) -> None:
        self.run = run
        super().__init__(f"run {run}: {problem}", hint=fix)


class FailureBudgetExceededError(RedriveError):
    """So much of a run failed that it stopped itself; `report` accounts for every item."""

    code = "failure-budget-exceeded"

    def __init__(self, *, run: int, sentence: str, rate: float, report: object) -> None:
        self.run = run
        self.rate = rate
        self.report = report
        super().__init__(
            f"run {run} was aborted: {sentence}",
            hint="What is done stays done; the rest was cancelled. Fix the cause, then start a new run.",
        )


class ReplayRefusedError(RedriveError):
    """A replay, a retry or a change of a campaign cannot be done as things are; nothing was changed."""

    code = "replay-refused"

    def __init__(self, *, subject: str, problem: str, fix: str) -> None:
        self.subject = subject
        self.problem = problem
        super().__init__(f"{subject}: {problem}", hint=fix)


class EvidenceMissingError(ReplayRefusedError):
    """The rules of the pipeline ask for evidence of a fix before anything of it runs again."""

    code = "evidence-missing"


class NotOwnerError(ReplayRefusedError):
    """Only the owner of a job may do this."""

    code = "not-owner"


class CampaignNotFoundError(RedriveError, LookupError):
    """There is no campaign with this id."""

    code = "campaign-not-found"

    def __init__(self, *, campaign: int, hint: str) -> None:
        self.campaign = campaign
        super().__init__(f"there is no replay {campaign}", hint=hint)


class SerializationError(RedriveError, ValueError):
    """A value cannot become JSON, or JSON does not fit its type. Of many, `index` is its place, `stored` the jobs before it."""

    code = "serialization"
    index: int | None = None
    stored: tuple[int, ...] = ()

    def __init__(self, *, where: str, kind: str, problem: str) -> None:
        self.where = where
        self.kind = kind
        self.problem = problem
        hint = "Correct the value, or the annotation that says what it must be."
        super().__init__(f"{where}: {kind} does not fit: {problem}", hint=hint)


class StoreError(RedriveError):
    """Something about the store; the branch of its errors."""

    code = "store"


class StoreUnavailableError(StoreError):
    """The database did not take the statement; nothing of the batch was stored, and the same batch may be sent again."""

    code = "store-unavailable"

    def __init__(self, *, database: str, cause: str) -> None:
        self.database = database
        self.cause = cause
        super().__init__(
            f"the database {database} failed: {cause}",
            hint="Check that its folder exists, is writable and has space, and that the file is a redrive database.",
        )


class StoreRefusedError(StoreError):
    """The database refused what it was asked, and would again: a constraint, a closed connection, a mistake of ours."""

    code = "store-refused"

    def __init__(
        self,
        *,
        database: str,
        cause: str,
        hint: str = "If nothing was done to the store from outside, this is a bug of redrive: please report it.",
    ) -> None:
        self.database = database
        self.cause = cause
        super().__init__(f"the database {database} refused it: {cause}", hint=hint)


class StoreDamagedError(StoreError):
    """The database file is damaged, or is no database; nothing is written to it any more."""

    code = "store-damaged"

    def __init__(self, *, database: str, cause: str) -> None:
        self.database = database
        self.cause = cause
        super().__init__(
            f"the database {database} is damaged: {cause}",
            hint="Stop all workers, keep a copy of the file and of its -wal, and go back to a backup or recover it with sqlite3.",
        )


class SchemaMismatchError(StoreError):
    """The database was made by another version of redrive; it is left as it is."""

    code = "schema-mismatch"

    def __init__(self, *, database: str, found: int, known: int) -> None:
        self.database = database
        self.found = found
        self.known = known
        super().__init__(
            f"the database {database} has schema version {found}, and this redrive knows version {known}",
            hint="Stop older workers, make a backup, then: redrive migrate (--print shows the SQL)."
            if found < known
            else "Use the redrive that made it, or a newer one.",
        )


class IllegalTransitionError(RedriveError):
    """A state machine was asked for a move that its table does not contain."""

    code = "illegal-transition"

    def __init__(self, *, subject: str, source: str, verb: str, allowed: tuple[str, ...]) -> None:
        self.subject = subject
        self.source = source
        self.verb = verb
        self.allowed = allowed
        choices = ", ".join(allowed) or "nothing"
        super().__init__(
            f"a {subject} in state {source!r} cannot {verb}",
            hint=f"From {source!r} a {subject} can: {choices}.",
        )
