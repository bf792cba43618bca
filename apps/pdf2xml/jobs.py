# SPDX-License-Identifier: Apache-2.0
"""The use cases behind the routes: submit an upload, list and show jobs, retry one, find its result, purge what is old.

Sync, and called on threads. Reads have a connection of their own, so that they never wait for a commit. What it returns is fit for
users: lines instead of messages, and no path but the name of the result.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

import redrive
from apps.pdf2xml.codes import LINES, STATUSES, line_of
from apps.pdf2xml.files import DRAFT_SECONDS, Files, key_of
from apps.pdf2xml.pipeline import BREAKER, NAME, Upload, build
from apps.pdf2xml.settings import Settings
from apps.pdf2xml.uploads import Form
from redrive import Fail, RedriveError
from redrive.errors import JobErasedError, JobNotFoundError, NotOwnerError, ReplayRefusedError
from redrive.store.statements import jobs as job_sql
from redrive.store.statements.jobs import JobFacts
from redrive.web import Problem, ProblemError

logger = logging.getLogger("pdf2xml")

PAGE: Final = 100
"""Jobs in one list."""
CACHE_MAX: Final = 10_000
# Made once: it is used on several threads.
_UPLOAD: Final = msgspec.json.Decoder(Upload)
_LOST: Final = Upload("?", "?", "", 0, "", "")


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """One job, as the API and the page show it."""

    id: int
    status: str
    name: str
    mapping: str
    bytes: int
    sha256: str
    attempt_count: int
    manual_retry_count: int
    created_at: str
    started_at: str | None
    last_attempt_at: str | None
    next_attempt_at: str | None
    """Of a job that waits for its next attempt."""
    finished_at: str | None
    failed_at: str | None
    result_path: str | None
    error_code: str | None
    error_message: str | None
    is_expired: bool
    """True when the result of a complete job is gone."""
    is_retryable: bool
    """True when a job has failed and its source is there."""


class Jobs:
    """The jobs of an installation, on two connections."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.files = Files(settings.folder)
        self.files.prepare()
        self.flow = build(settings)
        self._rd = redrive.connect(settings.database)
        self._reads = redrive.connect(settings.database)
        self._uploads: dict[int, Upload] = {}
        self.manual_retries = 0

    def close(self) -> None:
        """Close both connections."""
        self._rd.close()
        self._reads.close()

    def submit(self, owner: str, form: Form, draft: Path) -> tuple[JobView, bool]:
        """Submit a received file; return its job, and whether it is new. Both are durable then, or neither is."""
        key = key_of(owner, form.sha256, form.mapping, form.size)
        upload = Upload(form.name, form.mapping, form.sha256, form.size, key, secrets.token_hex(8))
        with self.files.sources_kept():
            # A duplicate has the same bytes, so replacing its source only renews its time.
            self.files.keep(draft, self.files.source(key))
            job = self._rd.submit(self.flow, upload, key=key, owner=owner)
            if job.is_duplicate and job.status == "complete" and not self._result(job.id).exists():
                self._rd.jobs.free_key(job.id, actor="api", reason="its result is gone")
                job = self._rd.submit(self.flow, upload, key=key, owner=owner)
        if not job.is_duplicate:
            self._keep(job.id, upload)
        return self._view(job.facts), not job.is_duplicate

    def refuse(self, owner: str, form: Form, code: str, reason: str) -> JobView:
        """Record an upload that failed before it could be queued."""
        failure = redrive.classify(Fail(code, reason), codes=self.flow.codes, stage="convert")
        upload = Upload(form.name, form.mapping, form.sha256, form.size, "", "")
        logger.warning("upload refused: %s: %s", code, redrive.redact(reason))
        buried = self._rd.jobs.bury(self.flow, upload, failure, owner=owner)
        self._keep(buried.id, upload)
        return self._view(buried)

    def queue(self, owner: str, before: int | None = None) -> tuple[list[JobView], bool]:
        """Return the latest jobs of an owner, newest first, and whether they wait because the gateway is down."""
        found = self._reads.jobs.of_owner(owner, NAME, before=before, limit=PAGE)
        return [self._view(facts) for facts in found], self.is_paused()

    def show(self, owner: str, job: int) -> dict[str, object]:
        """Return one job, with what happened to it."""
        facts = self._facts(job)
        _check_owner(facts, owner)
        names = ("at", "event", "attempt", "code", "http_status", "duration_ms")
        events = [{name: getattr(event, name) for name in names} for event in self._reads.job(job).events()]
        return {**msgspec.to_builtins(self._view(facts)), "events": events}

    def result(self, owner: str, job: int) -> tuple[Path, str]:
        """Return the result of a job, and the name under which it is downloaded."""
        facts = self._facts(job)
        if facts.status != "complete":
            raise ProblemError(problem("NOT_READY"))
        path = self._result(job)
        if not path.exists():
            raise ProblemError(problem("EXPIRED"))
        _check_owner(facts, owner)
        return path, Path(self._upload(job).name).stem + ".xml"

    def retry(self, owner: str, job: int) -> JobView:
        """Queue a failed job of this owner again."""
        facts = self._facts(job)
        if facts.status != "failed":
            raise ProblemError(problem("NOT_READY", detail="Only a failed job can be retried."))
        with self.files.sources_kept():
            if not self._has_source(job):
                raise ProblemError(problem("EXPIRED"))
            try:
                queued = self._rd.jobs.retry(job, owner=owner, actor="owner", reason="retried on the page")
            except NotOwnerError as error:
                raise ProblemError(problem("FORBIDDEN")) from error
            except ReplayRefusedError as error:
                # Somebody was faster, or the same file was uploaded again and has its own job.
                detail = "This file has another job already."
                raise ProblemError(problem("NOT_READY", detail=detail)) from error
            self.files.touch(self.files.source(self._upload(job).key))
        self.manual_retries += 1
        return self._view(queued)

    def change_counter(self) -> object:
        """Return a value that stays equal until something changes."""
        return self._reads.store.change_counter()

    def is_paused(self) -> bool:
        """Return whether jobs wait because the gateway is down."""
        if self.settings.breaker_mode != "hold":
            return False
        return any(one.name == BREAKER and one.phase != "closed" for one in self._reads.breakers.list())

    def purge(self, age: float | None = None) -> int:
        """Delete results and sources that are older than the retention, and old records; return how many files that were."""
        limit = self.settings.retention if age is None else age
        gone = 0
        for path in self.files.old(self.files.results, limit):
            with failures_logged("purge of a result"):
                path.unlink(missing_ok=True)
                gone += 1
                # Without its record, and for a file that somebody else put there, nothing is left to do.
                with suppress(JobNotFoundError, ValueError):
                    job = int(path.stem.partition("-")[0])
                    self._rd.jobs.free_key(job, actor="retention", reason="its result was purged")
        for path in self.files.old(self.files.sources, limit):
            # Looked at while nobody submits or retries: it may just have been used again.
            with failures_logged("purge of a source"), self.files.sources_locked():
                if self.files.is_old(path, limit) and not self._is_open(path.stem):
                    path.unlink(missing_ok=True)
                    gone += 1
        for path in self.files.old(self.files.drafts, DRAFT_SECONDS):
            with failures_logged("purge of a draft"):
                path.unlink(missing_ok=True)
        kept = self.settings.record_retention
        self._rd.prune(complete=kept, failed=kept, cancelled=kept, actor="retention")
        return gone

    def _is_open(self, key: str) -> bool:
        """Return whether a queued or processing job still needs the source of this key."""
        jobs = self._reads.store.query(job_sql.duplicate(pipeline=NAME, key=key))
        return any(self._reads.job(job).status != "complete" for job in jobs)

    def _facts(self, job: int) -> JobFacts:
        try:
            facts = self._reads.job(job).facts
        except JobNotFoundError as error:
            # Pruned, or never there: nobody needs to know which.
            raise ProblemError(problem("EXPIRED")) from error
        if facts.pipeline != NAME:
            raise ProblemError(problem("EXPIRED"))
        return facts

    def _result(self, job: int) -> Path:
        return self.files.result(job, self._upload(job).token)

    def _has_source(self, job: int) -> bool:
        key = self._upload(job).key
        return bool(key) and self.files.source(key).exists()

    def _upload(self, job: int) -> Upload:
        known = self._uploads.get(job)
        if known is None:
            known = self._keep(job, self._read(job))
        return known

    def _read(self, job: int) -> Upload:
        """Read what was submitted; only after a restart, because reading a payload is logged."""
        try:
            payload = self._rd.jobs.value(job, part="payload", actor="pdf2xml", reason="to show the job")
        except JobErasedError:
            return _LOST
        return _UPLOAD.decode(payload)

    def _keep(self, job: int, upload: Upload) -> Upload:
        if len(self._uploads) >= CACHE_MAX:
            self._uploads.clear()
        self._uploads[job] = upload
        return upload

    def _view(self, facts: JobFacts) -> JobView:
        upload = self._upload(facts.id)
        is_complete, is_failed = facts.status == "complete", facts.status == "failed"
        result = self._result(facts.id)
        finished = None if facts.finished_at is None else facts.finished_at.isoformat()
        return JobView(
            id=facts.id,
            status=facts.status,
            name=upload.name,
            mapping=upload.mapping,
            bytes=upload.bytes,
            sha256=upload.sha256,
            attempt_count=facts.dispatch,
            manual_retry_count=facts.manual_retries,
            created_at=facts.created_at.isoformat(),
            started_at=None if facts.started_at is None else facts.started_at.isoformat(),
            last_attempt_at=None if facts.last_attempt_at is None else facts.last_attempt_at.isoformat(),
            next_attempt_at=facts.run_at.isoformat() if facts.waiting == "retry" else None,
            finished_at=finished,
            failed_at=finished if is_failed else None,
            result_path=f"results/{result.name}" if is_complete else None,
            error_code=facts.error_code,
            error_message=self._line(facts) if is_failed else None,
            is_expired=is_complete and not result.exists(),
            is_retryable=is_failed and self._has_source(facts.id),
        )

    def _line(self, facts: JobFacts) -> str:
        code = facts.error_code or "UNKNOWN"
        if code != "GW_4XX":
            return line_of(code)
        notes = self._reads.job(facts.id).attempts()[-1].notes or {}
        return line_of(code, notes.get("gateway_message", ""))


@contextmanager
def failures_logged(what: str) -> Generator[None]:
    """Log a failure of the store or the disk, and continue: the next time may succeed."""
    try:
        yield
    except (RedriveError, OSError) as error:
        logger.warning("%s: %s", what, redrive.redact(f"{type(error).__name__}: {error}"))


def problem(code: str, *, detail: str = "", job: JobView | None = None) -> Problem:
    """Return the answer to a request that fails with this code; its line is the title."""
    return Problem(STATUSES[code], code, LINES[code], detail, {} if job is None else {"job": job})


def _check_owner(facts: JobFacts, owner: str) -> None:
    if facts.owner != owner:
        raise ProblemError(problem("FORBIDDEN"))
