# SPDX-License-Identifier: Apache-2.0
"""Jobs for the API: store one with its manifest and its tasks, and read its snapshot, its errors and its log.

The id of a job is the key of its run. With an Idempotency-Key it is derived from (tenant, type, key), so that the same request
finds the same job. The label of the run is the key of the manifest, which is named by its content.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, cast
from uuid import uuid4

import msgspec
from msgspec import Struct

from apps.fetchbox.dead_letters.messages import notes_of
from apps.fetchbox.dead_letters.sink import SINK, pointer_of
from apps.fetchbox.handlers import Handler, HandlerRefusedError, Planned
from apps.fetchbox.manifest import NO_TASK, Manifest, Resource, Task, bad_header, problem, url_problem
from apps.fetchbox.pipeline import NAME
from apps.fetchbox.settings import JobType, Limits
from apps.tracing import public_url
from redrive import Backoff, Jitter, Pipeline, Redrive, RetryPolicy, guard
from redrive.core.budget import FailureRule
from redrive.core.units import instant
from redrive.store.statements import outbox as outbox_sql
from redrive.store.statements import runs as run_sql

ERRORS_MAX: Final = 1_000
LOG_MAX: Final = 1_000
TENANT: Final = "default"
"""Who posts if nobody says otherwise."""
STATUSES: Final = {"partial_success": "partial"}
"""A run's words that FetchBox has others for."""
MANIFESTS: Final = "manifests"
"""Where manifests are kept in a bucket."""
TENANTS: Final = "tenants"
"""Where the objects of tenants are, other than the default one: no tenant writes over another's."""
RESERVED: Final = frozenset({MANIFESTS, TENANTS})
"""What no prefix, id or handler may begin a key with."""
_NUMBERED: Final = re.compile("#(?=[0-9]+$)")
RETRY_SECONDS: Final = 0.1
ATTEMPTS: Final = 3


def patient(retry_seconds: float = RETRY_SECONDS) -> Callable[..., Any]:
    """Return what retries a call inside the service: three attempts with exponential backoff, if the failure is retryable."""
    return guard(retry=RetryPolicy(ATTEMPTS, Backoff.exponential(retry_seconds, jitter=Jitter.ratio(0.2))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A checked request."""

    manifest: Manifest
    body: bytes
    kind: JobType
    tenant: str
    trace_id: str
    idempotency_key: str | None

    @property
    def manifest_key(self) -> str:
        """The place of the manifest in the bucket, named by its content."""
        digest = hashlib.sha256(self.body).hexdigest()[:40]
        return f"{MANIFESTS}/{self.tenant}/{self.manifest.type}/{digest}.json"

    @property
    def job_id(self) -> str:
        """A new id; the same for the same tenant, type and Idempotency-Key."""
        if self.idempotency_key is None:
            return f"fb-{uuid4().hex}"
        parts = msgspec.json.encode([self.tenant, self.manifest.type, self.idempotency_key])
        return f"fb-{hashlib.sha256(parts).hexdigest()[:32]}"


class Accepted(Struct, frozen=True):
    """The answer to a manifest."""

    job_id: str
    manifest_key: str
    resources: int
    is_duplicate: bool = False


class ErrorRecord(Struct, frozen=True):
    """One failure."""

    code: str
    message: str
    context: dict[str, object]


class Snapshot(Struct, frozen=True):
    """The state of a job."""

    job_id: str
    tenant: str
    manifest_key: str
    status: str
    resources_total: int
    resources_completed: int
    resources_failed: int
    resources_open: int
    last_error: ErrorRecord | None
    dead_letter: dict[str, object] | None
    """Where the dead letter of the last error is."""


class LogLine(Struct, frozen=True):
    """One attempt."""

    offset: int
    at: datetime
    task_id: str
    stage: str
    attempt: int
    outcome: str
    code: str | None
    status: int | None
    proxy: str | None
    key: str
    duration_ms: float


def plan_tasks(order: Order, job_id: str, handler: Handler, limits: Limits) -> list[Task]:
    """Return the tasks that the handler makes of a manifest; raises the problem of its refusal or its bug."""
    resources = {each.id: each for each in order.manifest.resources}
    try:
        planned = list(handler.plan(order.manifest))
        tasks = [_task(order, job_id, each, resources[each.resource_id]) for each in planned]
    except HandlerRefusedError as error:
        raise problem(422, "HANDLER_REFUSED", str(error)) from error
    except Exception as error:
        raise problem(500, "HANDLER_ERROR", "the handler of this type has a bug") from error
    if any(_key(order, each).partition("/")[0].lower() in RESERVED for each in planned):
        places = " or ".join(f"{name}/" for name in sorted(RESERVED))
        raise problem(422, "VALIDATION_INVALID_FIELD", f"no key may be below {places}", field="resources")
    wrong = next(
        (each for each in tasks if url_problem(each.url, limits.url_max) or bad_header(each.headers)), None
    )
    keys = [each.key for each in tasks]
    if order.kind.handler == "default" and len(set(keys)) != len(keys):
        place = next(place for place, key in enumerate(keys) if key in keys[:place])
        field = f"resources[{place}].id"
        raise problem(422, "VALIDATION_DUPLICATE_ID", f"{field} gives the key of another one", field=field)
    if not tasks or wrong is not None or len(set(keys)) != len(keys):
        raise problem(500, "HANDLER_ERROR", "the handler made no tasks, or tasks that cannot be run")
    return tasks


def _task(order: Order, job_id: str, planned: Planned, resource: Resource) -> Task:
    key = _key(order, planned)
    return Task(
        job_id=job_id,
        task_id=planned.resource_id,
        tenant=order.tenant,
        type=order.manifest.type,
        url=planned.url,
        key=key if order.tenant == TENANT else f"{TENANTS}/{order.tenant}/{key}",
        headers=dict(planned.headers),
        tags=resource.tags,
        sha256=resource.sha256,
        trace_id=order.trace_id,
    )


def _key(order: Order, planned: Planned) -> str:
    """Return the place of an object among those of its tenant."""
    prefix = order.manifest.storage.prefix
    return f"{prefix.rstrip('/')}/{_safe(planned.key)}" if prefix else _safe(planned.key)


def _safe(key: str) -> str:
    """Return a key that stays below its prefix, in a bucket and in a folder."""
    parts = [part for part in key.split("/") if part not in {"", ".", ".."}]
    # A local store keeps names that end in # and a number for its own unfinished files.
    return _NUMBERED.sub("%23", "/".join(parts)) or hashlib.sha256(key.encode()).hexdigest()


class Jobs:
    """The jobs of one database."""

    def __init__(self, rd: Redrive, pipeline: Pipeline) -> None:
        self._rd = rd
        self._pipeline = pipeline

    def open(self, order: Order, job_id: str, tasks: Sequence[Task]) -> Accepted:
        """Store a job and its tasks in one transaction; or return the job that has its key. Durable when it returns."""
        report = self._rd.runs.open(
            self._pipeline,
            tasks,
            key=job_id,
            label=order.manifest_key,
            owner=order.tenant,
            rule=FailureRule(),
        )
        if report.is_duplicate and report.label != order.manifest_key:
            raise problem(422, "VALIDATION_KEY_REUSED", f"it belongs to the job {job_id}")
        return Accepted(job_id, order.manifest_key, report.total, report.is_duplicate)

    def run_of(self, job_id: str, tenant: str) -> int:
        """Return the run of a job; raises the problem of one that is not there, or another tenant's."""
        for run in self._rd.store.query(run_sql.run_with_key(pipeline=NAME, key=job_id)):
            if self._rd.runs.report(run).owner == tenant:
                return run
        raise problem(404, "VALIDATION_UNKNOWN_JOB", "there is no job with this id")

    def snapshot(self, job_id: str, tenant: str) -> Snapshot:
        """Return the state of a job."""
        run = self.run_of(job_id, tenant)
        report = self._rd.runs.report(run)
        letters = self._rd.letters.list(run=run, limit=1).letters
        last = letters[0] if letters else None
        return Snapshot(
            job_id=job_id,
            tenant=tenant,
            manifest_key=report.label or "",
            status=STATUSES.get(report.status, report.status),
            resources_total=report.total,
            resources_completed=report.succeeded,
            resources_failed=report.dead,
            resources_open=report.open,
            last_error=None if last is None else self._error(last.id),
            dead_letter=None if last is None else pointer_of(last.receipts.get(SINK)),
        )

    def errors(self, job_id: str, tenant: str) -> list[dict[str, object]]:
        """Return the dead letters of a job, newest first, each with its place in the stream."""
        run = self.run_of(job_id, tenant)
        found: list[dict[str, object]] = []
        for line in self._rd.letters.list(run=run, limit=ERRORS_MAX).letters:
            record = self._error(line.id)
            letter = pointer_of(line.receipts.get(SINK))
            found.append({**msgspec.structs.asdict(record), "state": line.state, "dead_letter": letter})
        return found

    def log(self, job_id: str, tenant: str, after: int) -> tuple[list[LogLine], bool]:
        """Return the attempts of a job after an offset, and whether more may come."""
        run = self.run_of(job_id, tenant)
        is_open = self._rd.runs.report(run).open > 0
        rows = self._rd.store.query(run_sql.run_log(run=run, after=after, limit=LOG_MAX))
        return [_line(row) for row in rows], is_open or len(rows) == LOG_MAX

    def _error(self, letter_id: int) -> ErrorRecord:
        letter = self._rd.letters.show(letter_id)
        notes = notes_of(letter.letter.sanitized_context)
        last = letter.attempts[-1] if letter.attempts else None
        status = None if last is None else cast("Mapping[str, object]", _members(last)).get("http_status")
        attempt = None if last is None else cast("Mapping[str, object]", _members(last)).get("attempt")
        context: dict[str, object] = {"proxy": notes.get("proxy"), "attempt": attempt, "status": status}
        # The notes of an attempt are redacted, and what is in the payload with them; this is the tenant's own.
        rows = self._rd.store.query(outbox_sql.payload_for_sink(job=letter.letter.job))
        task = _task_of(rows[0] if rows else None)
        context |= {
            "task_id": task.task_id,
            "url": public_url(task.url),
            "key": task.key,
            "trace_id": task.trace_id,
        }
        context |= {"stage": letter.letter.stage}
        return ErrorRecord(letter.letter.code, letter.letter.message, context)


def _members(value: object) -> object:
    return value if isinstance(value, Mapping) else msgspec.to_builtins(value)


def _task_of(payload: bytes | None) -> Task:
    """Return the task of a job; an empty one if its values were erased."""
    return NO_TASK if payload is None else msgspec.json.decode(payload, type=Task)


def _line(row: run_sql.LogLine) -> LogLine:
    task = _task_of(row.payload)
    found = {} if row.notes is None else msgspec.json.decode(row.notes, type=dict[str, str])
    status = found.get("status") if row.http_status is None else row.http_status
    return LogLine(
        offset=row.seq,
        at=instant(row.ended_at),
        task_id=task.task_id,
        stage=row.stage,
        attempt=row.attempt,
        outcome=row.outcome,
        code=row.code,
        status=None if status is None else int(status),
        proxy=found.get("proxy"),
        key=task.key,
        duration_ms=1000 * (row.ended_at - row.started_at),
    )
