# SPDX-License-Identifier: Apache-2.0
"""Write failures to files: `logs/{severity}/error_{timestamp}_{email_id}.json` and `dlq/{operation_type}/{dlq_id}.json`.

The files are a copy for people and programs; the database is authoritative. Files are updated from it, never the other way round,
so losing or damaging a file loses no work. Only their owner can read them, and no id can lead out of the folder.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import threading
import traceback
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import msgspec

from apps.collabiq.codes import CLASSES
from apps.collabiq.records import (
    KEYS_PIPELINE,
    PIPELINES,
    SYSTEM,
    DLQEntry,
    DLQStatus,
    ErrorCategory,
    ErrorRecord,
    ErrorSeverity,
    Operation,
    dlq_id_of,
    timestamp_name,
)
from apps.collabiq.settings import Settings
from redrive import CallEvent, Context, Event, Redrive
from redrive.engine.runtime import CURRENT
from redrive.sinks import SunkLetter, safe_name, write_file
from redrive.store.records import Part
from redrive.store.statements import triage as triage_sql

if TYPE_CHECKING:
    from redrive.store.statements.letters import DeadLetter, LetterLine

logger = logging.getLogger("collabiq.files")

BREAKER_OPEN: Final = "BREAKER_OPEN"
REFUSED: Final = "CircuitBreakerOpen"
PROCESSED: Final = ".processed_ids.json"
LINES: Final = 500
"""Dead letters that are read at once."""
WAITING: Final = ("open", "triaged", "ready")
"""States of a dead letter that can be replayed."""
PAST: Final = ("resolved", "returned")
"""States of a dead letter whose replay has ended."""
ERASED: Final[Mapping[str, object]] = {"erased": True}
"""Stands for a payload that was erased."""
RETRY_COUNT: Final = "retry_count"
STACKS_MAX: Final = 1_000
_STATUSES: Final = {
    **dict.fromkeys(WAITING, DLQStatus.PENDING),
    "replaying": DLQStatus.REPLAYING,
    "resolved": DLQStatus.COMPLETED,
    "returned": DLQStatus.FAILED,
    "discarded": DLQStatus.COMPLETED,
}


def status_of(state: str, *, is_escalated: bool) -> DLQStatus:
    """Return CollabIQ's status for a dead letter in this state."""
    status = _STATUSES[state]
    return DLQStatus.FAILED if is_escalated and status is DLQStatus.PENDING else status


class ErrorLog:
    """The folder of error records."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, record: ErrorRecord) -> Path:
        """Add a record as one line; the same record is added once, although the engine may report a failure twice."""
        folder = self._folder / record.severity.value
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / f"error_{timestamp_name(record.timestamp)}_{safe_name(record.email_id)}.json"
        line = json.dumps(record.to_json(), ensure_ascii=False) + "\n"
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(opened, "r+", encoding="utf-8") as file:
            if line not in file:
                file.write(line)
        return path

    def failed(self, event: Event) -> None:
        """Record a failed attempt; a hook of the pipeline."""
        category = _category(event.code, event.reason)
        # Taken in any case: the number of an attempt comes again after a replay.
        stack = STACKS.pop(event)
        self.write(
            ErrorRecord(
                timestamp=event.at,
                severity=_severity(category, is_last=event.kind == "dead"),
                category=category,
                message=event.message or event.sentence,
                error_type=_error_type(event.code, event.exception),
                stack_trace=event.stack or stack or _no_stack(event.code, event.sentence),
                context={
                    "email_id": event.key or f"job-{event.job_id}",
                    "operation": event.stage,
                    "code": event.code,
                    "job_id": event.job_id,
                    "decision": event.sentence,
                },
                http_status=event.http_status,
                retry_count=event.attempt - 1,
            )
        )

    def call_failed(self, operation: Operation, event: CallEvent, error: Exception | None) -> None:
        """Record a failed attempt of a call before any mail is read; `error` is what it raised."""
        failure = event.failure
        code = BREAKER_OPEN if failure is None else failure.code
        category = _category(code, event.reason)
        self.write(
            ErrorRecord(
                timestamp=datetime.fromtimestamp(CURRENT.get().clock.wall(), UTC),
                severity=_severity(category, is_last=event.kind == "dead"),
                category=category,
                message=event.sentence if failure is None else failure.message or event.sentence,
                error_type=_error_type(code, "" if failure is None else failure.exception),
                stack_trace=None if error is None else stack_of(error),
                context={"email_id": SYSTEM, "operation": operation, "decision": event.sentence},
                http_status=None if failure is None else failure.http_status,
                retry_count=max(0, event.attempt - 1),
            )
        )


class Stacks:
    """The stacks of attempts that will be retried, which the engine does not keep, until their event comes."""

    def __init__(self) -> None:
        self._stacks: dict[tuple[int, str, int], str] = {}

    @contextmanager
    def kept(self, ctx: Context) -> Generator[None]:
        """Keep the stack of what the block raises."""
        try:
            yield
        except Exception as error:
            while len(self._stacks) >= STACKS_MAX:
                self._stacks.pop(next(iter(self._stacks)), None)
            self._stacks[ctx.job_id, ctx.stage, ctx.attempt] = stack_of(error)
            raise

    def pop(self, event: Event) -> str | None:
        """Return the stack of an event's attempt; None if another process ran it."""
        return self._stacks.pop((event.job_id, event.stage, event.attempt), None)

    def clear(self) -> None:
        """Forget all of them, before this process works on another database."""
        self._stacks.clear()


STACKS: Final = Stacks()
"""The stacks of this process: the worker runs the stages and calls the hooks in one."""


def stack_of(error: Exception) -> str:
    """Return where an error was raised, and its class; not its message, which may quote the mail."""
    kind = type(error)
    frames = "".join(traceback.format_tb(error.__traceback__))
    return f"Traceback (most recent call last):\n{frames}{kind.__module__}.{kind.__qualname__}"


def _no_stack(code: str, sentence: str) -> str | None:
    """Return what stands for the stack of a call that a breaker refused: nothing was called."""
    return f"{REFUSED}: {sentence}" if code == BREAKER_OPEN else None


def _category(code: str, reason: str) -> ErrorCategory:
    """Return the category of a failure; one that no retry follows by its kind is not transient."""
    category = ErrorCategory(CLASSES.for_code(code).name)
    is_tried_once = reason in {"permanent", "given_up"} and code != BREAKER_OPEN
    is_permanent = is_tried_once and category is ErrorCategory.TRANSIENT
    return ErrorCategory.PERMANENT if is_permanent else category


def _error_type(code: str, exception: str) -> str:
    return REFUSED if code == BREAKER_OPEN else exception or code


def _severity(category: ErrorCategory, *, is_last: bool) -> ErrorSeverity:
    if category is ErrorCategory.CRITICAL:
        return ErrorSeverity.CRITICAL
    return ErrorSeverity.ERROR if is_last else ErrorSeverity.WARNING


class DlqFiles:
    """The folder of dead letters: a copy of the database's. As a sink it gets every letter at once; every command updates it."""

    name: Final = "dlq"
    payload: Final = "include"
    input: Final = "include"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()

    def deliver(self, letter: SunkLetter) -> None:
        """Write the file of a dead letter that has changed; raises OSError, and the engine tries it again."""
        entry = _entry_of_sunk(letter)
        path = self._folder / _place(entry)
        if letter.input is None:
            entry = _with_payload(entry, _read_object(path).get("original_payload"))
        if entry.processed:
            # The list first: a file that is marked as processed is then always in the list.
            self._update_processed([entry], is_expected=False)
        _write(path, entry.to_json())

    def update(self, rd: Redrive) -> list[DLQEntry]:
        """Write every file that differs from the database, and return the entries of all dead letters, oldest first."""
        entries: list[DLQEntry] = []
        is_expected = False
        for line in letter_lines(rd):
            entry = _entry_of(rd, line.id)
            content = _read_object(self._folder / _place(entry))
            if line.state in PAST:
                # The job has left the stage; only the file, written when it failed, still has that stage's input.
                entry = _with_payload(entry, content.get("original_payload"))
            is_expected = is_expected or content.get("processed") is True
            if content != entry.to_json():
                _try_to_write(self._folder / _place(entry), entry.to_json())
            entries.append(entry)
        self._update_processed(entries, is_expected=is_expected)
        return sorted(entries, key=lambda each: (each.last_attempt, each.dlq_id))

    def processed_ids(self) -> set[str]:
        """Return the ids of entries that are done with and never replayed again, also those of an earlier database."""
        try:
            return msgspec.json.decode((self._folder / PROCESSED).read_bytes(), type=set[str])
        except (OSError, msgspec.MsgspecError):
            return set()

    def _update_processed(self, entries: Collection[DLQEntry], *, is_expected: bool) -> None:
        with self._lock:
            self._write_processed(entries, is_expected=is_expected)

    def _write_processed(self, entries: Collection[DLQEntry], *, is_expected: bool) -> None:
        path = self._folder / PROCESSED
        before = self.processed_ids()
        done = before.difference(each.dlq_id for each in entries if not each.processed)
        done |= {each.dlq_id for each in entries if each.processed}
        is_damaged = path.exists() and not before and _read_bytes(path).strip() != b"[]"
        if done == before and not is_damaged:
            return
        if is_damaged or (is_expected and not path.exists()):
            how = "damaged" if is_damaged else "missing"
            logger.warning("%s was %s; it is rebuilt from the database with %d ids", path, how, len(done))
        _try_to_write(path, sorted(done))


def letter_lines(rd: Redrive) -> Iterator[LetterLine]:
    """Yield a line for every dead letter of CollabIQ, newest first."""
    cursor: str | None = None
    while True:
        page = rd.letters.list(before=cursor, limit=LINES)
        yield from (line for line in page.letters if line.pipeline in PIPELINES)
        cursor = page.next_cursor
        if cursor is None:
            return


def files_of(settings: Settings) -> tuple[ErrorLog, DlqFiles]:
    """Return the error log and the dead-letter files."""
    return ErrorLog(settings.root / "logs"), DlqFiles(settings.root / "dlq")


def _place(entry: DLQEntry) -> str:
    return f"{entry.operation_type}/{safe_name(entry.dlq_id)}.json"


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _read_object(path: Path) -> dict[str, object]:
    """Return the members of a JSON file; none if it is missing or damaged."""
    try:
        return msgspec.json.decode(_read_bytes(path), type=dict[str, object])
    except msgspec.MsgspecError:
        return {}


def _write(path: Path, content: object) -> None:
    if path.parent.is_symlink():
        # A link there could have mail written anywhere.
        raise NotADirectoryError(errno.ENOTDIR, "is a symbolic link; make it a folder", str(path.parent))
    write_file(path, msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")


def _try_to_write(path: Path, content: object) -> None:
    """Write a file; if that fails, only a copy is missing, so the command continues."""
    try:
        _write(path, content)
    except OSError as error:
        logger.warning("cannot write %s: %s", path, error.strerror or type(error).__name__)


def _entry_of(rd: Redrive, letter_id: int) -> DLQEntry:
    """Return the entry of a dead letter as it is in the database."""
    found = rd.letters.show(letter_id)
    letter = found.letter
    email_id = letter.key or _id_without_mail(letter.pipeline, letter.job)
    context = cast("dict[str, object]", letter.sanitized_context)
    details = _details(letter, context, job_id=letter.job, letter_id=letter.id)
    if letter.state == "returned":
        details["successor"] = None
    if letter.followed_by is not None:
        after = rd.letters.show(letter.followed_by).letter
        details["successor"] = dlq_id_of(after.last_failure_at, email_id)
        details["replay_failure"] = {
            "error_type": _error_type(after.code, after.exception),
            "error_message": after.message,
        }
    if letter.state == "discarded":
        details["note"] = next((each.reason for each in reversed(found.operations) if each.reason), None)
    entry = DLQEntry(
        dlq_id=dlq_id_of(letter.last_failure_at, email_id),
        email_id=email_id,
        operation_type=cast("Operation", letter.stage),
        status=DLQStatus.PENDING,
        original_payload=_input_of(rd, letter),
        error_details=details,
        created_at=min(letter.first_failure_at, letter.last_failure_at),
        last_attempt=letter.last_failure_at,
    )
    return _with_state(entry, letter, letter.closed_at)


def _id_without_mail(pipeline: str, job: int) -> str:
    return SYSTEM if pipeline == KEYS_PIPELINE else f"job-{job}"


def _input_of(rd: Redrive, letter: DeadLetter) -> dict[str, object]:
    """Return what a replay starts with; after the job has left the stage, its payload."""
    part: Part = "payload" if letter.state in PAST else "input"
    for row in rd.store.query(triage_sql.letter_values(letter=letter.id, part=part)):
        if row.original is not None:
            return msgspec.json.decode(row.original, type=dict[str, object])
    return dict(ERASED)


def _with_payload(entry: DLQEntry, payload: object) -> DLQEntry:
    if not isinstance(payload, dict) or not payload or entry.original_payload == ERASED:
        return entry
    return replace(entry, original_payload=cast("dict[str, object]", payload))


def _entry_of_sunk(letter: SunkLetter) -> DLQEntry:
    # The sink gets the key redacted, but not the payload.
    payload = cast("dict[str, object]", letter.payload or {})
    email_id = str(payload.get("email_id") or letter.key or _id_without_mail(letter.pipeline, letter.job_id))
    entry = DLQEntry(
        dlq_id=dlq_id_of(letter.last_failure_at, email_id),
        email_id=email_id,
        operation_type=cast("Operation", letter.stage),
        status=DLQStatus.PENDING,
        original_payload=cast("dict[str, object]", letter.input or letter.payload or ERASED),
        error_details=_details(
            letter, letter.sanitized_context, job_id=letter.job_id, letter_id=letter.letter_id
        ),
        created_at=letter.first_failure_at,
        last_attempt=letter.last_failure_at,
    )
    return _with_state(entry, letter, letter.changed_at)


def _with_state(entry: DLQEntry, letter: SunkLetter | DeadLetter, closed_at: datetime | None) -> DLQEntry:
    """Return an entry with the status of its letter; `closed_at` is when the letter was resolved."""
    is_resolved = letter.state == "resolved"
    replayed_at = max(closed_at or entry.last_attempt, entry.last_attempt) if is_resolved else None
    return entry.with_status(status_of(letter.state, is_escalated=letter.is_escalated), replayed_at)


def _details(
    letter: SunkLetter | DeadLetter, context: Mapping[str, object], *, job_id: int, letter_id: int | None
) -> dict[str, object]:
    return {
        "error_type": _error_type(letter.code, letter.exception),
        "error_message": letter.message,
        "stack_trace": letter.last_stack,
        RETRY_COUNT: _retry_count(context),
        "code": letter.code,
        "reason": letter.reason,
        "job_id": job_id,
        "letter_id": letter_id,
    }


def _retry_count(context: Mapping[str, object]) -> int:
    """Return the retries of a job; of the keys, which are loaded before their job is made, the retries are in a note."""
    notes = context.get("notes")
    if isinstance(notes, dict) and RETRY_COUNT in notes:
        return int(str(cast("dict[str, object]", notes)[RETRY_COUNT]))
    attempt = context.get("attempt")
    return max(0, attempt - 1) if isinstance(attempt, int) else 0
