# SPDX-License-Identifier: Apache-2.0
"""What CollabIQ writes down about failures: an error record for each, and an entry for each dead letter.

Values only, checked when they are made; where they are written is `files`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Final, Self

import msgspec

from redrive import ConfigurationError, redact, redact_mapping

OPERATIONS: Final = ("gmail_fetch", "gemini_extract", "notion_write", "infisical_fetch")
SYSTEM: Final = "system"
"""The e-mail id of what happens before any mail is read."""


class ErrorSeverity(Enum):
    """How loud."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"
    CRITICAL = "CRITICAL"


class ErrorCategory(Enum):
    """What kind."""

    TRANSIENT = "TRANSIENT"  # network, time-outs, 5xx, rate limits
    PERMANENT = "PERMANENT"  # 4xx but 429, and what does not have the right form
    CRITICAL = "CRITICAL"  # credentials


class DLQStatus(Enum):
    """What becomes of a dead letter."""

    PENDING = "pending"
    REPLAYING = "replaying"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRecord:
    """One error. Texts are redacted when it is made; the e-mail id is kept whole."""

    timestamp: datetime
    severity: ErrorSeverity
    category: ErrorCategory
    message: str
    error_type: str
    context: Mapping[str, object]
    stack_trace: str | None = None
    http_status: int | None = None
    retry_count: int = 0

    def __post_init__(self) -> None:
        _check_instant("ErrorRecord.timestamp", self.timestamp)
        _check(
            "ErrorRecord.severity",
            self.severity,
            "must be an ErrorSeverity",
            ok=isinstance(self.severity, ErrorSeverity),
        )
        _check(
            "ErrorRecord.category",
            self.category,
            "must be an ErrorCategory",
            ok=isinstance(self.category, ErrorCategory),
        )
        _check("ErrorRecord.message", self.message, "must say something", ok=bool(self.message.strip()))
        has_both = all(self.context.get(name) for name in ("email_id", "operation"))
        _check("ErrorRecord.context", sorted(self.context), "must have email_id and operation", ok=has_both)
        _check_count("ErrorRecord.retry_count", self.retry_count)
        clean = {**_redacted(self.context), "email_id": self.context["email_id"]}
        object.__setattr__(self, "context", clean)
        object.__setattr__(self, "message", redact(self.message))
        object.__setattr__(
            self, "stack_trace", None if self.stack_trace is None else redact(self.stack_trace)
        )

    @property
    def email_id(self) -> str:
        """The mail it is about."""
        return str(self.context["email_id"])

    def to_json(self) -> dict[str, object]:
        """Return it as what JSON can hold."""
        return {
            "timestamp": self.timestamp.isoformat(),
            "severity": self.severity.value,
            "category": self.category.value,
            "message": self.message,
            "error_type": self.error_type,
            "stack_trace": self.stack_trace,
            "context": dict(self.context),
            "http_status": self.http_status,
            "retry_count": self.retry_count,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DLQEntry:
    """One dead letter: what was to be done, why it could not be done, and what became of it since."""

    dlq_id: str
    email_id: str
    operation_type: str
    status: DLQStatus
    original_payload: Mapping[str, object]
    """What a replay starts with, as it was: the e-mail id, the mail, or the page."""
    error_details: Mapping[str, object]
    """error_type, error_message, retry_count and more; redacted."""
    created_at: datetime
    last_attempt: datetime
    replayed_at: datetime | None = None
    processed: bool = False
    """True when it was replayed with success, and must not be again."""

    def __post_init__(self) -> None:
        _check("DLQEntry.dlq_id", self.dlq_id, "must start with dlq_", ok=self.dlq_id.startswith("dlq_"))
        _check("DLQEntry.email_id", self.email_id, "must not be empty", ok=bool(self.email_id))
        _check(
            "DLQEntry.operation_type",
            self.operation_type,
            f"must be one of {', '.join(OPERATIONS)}",
            ok=self.operation_type in OPERATIONS,
        )
        _check("DLQEntry.status", self.status, "must be a DLQStatus", ok=isinstance(self.status, DLQStatus))
        is_payload = isinstance(self.original_payload, Mapping) and bool(self.original_payload)
        _check(
            "DLQEntry.original_payload",
            type(self.original_payload).__name__,
            "must be a mapping with something in it",
            ok=is_payload,
        )
        has_all = {"error_type", "error_message", "retry_count"} <= set(self.error_details)
        _check(
            "DLQEntry.error_details",
            sorted(self.error_details),
            "must have error_type, error_message and retry_count",
            ok=has_all,
        )
        _check_count("DLQEntry.error_details.retry_count", self.error_details["retry_count"])
        instants = [self.created_at, self.last_attempt, *([self.replayed_at] if self.replayed_at else [])]
        for each in instants:
            _check_instant("DLQEntry", each)
        _check(
            "DLQEntry",
            instants,
            "must have created_at <= last_attempt <= replayed_at",
            ok=instants == sorted(instants),
        )
        object.__setattr__(self, "error_details", _redacted(self.error_details))

    def to_json(self) -> dict[str, object]:
        """Return it as what JSON can hold."""
        return {
            "dlq_id": self.dlq_id,
            "email_id": self.email_id,
            "operation_type": self.operation_type,
            "status": self.status.value,
            "original_payload": dict(self.original_payload),
            "error_details": dict(self.error_details),
            "created_at": self.created_at.isoformat(),
            "last_attempt": self.last_attempt.isoformat(),
            "replayed_at": self.replayed_at.isoformat() if self.replayed_at else None,
            "processed": self.processed,
        }

    @classmethod
    def from_json(cls, told: Mapping[str, object]) -> Self:
        """Return an entry as it was written.

        Raises:
            ConfigurationError: it breaks a rule.
            msgspec.ValidationError: it does not have the form.
        """
        return msgspec.convert(dict(told), cls)

    def moved(self, status: DLQStatus, replayed_at: datetime | None) -> DLQEntry:
        """Return the entry as it is now that its letter has this status."""
        is_done = status is DLQStatus.COMPLETED
        return replace(self, status=status, replayed_at=replayed_at if is_done else None, processed=is_done)


def dlq_id_of(at: datetime, email_id: str) -> str:
    """Return the id of the dead letter that a mail got at this moment."""
    return f"dlq_{stamp(at)}_{email_id}"


def stamp(at: datetime) -> str:
    """Return an instant as part of a name; to the microsecond, because a mail can fail twice in a second."""
    return f"{at:%Y%m%d_%H%M%S_%f}"


def _redacted(values: Mapping[str, object]) -> dict[str, object]:
    return msgspec.convert(redact_mapping(dict(values)), dict[str, object])


def _check(field: str, value: object, rule: str, *, ok: bool) -> None:
    if not ok:
        raise ConfigurationError(
            field=field, value=value, rule=rule, fix="apps/collabiq/records.py has the rules."
        )


def _check_instant(field: str, value: object) -> None:
    is_aware = isinstance(value, datetime) and value.tzinfo is not None
    _check(field, value, "must be a datetime with a time zone", ok=is_aware)


def _check_count(field: str, value: object) -> None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    _check(field, value, "must be a whole number of at least 0", ok=is_count)
