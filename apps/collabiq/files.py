# SPDX-License-Identifier: Apache-2.0
"""Where failures are written down: `logs/{severity}/error_{timestamp}_{email_id}.json` and `dlq/{operation_type}/{dlq_id}.json`.

The files are a copy for people and programs; what counts is the database. So they are brought up to date from it, never the other
way round, and a file that is lost loses no work. They can only be read by their owner, and no id can lead out of the folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, cast

import msgspec

from apps.collabiq.codes import class_of
from apps.collabiq.records import (
    SYSTEM,
    DLQEntry,
    DLQStatus,
    ErrorCategory,
    ErrorRecord,
    ErrorSeverity,
    dlq_id_of,
    stamp,
)
from apps.collabiq.settings import Settings
from redrive import CallEvent, ConfigurationError, Event, Redrive, RedriveError
from redrive.engine.runtime import CURRENT
from redrive.errors import LetterNotFoundError
from redrive.ops.mending import value_for_edit
from redrive.sinks import Files, SunkLetter
from redrive.sinks.files import safe_name

BREAKER_OPEN: Final = "BREAKER_OPEN"
REFUSED: Final = "CircuitBreakerOpen"
ERROR_TYPE: Final = "error_type"
"""The note under which a stage keeps the class of what it raised."""
PROCESSED: Final = ".processed_ids.json"
_STATUSES: Final = {
    "open": DLQStatus.PENDING,
    "triaged": DLQStatus.PENDING,
    "ready": DLQStatus.PENDING,
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
        with os.fdopen(
            os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "r+", encoding="utf-8"
        ) as file:
            if line not in file:
                file.write(line)
        return path

    def retried(self, rd: Redrive, event: Event) -> None:
        """Write down an attempt that failed and will be made again; a hook of the pipeline."""
        job = rd.job(event.job_id)
        told = (event.stage, event.round, event.attempt, event.kind)
        made = next(
            each
            for each in reversed(job.attempts())
            if (each["stage"], each["round"], each["attempt"], each["outcome"]) == told
        )
        notes = cast("dict[str, str]", made["notes"] or {})
        category = ErrorCategory(class_of(event.code))
        self.write(
            ErrorRecord(
                timestamp=event.at,
                severity=ErrorSeverity.CRITICAL
                if category is ErrorCategory.CRITICAL
                else ErrorSeverity.WARNING,
                category=category,
                message=event.message or event.sentence,
                error_type=REFUSED if event.code == BREAKER_OPEN else notes.get(ERROR_TYPE, event.code),
                context={
                    "email_id": job.facts.key,
                    "operation": event.stage,
                    "code": event.code,
                    "job_id": event.job_id,
                    "decision": event.sentence,
                },
                http_status=cast("int | None", made["http_status"]),
                retry_count=event.attempt - 1,
            )
        )

    def gave_up(self, operation: str, event: CallEvent) -> None:
        """Write down a call that was given up before there was any mail; a hook of a guard that uses our codes."""
        failure = event.failure
        category = ErrorCategory.TRANSIENT if failure is None else ErrorCategory(failure.code)
        is_refused = failure is None or failure.canonical == BREAKER_OPEN
        self.write(
            ErrorRecord(
                timestamp=present(),
                severity=ErrorSeverity.CRITICAL
                if category is ErrorCategory.CRITICAL
                else ErrorSeverity.ERROR,
                category=category,
                message=event.sentence if failure is None else failure.message or event.sentence,
                error_type=REFUSED if is_refused or failure is None else failure.error_class,
                context={"email_id": SYSTEM, "operation": operation, "decision": event.sentence},
                http_status=None if failure is None else failure.http_status,
                retry_count=max(0, event.attempt - 1),
            )
        )


def present() -> datetime:
    """Return this moment, on the clock of whoever runs this: tests have one of their own."""
    return datetime.fromtimestamp(CURRENT.get().clock.wall(), UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Filed(DLQEntry):
    """An entry as the file sink takes it: with the engine's name for the letter, by which it knows the file again."""

    delivery: str = ""
    payload: None = None


class DlqFiles(Files):
    """The folder of dead letters: a sink of the pipeline, and what `collabiq dlq` reads."""

    def __init__(self, folder: Path, log: ErrorLog, rd: Redrive | None = None) -> None:
        super().__init__(folder, name="dlq", payload="include", layout=_place)
        self._root = folder
        self._log = log
        self._rd = rd

    def deliver(self, letter: SunkLetter) -> None:
        """Write the last error of a mail, and its dead letter."""
        self._log.write(_record_of(letter))
        self.put(_entry_of(letter, self._original(letter)), letter.delivery)

    def _original(self, letter: SunkLetter) -> dict[str, object]:
        """Return what a replay starts with: the mail for an extraction, the page for a write, else what was submitted."""
        submitted = cast("dict[str, object]", letter.payload or {"erased": True})
        if self._rd is None or letter.letter_id is None:
            return submitted
        try:
            kept = value_for_edit(self._rd.store, letter.letter_id).raw
        except RedriveError:  # Somebody was faster, and it is being replayed or was erased.
            return submitted
        return msgspec.json.decode(kept, type=dict[str, object] | None) or submitted

    def put(self, entry: DLQEntry, delivery: str) -> None:
        """Write an entry in the place of the one with the same delivery, if there is one."""
        members = {
            name: value for name, value in asdict(entry).items() if name not in {"delivery", "payload"}
        }
        filed = _Filed(**members, delivery=delivery)
        # The sink needs of a letter only what _Filed has, but writes letters as they are; there is no way to give it another form.
        super().deliver(cast("SunkLetter", filed))

    def entries(self) -> Iterator[DLQEntry]:
        """Return the entries, oldest first; a file that is none is passed over."""
        found: list[_Filed] = []
        for path in self._root.glob("*/*.json"):
            try:
                found.append(_Filed.from_json(msgspec.json.decode(path.read_bytes(), type=dict[str, object])))
            except (msgspec.MsgspecError, ConfigurationError):
                continue
        return iter(sorted(found, key=lambda each: (each.last_attempt, each.dlq_id)))

    def refresh(self, rd: Redrive) -> None:
        """Bring entries that have not ended up to date with the database, and add those that were replayed to the list of them."""
        done = self.processed_ids()
        for entry in self.entries():
            letter_id = entry.error_details.get("letter_id")
            if isinstance(entry, _Filed) and not entry.processed and isinstance(letter_id, int):
                try:
                    letter = rd.dead_letters.show(letter_id).letter
                except LetterNotFoundError:
                    continue
                status = status_of(letter.state, is_escalated=letter.is_escalated)
                if status is not entry.status:
                    self.put(entry.moved(status, letter.closed_at), entry.delivery)
                if status is DLQStatus.COMPLETED:
                    done.add(entry.dlq_id)
        if done != self.processed_ids():
            temporary = self._root / f"{PROCESSED}.tmp"
            temporary.write_text(json.dumps(sorted(done), indent=1) + "\n", encoding="utf-8")
            temporary.chmod(0o600)
            temporary.replace(self._root / PROCESSED)

    def processed_ids(self) -> set[str]:
        """Return the ids of the entries that were replayed with success; none of them is replayed again."""
        try:
            return msgspec.json.decode((self._root / PROCESSED).read_bytes(), type=set[str])
        except FileNotFoundError:
            return set()


def files_of(settings: Settings, rd: Redrive | None = None) -> tuple[ErrorLog, DlqFiles]:
    """Return where failures are written down; only with a database can dead letters be delivered with what they start with."""
    log = ErrorLog(settings.root / "logs")
    return log, DlqFiles(settings.root / "dlq", log, rd)


def _place(letter: SunkLetter) -> str:
    entry = cast("DLQEntry", letter)
    return f"{entry.operation_type}/{safe_name(entry.dlq_id)}.json"


def _entry_of(letter: SunkLetter, payload: dict[str, object]) -> DLQEntry:
    email_id = _email_id(letter)
    return DLQEntry(
        dlq_id=dlq_id_of(letter.last_failure_at, email_id),
        email_id=email_id,
        operation_type=letter.stage,
        status=status_of("open", is_escalated=letter.is_escalated),
        original_payload=payload,
        error_details={
            "error_type": _type_of(letter),
            "error_message": letter.message,
            "stack_trace": letter.stack,
            "retry_count": _retries(letter),
            "code": letter.code,
            "reason": letter.reason,
            "job_id": letter.job_id,
            "letter_id": letter.letter_id,
        },
        created_at=letter.first_failure_at,
        last_attempt=letter.last_failure_at,
    )


def _record_of(letter: SunkLetter) -> ErrorRecord:
    category = ErrorCategory(class_of(letter.code))
    return ErrorRecord(
        timestamp=letter.last_failure_at,
        severity=ErrorSeverity.CRITICAL if category is ErrorCategory.CRITICAL else ErrorSeverity.ERROR,
        category=category,
        message=letter.message or letter.reason,
        error_type=_type_of(letter),
        stack_trace=letter.stack or None,
        context={
            "email_id": _email_id(letter),
            "operation": letter.stage,
            "code": letter.code,
            "job_id": letter.job_id,
            "decision": letter.reason,
        },
        http_status=cast("int | None", letter.context.get("http_status")),
        retry_count=_retries(letter),
    )


def _email_id(letter: SunkLetter) -> str:
    # The key is redacted on its way out; the payload is not.
    payload = letter.payload
    return str(payload["email_id"]) if isinstance(payload, dict) else letter.key or f"job-{letter.job_id}"


def _type_of(letter: SunkLetter) -> str:
    return REFUSED if letter.code == BREAKER_OPEN else letter.error_class


def _retries(letter: SunkLetter) -> int:
    """Return how many attempts there were after the first one."""
    return max(0, cast("int", letter.context.get("attempt", 1)) - 1)
