# SPDX-License-Identifier: Apache-2.0
"""Errors about jobs and runs.

JobExpiredError, WorkerCrashError and BatchResultError are not raised to callers: they become dead letters.
"""

from __future__ import annotations

from redrive.errors.root import RedriveError


class JobNotFoundError(RedriveError, LookupError):
    """There is no job with this id."""

    code = "job-not-found"

    def __init__(self, *, job_id: int) -> None:
        self.job_id = job_id
        super().__init__(f"there is no job {job_id}", hint="Check the id and the database.")


class JobFailedError(RedriveError):
    """There is no result because the job failed; its dead letter has the reason."""

    code = "job-failed"

    def __init__(self, *, job_id: int, error_code: str, message: str) -> None:
        self.job_id = job_id
        self.error_code = error_code
        super().__init__(
            f"job {job_id} failed with {error_code}: {message}",
            hint=f"For its history: redrive job show {job_id}.",
        )


class JobErasedError(RedriveError):
    """There is no result because it was erased; the record of the job still exists."""

    code = "job-erased"

    def __init__(self, *, job_id: int) -> None:
        self.job_id = job_id
        super().__init__(
            f"the values of job {job_id} were erased",
            hint=f"The record still exists: redrive job show {job_id}.",
        )


class JobCancelledError(RedriveError):
    """There is no result because the job was cancelled."""

    code = "job-cancelled"

    def __init__(self, *, job_id: int) -> None:
        self.job_id = job_id
        super().__init__(f"job {job_id} was cancelled", hint="Submit it again if you still need it.")


class JobSkippedError(RedriveError):
    """There is no result because a stage skipped the job."""

    code = "job-skipped"

    def __init__(self, *, job_id: int, reason: str) -> None:
        self.job_id = job_id
        self.reason = reason
        super().__init__(
            f"job {job_id} was skipped: {reason}", hint="Its stage decided so; nothing is to be done."
        )


class WaitTimeoutError(RedriveError, TimeoutError):
    """The job did not end within the timeout of the wait; it continues."""

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
            f"the job expired {late:.0f} s before a worker could start it",
            hint="Add workers, or give such jobs a later expires_at.",
        )


class WorkerCrashError(RedriveError):
    """The process that ran the stage alone died."""

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


class BatchResultError(RedriveError):
    """A batch function did not return one result for each input, so none of its results can be assigned to a job."""

    code = "batch-result"

    def __init__(self, *, stage: str, inputs: int, returned: int | str) -> None:
        self.stage = stage
        self.inputs = inputs
        self.returned = returned
        what = f"{returned} results" if isinstance(returned, int) else f"{returned}, not a list,"
        super().__init__(
            f"stage {stage} returned {what} for {inputs} inputs",
            hint="Return a list with one output, exception or signal for each input, in the order of the inputs.",
        )


class RunError(RedriveError):
    """A run cannot be started, found or resumed; nothing was changed."""

    code = "run"

    def __init__(self, *, run: int, problem: str, fix: str) -> None:
        self.run = run
        super().__init__(f"run {run}: {problem}", hint=fix)


class FailureBudgetExceededError(RedriveError):
    """More of a run failed than its budget allows, so it stopped; `report` accounts for every item."""

    code = "failure-budget-exceeded"

    def __init__(self, *, run: int, sentence: str, rate: float, report: object) -> None:
        self.run = run
        self.rate = rate
        self.report = report
        super().__init__(
            f"run {run} was aborted: {sentence}",
            hint="Finished jobs keep their results; the rest was cancelled. Fix the cause, then start a new run.",
        )
