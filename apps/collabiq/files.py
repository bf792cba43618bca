# SPDX-License-Identifier: Apache-2.0
"""Write failures to files: `logs/{severity}/error_{timestamp}_{email_id}.json` and `dlq/{operation_type}/{dlq_id}.json`.

The files are a copy for people and programs; the database is authoritative. Files are updated from it, never the other way round,
so losing a file loses no work. Only their owner can read them, and no id can lead out of the folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, cast

import msgspec

from apps.collabiq.codes import CLASSES
from apps.collabiq.records import (
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
from redrive import CallEvent, ConfigurationError, Event, Redrive
from redrive.errors import LetterNotFoundError
from redrive.sinks import Files, SunkLetter, safe_name, write_file

BREAKER_OPEN: Final = "BREAKER_OPEN"
REFUSED: Final = "CircuitBreakerOpen"
PROCESSED: Final = ".processed_ids.json"
WAITING: Final = ("open", "triaged", "ready")
"""States of a dead letter that can be replayed."""
_STATUSES: Final = {
    **dict.fromkeys(WAITING, DLQStatus.PENDING),
    "replaying": DLQStatus.REPLAYING,
    "resolved": DLQStatus.COMPLETED,
    "returned": DLQStatus.FAILED,
    "discarded": DLQStatus.FAILED,
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
        category = ErrorCategory(CLASSES.for_code(event.code).name)
        self.write(
            ErrorRecord(
                timestamp=event.at,
                severity=_severity(category, is_last=event.kind == "dead"),
                category=category,
                message=event.message or event.sentence,
                error_type=_error_type(event.code, event.error_class),
                stack_trace=event.stack or None,
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

    def given_up(self, operation: Operation, event: CallEvent) -> ErrorRecord:
        """Record a guarded call that failed before any mail was read; a hook of a guard."""
        failure = event.failure
        code = BREAKER_OPEN if failure is None else failure.code
        category = ErrorCategory(CLASSES.for_code(code).name)
        record = ErrorRecord(
            timestamp=datetime.now(UTC),
            severity=_severity(category, is_last=True),
            category=category,
            message=event.sentence if failure is None else failure.message or event.sentence,
            error_type=_error_type(code, "" if failure is None else failure.error_class),
            context={"email_id": SYSTEM, "operation": operation, "decision": event.sentence},
            http_status=None if failure is None else failure.http_status,
            retry_count=max(0, event.attempt - 1),
        )
        self.write(record)
        return record


def _error_type(code: str, error_class: str) -> str:
    return REFUSED if code == BREAKER_OPEN else error_class or code


def _severity(category: ErrorCategory, *, is_last: bool) -> ErrorSeverity:
    if category is ErrorCategory.CRITICAL:
        return ErrorSeverity.CRITICAL
    return ErrorSeverity.ERROR if is_last else ErrorSeverity.WARNING


class DlqFiles:
    """The folder of dead letters: the pipeline's sink writes it, `collabiq dlq` reads it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def sink(self) -> Files:
        """Return the engine's file sink with CollabIQ's names and format."""
        return Files(
            self._folder,
            name="dlq",
            payload="include",
            input="include",
            layout=lambda letter: _place(_entry_of(letter)),
            form=lambda letter: _entry_of(letter).to_json(),
        )

    def put(self, entry: DLQEntry) -> None:
        """Write an entry that is not about a job, so that no sink writes it."""
        _write(self._folder / _place(entry), entry.to_json())

    def entries(self) -> list[DLQEntry]:
        """Return the entries, oldest first; skip files that are not entries."""
        found = (entry for _, _, entry in self._files())
        return sorted(found, key=lambda each: (each.last_attempt, each.dlq_id))

    def refresh(self, rd: Redrive) -> None:
        """Update open entries from the database, and add replayed ones to the list of processed ids."""
        before = self.processed_ids()
        done = set(before)
        for path, content, entry in self._files():
            state, is_escalated, closed_at = state_of(rd, entry)
            if entry.processed or state is None:
                continue
            updated = entry.with_status(status_of(state, is_escalated=is_escalated), closed_at)
            if updated != entry:
                _write(path, {**content, **updated.to_json()})
            if updated.processed:
                done.add(entry.dlq_id)
        if done != before:
            _write(self._folder / PROCESSED, sorted(done))

    def processed_ids(self) -> set[str]:
        """Return the ids of successfully replayed entries, which are never replayed again."""
        try:
            return msgspec.json.decode((self._folder / PROCESSED).read_bytes(), type=set[str])
        except FileNotFoundError:
            return set()

    def _files(self) -> Iterator[tuple[Path, Mapping[str, object], DLQEntry]]:
        for path in sorted(self._folder.glob("*/*.json")):
            try:
                content = msgspec.json.decode(path.read_bytes(), type=dict[str, object])
                yield path, content, DLQEntry.from_json(content)
            except (msgspec.MsgspecError, ConfigurationError):
                continue


def state_of(rd: Redrive, entry: DLQEntry) -> tuple[str | None, bool, datetime | None]:
    """Return the state of an entry's letter, whether it is escalated, and when it was closed; None when there is no letter."""
    letter_id = entry.error_details.get("letter_id")
    try:
        letter = rd.dead_letters.show(letter_id).letter if isinstance(letter_id, int) else None
    except LetterNotFoundError:
        letter = None
    return (None, False, None) if letter is None else (letter.state, letter.is_escalated, letter.closed_at)


def files_of(settings: Settings) -> tuple[ErrorLog, DlqFiles]:
    """Return the error log and the dead-letter files."""
    return ErrorLog(settings.root / "logs"), DlqFiles(settings.root / "dlq")


def _place(entry: DLQEntry) -> str:
    return f"{entry.operation_type}/{safe_name(entry.dlq_id)}.json"


def _write(path: Path, content: object) -> None:
    write_file(path, msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")


def _entry_of(letter: SunkLetter) -> DLQEntry:
    # The sink gets the key redacted, but not the payload.
    payload = cast("dict[str, object]", letter.payload or {})
    email_id = str(payload.get("email_id") or letter.key or f"job-{letter.job_id}")
    return DLQEntry(
        dlq_id=dlq_id_of(letter.last_failure_at, email_id),
        email_id=email_id,
        operation_type=cast("Operation", letter.stage),
        status=status_of("open", is_escalated=letter.is_escalated),
        original_payload=cast("dict[str, object]", letter.input or letter.payload or {"erased": True}),
        error_details={
            "error_type": _error_type(letter.code, letter.error_class),
            "error_message": letter.message,
            "stack_trace": letter.stack,
            "retry_count": max(0, cast("int", letter.context.get("attempt", 1)) - 1),
            "code": letter.code,
            "reason": letter.reason,
            "job_id": letter.job_id,
            "letter_id": letter.letter_id,
        },
        created_at=letter.first_failure_at,
        last_attempt=letter.last_failure_at,
    )
