# SPDX-License-Identifier: Apache-2.0
"""Where failures are written down: `logs/{severity}/error_{timestamp}_{email_id}.json` and `dlq/{operation_type}/{dlq_id}.json`.

The files are a copy for people and programs; what counts is the database. So they are brought up to date from it, never the other
way round, and a file that is lost loses no work. They can only be read by their owner, and no id can lead out of the folder.
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
    stamp,
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
    """Return what a dead letter in this state is called here."""
    status = _STATUSES[state]
    return DLQStatus.FAILED if is_escalated and status is DLQStatus.PENDING else status


class ErrorLog:
    """The folder of error records."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, record: ErrorRecord) -> Path:
        """Add a record as one line; the same record twice is one line, because the engine may tell a failure twice."""
        folder = self._folder / record.severity.value
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / f"error_{stamp(record.timestamp)}_{safe_name(record.email_id)}.json"
        line = json.dumps(record.to_json(), ensure_ascii=False) + "\n"
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(opened, "r+", encoding="utf-8") as file:
            if line not in file:
                file.write(line)
        return path

    def failed(self, event: Event) -> None:
        """Write down an attempt that failed; a hook of the pipeline."""
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

    def gave_up(self, operation: Operation, event: CallEvent) -> ErrorRecord:
        """Write down a call that was given up before there was any mail; a hook of a guard."""
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
    """The folder of dead letters: where the pipeline's sink writes, and what `collabiq dlq` reads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def sink(self) -> Files:
        """Return the sink: the engine's files, under our names and in our form."""
        return Files(
            self._folder,
            name="dlq",
            payload="include",
            input="include",
            layout=lambda letter: _place(_entry_of(letter)),
            form=lambda letter: _entry_of(letter).to_json(),
        )

    def put(self, entry: DLQEntry) -> None:
        """Write an entry that no sink writes, because it is about no job."""
        _write(self._folder / _place(entry), entry.to_json())

    def entries(self) -> list[DLQEntry]:
        """Return the entries, oldest first; a file that is none is passed over."""
        found = (entry for _, _, entry in self._files())
        return sorted(found, key=lambda each: (each.last_attempt, each.dlq_id))

    def refresh(self, rd: Redrive) -> None:
        """Bring entries that have not ended up to date with the database, and add those that were replayed to the list of them."""
        before = self.processed_ids()
        done = set(before)
        for path, told, entry in self._files():
            state, is_escalated, closed_at = state_of(rd, entry)
            if entry.processed or state is None:
                continue
            moved = entry.moved(status_of(state, is_escalated=is_escalated), closed_at)
            if moved != entry:
                _write(path, {**told, **moved.to_json()})
            if moved.processed:
                done.add(entry.dlq_id)
        if done != before:
            _write(self._folder / PROCESSED, sorted(done))

    def processed_ids(self) -> set[str]:
        """Return the ids of the entries that were replayed with success; none of them is replayed again."""
        try:
            return msgspec.json.decode((self._folder / PROCESSED).read_bytes(), type=set[str])
        except FileNotFoundError:
            return set()

    def _files(self) -> Iterator[tuple[Path, Mapping[str, object], DLQEntry]]:
        for path in sorted(self._folder.glob("*/*.json")):
            try:
                told = msgspec.json.decode(path.read_bytes(), type=dict[str, object])
                yield path, told, DLQEntry.from_json(told)
            except (msgspec.MsgspecError, ConfigurationError):
                continue


def state_of(rd: Redrive, entry: DLQEntry) -> tuple[str | None, bool, datetime | None]:
    """Return the state of the letter behind an entry, whether it is escalated, and when it was closed; None when there is none."""
    letter_id = entry.error_details.get("letter_id")
    try:
        letter = rd.dead_letters.show(letter_id).letter if isinstance(letter_id, int) else None
    except LetterNotFoundError:
        letter = None
    return (None, False, None) if letter is None else (letter.state, letter.is_escalated, letter.closed_at)


def files_of(settings: Settings) -> tuple[ErrorLog, DlqFiles]:
    """Return where failures are written down."""
    return ErrorLog(settings.root / "logs"), DlqFiles(settings.root / "dlq")


def _place(entry: DLQEntry) -> str:
    return f"{entry.operation_type}/{safe_name(entry.dlq_id)}.json"


def _write(path: Path, told: object) -> None:
    write_file(path, msgspec.json.format(msgspec.json.encode(told), indent=2) + b"\n")


def _entry_of(letter: SunkLetter) -> DLQEntry:
    # The key is redacted on its way out; the payload is not.
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
