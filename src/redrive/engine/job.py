# SPDX-License-Identifier: Apache-2.0
"""One job, seen from outside: what it is now, and a handle to wait for it and get its result.

A handle holds nothing but the id; whatever it says was read from the store just then.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, cast

import msgspec

from redrive.core.arguments import seconds
from redrive.engine.clock import instant
from redrive.engine.pipeline.codec import Codec, codec_for
from redrive.engine.runtime import CURRENT
from redrive.errors import (
    JobCancelledError,
    JobErasedError,
    JobFailedError,
    JobNotFoundError,
    WaitTimeoutError,
)
from redrive.store.protocol import JobId, Row, Store

LOOK_FIRST: Final = 0.002
LOOK_MOST: Final = 0.1
"""Between two looks at a job that is waited for, in seconds; each pause is twice the last."""
ID_END: Final = 1 << 63
ENDED: Final = frozenset({"complete", "failed", "cancelled"})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """One job, as it was when this was read."""

    id: int
    pipeline: str
    stage: str
    status: str
    attempt: int
    error_code: str | None
    error_message: str | None
    key: str | None
    owner: str | None
    run: int | None
    priority: int
    waiting: str | None
    """Why a queued job waits: retry, hold, crashed, paused, replay; None when it is simply its turn."""
    run_at: datetime
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    progress: str | None
    round: int
    dispatch: int
    parent: int | None
    is_cancel_asked: bool
    worker: str | None
    expires_at: datetime | None
    erased_at: datetime | None
    """When its values were wiped; None while they are there."""


class Job:
    """A handle on one job: looks at the store whenever it is asked."""

    def __init__(
        self, store: Store, job_id: int, *, is_duplicate: bool = False, output: Codec | None = None
    ) -> None:
        self._store = store
        self._output = output or codec_for("result", None)
        self.id = job_id
        self.is_duplicate = is_duplicate
        """True when `submit` found a job with the same key instead of making one."""

    def __repr__(self) -> str:
        """Show the id; everything else would have to be asked for."""
        return f"Job({self.id})"

    @property
    def facts(self) -> JobFacts:
        """The job as it is now; raises JobNotFoundError."""
        rows = self._store.query("job", JobId(self.id)) if 0 < self.id < ID_END else []
        if not rows:
            raise JobNotFoundError(job_id=self.id)
        return facts_of(rows[0])

    @property
    def status(self) -> str:
        """queued, processing, complete, failed or cancelled."""
        return self.facts.status

    def wait(self, timeout: float | None = None) -> str:
        """Wait until the job has ended and return its status; raises WaitTimeoutError."""
        clock = CURRENT.get().clock
        limit = None if timeout is None else seconds("wait(timeout)", timeout)
        end_at = None if limit is None else clock.monotonic() + limit
        pause = LOOK_FIRST
        while (status := self.status) not in ENDED:
            if end_at is not None and clock.monotonic() >= end_at:
                raise WaitTimeoutError(job_id=self.id, status=status, timeout=limit or 0.0)
            clock.sleep(pause)
            pause = min(2 * pause, LOOK_MOST)
        return status

    def result(self, timeout: float | None = None) -> object:
        """Wait for the job and return what its last stage returned.

        Raises:
            JobFailedError: it failed; the error carries its code.
            JobCancelledError: it was cancelled.
            JobErasedError: it completed, and its values were erased since.
            WaitTimeoutError: it has not ended within `timeout` seconds.
        """
        status = self.wait(timeout)
        if status == "failed":
            facts = self.facts
            raise JobFailedError(
                job_id=self.id, error_code=facts.error_code or "", message=facts.error_message or ""
            )
        if status == "cancelled":
            raise JobCancelledError(job_id=self.id)
        result = cast("bytes | None", self._store.query("result", self.id)[0][1])
        if result is None:
            raise JobErasedError(job_id=self.id)
        return self._output.check(result)

    def attempts(self) -> list[dict[str, object]]:
        """Return every attempt of this job, in order, with its outcome and the reason."""
        return [_attempt_of(row) for row in self._store.query("attempts", self.id)]

    def events(self) -> list[dict[str, object]]:
        """Return every arrow this job has gone along, in order: queued, processing, retry, hold, checkpoint, complete, failed."""
        names = "at event stage attempt code http_status duration_ms reason dispatch"
        told = [
            dict(zip(names.split(), row, strict=True))
            for row in self._store.query("transitions_of_job", self.id)
        ]
        return [{**one, "at": instant(one["at"])} for one in told]


def facts_of(row: Row) -> JobFacts:
    """Return a row of the store as what it says."""
    (job, pipeline, stage, status, attempt, code, message, key, owner, run, priority, waiting, *times) = row
    (
        run_at,
        created_at,
        started_at,
        finished_at,
        progress,
        round_,
        dispatch,
        parent,
        asked,
        worker,
        expires_at,
        erased_at,
    ) = times
    return msgspec.convert(
        {
            "id": job,
            "pipeline": pipeline,
            "stage": stage,
            "status": status,
            "attempt": attempt,
            "error_code": code,
            "error_message": message,
            "key": key,
            "owner": owner,
            "run": run,
            "priority": priority,
            "waiting": waiting,
            "run_at": _instant(run_at),
            "created_at": _instant(created_at),
            "started_at": _instant(started_at),
            "finished_at": _instant(finished_at),
            "progress": progress,
            "round": round_,
            "dispatch": dispatch,
            "parent": parent,
            "is_cancel_asked": bool(asked),
            "worker": worker,
            "expires_at": _instant(expires_at),
            "erased_at": _instant(erased_at),
        },
        JobFacts,
    )


def _attempt_of(row: Row) -> dict[str, object]:
    names = (
        "dispatch stage round attempt outcome burned code message http_status reason sentence notes worker started_at "
        "ended_at config error_class"
    )
    told: dict[str, object] = dict(zip(names.split(), row, strict=True))
    told["burned"] = bool(told["burned"])
    told["notes"] = None if told["notes"] is None else msgspec.json.decode(cast("str", told["notes"]))
    told["duration"] = cast("float", told["ended_at"]) - cast("float", told["started_at"])
    told["started_at"], told["ended_at"] = _instant(told["started_at"]), _instant(told["ended_at"])
    return told


def _instant(at: object) -> datetime | None:
    return None if at is None else instant(at)
