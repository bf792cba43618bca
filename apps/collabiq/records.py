# SPDX-License-Identifier: Apache-2.0
"""CollabIQ's records of failures: an error record for each failure, and an entry for each dead letter.

Values only, checked when they are created; `files` writes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Annotated, Final, Literal, Self

import msgspec
from msgspec import Meta

from apps.collabiq.values import Count, Instant, Text, check, check_fields
from redrive import redact, redact_mapping

Operation = Literal["gmail_fetch", "gemini_extract", "notion_write", "infisical_fetch"]
MAIL_PIPELINE: Final = "collabiq"
KEYS_PIPELINE: Final = "collabiq-keys"
PIPELINES: Final = (MAIL_PIPELINE, KEYS_PIPELINE)
"""The pipelines whose dead letters are CollabIQ's."""
SYSTEM: Final = "system"
"""The e-mail id of failures before any mail is read."""


class ErrorSeverity(Enum):
    """The severity of an error."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"
    CRITICAL = "CRITICAL"


class ErrorCategory(Enum):
    """The category of an error."""

    TRANSIENT = "TRANSIENT"  # network, timeouts, 5xx, rate limits
    PERMANENT = "PERMANENT"  # 4xx except 429, and malformed content
    CRITICAL = "CRITICAL"  # credentials


class DLQStatus(Enum):
    """The status of a dead letter."""

    PENDING = "pending"
    REPLAYING = "replaying"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRecord:
    """One error. Texts are redacted when it is created; the e-mail id is not."""

    timestamp: Instant
    severity: ErrorSeverity
    category: ErrorCategory
    message: Text
    error_type: str
    stack_trace: str | None = None
    context: Mapping[str, object]
    http_status: int | None = None
    retry_count: Count = 0

    def __post_init__(self) -> None:
        check_fields(self)
        context = self.context
        has_both = all(context.get(name) for name in ("email_id", "operation"))
        check(self, "context", context, "must have email_id and operation", ok=has_both)
        object.__setattr__(self, "context", {**_redacted(context), "email_id": context["email_id"]})
        object.__setattr__(self, "message", redact(self.message))
        object.__setattr__(self, "stack_trace", self.stack_trace and redact(self.stack_trace))

    @property
    def email_id(self) -> str:
        """The id of the mail."""
        return str(self.context["email_id"])

    def to_json(self) -> dict[str, object]:
        """Return it as what JSON can hold."""
        return msgspec.convert(msgspec.to_builtins(self), dict[str, object])


@dataclass(frozen=True, slots=True, kw_only=True)
class DLQEntry:
    """One dead letter: the operation, why it failed, and its status since then."""

    dlq_id: Annotated[str, Meta(pattern="^dlq_")]
    email_id: Text
    operation_type: Operation
    status: DLQStatus
    original_payload: Annotated[Mapping[str, object], Meta(min_length=1)]
    """The unchanged input of a replay: the e-mail id, the mail, or the page."""
    error_details: Mapping[str, object]
    """error_type, error_message, retry_count and more; redacted."""
    created_at: Instant
    last_attempt: Instant
    replayed_at: Instant | None = None
    processed: bool = False
    """True when it was replayed successfully, and must not be replayed again."""

    def __post_init__(self) -> None:
        check_fields(self)
        details = self.error_details
        retries = details.get("retry_count")
        has_all = {"error_type", "error_message", "retry_count"} <= set(details)
        check(self, "error_details", details, "must have error_type, error_message, retry_count", ok=has_all)
        is_count = isinstance(retries, int) and not isinstance(retries, bool) and retries >= 0
        check(self, "error_details.retry_count", retries, "must be at least 0", ok=is_count)
        instants = [self.created_at, self.last_attempt, *([self.replayed_at] if self.replayed_at else [])]
        rule = "must be so that created_at <= last_attempt <= replayed_at"
        check(self, "last_attempt", instants, rule, ok=instants == sorted(instants))
        object.__setattr__(self, "error_details", _redacted(details))

    def to_json(self) -> dict[str, object]:
        """Return it as what JSON can hold."""
        return msgspec.convert(msgspec.to_builtins(self), dict[str, object])

    @classmethod
    def from_json(cls, content: Mapping[str, object]) -> Self:
        """Return an entry from its JSON.

        Raises:
            ConfigurationError: it breaks a rule.
            msgspec.ValidationError: it does not fit the schema.
        """
        return msgspec.convert(dict(content), cls)

    def with_status(self, status: DLQStatus, replayed_at: datetime | None) -> DLQEntry:
        """Return the entry with the current status of its letter."""
        is_done = status is DLQStatus.COMPLETED
        return replace(self, status=status, replayed_at=replayed_at if is_done else None, processed=is_done)


def dlq_id_of(at: datetime, email_id: str) -> str:
    """Return the id of a mail's dead letter of this instant."""
    return f"dlq_{timestamp_name(at)}_{email_id}"


def timestamp_name(at: datetime) -> str:
    """Return an instant as part of a name; with microseconds, because a mail can fail twice in a second."""
    return f"{at:%Y%m%d_%H%M%S_%f}"


def _redacted(values: Mapping[str, object]) -> dict[str, object]:
    return msgspec.convert(redact_mapping(dict(values)), dict[str, object])
