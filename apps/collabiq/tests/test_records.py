# SPDX-License-Identifier: Apache-2.0
"""Error records and dead letter entries as values, and where error records are written."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_args

import pytest

from apps.collabiq.codes import CLASSES
from apps.collabiq.files import ErrorLog, status_of
from apps.collabiq.records import (
    DLQEntry,
    DLQStatus,
    ErrorCategory,
    ErrorRecord,
    ErrorSeverity,
    Operation,
    dlq_id_of,
)
from apps.collabiq.sinks import LocalPages
from redrive import ConfigurationError

AT = datetime(2025, 11, 6, 10, 15, 22, 123000, tzinfo=UTC)
EMAIL = "19a3f3f856f0b4d4"


def record(**changes: object) -> ErrorRecord:
    given: dict[str, object] = {
        "timestamp": AT,
        "severity": ErrorSeverity.ERROR,
        "category": ErrorCategory.TRANSIENT,
        "message": "Gmail API timeout during email fetch",
        "error_type": "socket.timeout",
        "stack_trace": "Traceback (most recent call last):\n  File...",
        "context": {"email_id": EMAIL, "operation": "gmail_fetch", "user": "jlim@example.com"},
        "retry_count": 2,
    }
    return ErrorRecord(**(given | changes))  # type: ignore[arg-type]


def entry(**changes: object) -> DLQEntry:
    given: dict[str, object] = {
        "dlq_id": "dlq_20251106_101522_abc123",
        "email_id": EMAIL,
        "operation_type": "notion_write",
        "status": DLQStatus.PENDING,
        "original_payload": {"database_id": "db_123"},
        "error_details": {"error_type": "CircuitBreakerOpen", "error_message": "degraded", "retry_count": 3},
        "created_at": AT,
        "last_attempt": AT + timedelta(seconds=23),
    }
    return DLQEntry(**(given | changes))  # type: ignore[arg-type]


@pytest.mark.req("CQ-1.1")
def test_an_error_record_has_the_form_of_the_specification() -> None:
    told = json.loads(json.dumps(record().to_json()))

    assert list(told) == [
        "timestamp",
        "severity",
        "category",
        "message",
        "error_type",
        "stack_trace",
        "context",
        "http_status",
        "retry_count",
    ]
    assert datetime.fromisoformat(told["timestamp"]) == AT
    assert (told["severity"], told["category"], told["retry_count"]) == ("ERROR", "TRANSIENT", 2)
    assert told["http_status"] is None
    assert [each.value for each in ErrorSeverity] == ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]
    assert [each.value for each in ErrorCategory] == ["TRANSIENT", "PERMANENT", "CRITICAL"]


@pytest.mark.req("CQ-1.1")
def test_an_error_record_is_redacted_but_for_the_email_id() -> None:
    secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"
    told = record(
        message=f"refused Authorization: Bearer {secret}",
        stack_trace=f"key={secret}",
        context={
            "email_id": EMAIL,
            "operation": "gmail_fetch",
            "user": "jlim@example.com",
            "api_key": secret,
        },
    ).to_json()

    assert secret not in json.dumps(told)
    assert "jlim@example.com" not in json.dumps(told)
    assert told["context"]["email_id"] == EMAIL  # type: ignore[index]


@pytest.mark.req("CQ-1.1")
@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"timestamp": datetime(2025, 11, 6)}, "timestamp"),  # noqa: DTZ001 - without a time zone, on purpose
        ({"timestamp": "yesterday"}, "timestamp"),
        ({"severity": "LOUD"}, "severity"),
        ({"category": "ODD"}, "category"),
        ({"message": "  "}, "message"),
        ({"context": {"operation": "gmail_fetch"}}, "context"),
        ({"context": {"email_id": EMAIL}}, "context"),
        ({"retry_count": -1}, "retry_count"),
        ({"retry_count": 1.5}, "retry_count"),
    ],
)
def test_an_error_record_that_breaks_a_rule_is_refused_by_name(
    changes: dict[str, object], field: str
) -> None:
    with pytest.raises(ConfigurationError, match=field):
        record(**changes)


@pytest.mark.req("CQ-1.1")
@pytest.mark.parametrize(
    ("code", "category"),
    [
        ("NETWORK_TIMEOUT", "TRANSIENT"),
        ("UPSTREAM_ERROR", "TRANSIENT"),
        ("RATE_LIMITED", "TRANSIENT"),
        ("BREAKER_OPEN", "TRANSIENT"),
        ("REQUEST_INVALID", "PERMANENT"),
        ("NOT_FOUND", "PERMANENT"),
        ("SCHEMA_INVALID", "PERMANENT"),
        ("BUG_UNKNOWN", "PERMANENT"),
        ("MAIL_UNREADABLE", "PERMANENT"),
        ("AUTH_INVALID", "CRITICAL"),
        ("AUTH_DENIED", "PERMANENT"),
    ],
)
def test_every_code_belongs_to_a_class_of_error(code: str, category: str) -> None:
    assert CLASSES.for_code(code).name == category


@pytest.mark.req("CQ-1.2")
def test_error_records_are_lines_of_json_in_a_folder_for_their_severity(tmp_path: Path) -> None:
    log = ErrorLog(tmp_path / "logs")
    first, second = record(), record(retry_count=3)
    path = log.write(first)
    log.write(second)
    log.write(first)

    assert path == tmp_path / "logs" / "ERROR" / f"error_20251106_101522_123000_{EMAIL}.json"
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [first.to_json(), second.to_json()]
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.req("CQ-1.2")
@pytest.mark.parametrize("email_id", ["../../etc/passwd", "a/b", "..", "nul", "x" * 500, "\x00\n", "메일"])
def test_no_email_id_leads_out_of_the_folder(tmp_path: Path, email_id: str) -> None:
    path = ErrorLog(tmp_path / "logs").write(
        record(context={"email_id": email_id, "operation": "gmail_fetch"})
    )

    assert path.resolve().parent == (tmp_path / "logs" / "ERROR").resolve()
    assert json.loads(path.read_text(encoding="utf-8"))["context"]["email_id"] == email_id


@pytest.mark.req("CQ-2.1")
def test_an_entry_has_the_form_of_the_specification_and_survives_a_round_trip() -> None:
    made = entry(status=DLQStatus.COMPLETED, replayed_at=AT + timedelta(days=1), processed=True)
    told = json.loads(json.dumps(made.to_json()))

    assert list(told) == [
        "dlq_id",
        "email_id",
        "operation_type",
        "status",
        "original_payload",
        "error_details",
        "created_at",
        "last_attempt",
        "replayed_at",
        "processed",
    ]
    assert DLQEntry.from_json(told) == made
    assert [each.value for each in DLQStatus] == ["pending", "replaying", "completed", "failed"]
    assert get_args(Operation) == ("gmail_fetch", "gemini_extract", "notion_write", "infisical_fetch")
    assert dlq_id_of(AT, EMAIL).startswith("dlq_20251106_101522")
    assert dlq_id_of(AT, EMAIL).endswith(EMAIL)


@pytest.mark.req("CQ-2.1")
@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"dlq_id": "7"}, "dlq_id"),
        ({"email_id": ""}, "email_id"),
        ({"operation_type": "fax"}, "operation_type"),
        ({"status": "odd"}, "status"),
        ({"original_payload": {}}, "original_payload"),
        ({"original_payload": None}, "original_payload"),
        ({"error_details": {"error_type": "X", "error_message": "y"}}, "error_details"),
        ({"error_details": {"error_type": "X", "error_message": "y", "retry_count": -1}}, "retry_count"),
        ({"last_attempt": AT - timedelta(seconds=1)}, "created_at <= last_attempt"),
        ({"replayed_at": AT}, "last_attempt <= replayed_at"),
    ],
)
def test_an_entry_that_breaks_a_rule_is_refused_by_name(changes: dict[str, object], field: str) -> None:
    with pytest.raises(ConfigurationError, match=field):
        entry(**changes)


def test_a_refusal_quotes_the_names_in_a_mapping_and_not_what_stands_there() -> None:
    with pytest.raises(ConfigurationError) as refused:
        entry(error_details={"error_type": "X", "error_message": "what the mail says"})

    assert "error_message" in str(refused.value)
    assert "what the mail says" not in str(refused.value)


@pytest.mark.req("CQ-2.1", decision="D-10")
@pytest.mark.parametrize(
    ("state", "is_escalated", "status"),
    [
        ("open", False, "pending"),
        ("triaged", False, "pending"),
        ("ready", False, "pending"),
        ("replaying", False, "replaying"),
        ("resolved", False, "completed"),
        ("returned", False, "failed"),
        ("discarded", False, "completed"),
        ("open", True, "failed"),
        ("replaying", True, "replaying"),
    ],
)
def test_states_of_letters_have_their_names_here(state: str, is_escalated: bool, status: str) -> None:
    assert status_of(state, is_escalated=is_escalated) is DLQStatus(status)


def test_an_entry_that_was_replayed_is_processed() -> None:
    done = entry().with_status(DLQStatus.COMPLETED, AT + timedelta(hours=1))

    assert (done.processed, done.replayed_at) == (True, AT + timedelta(hours=1))
    assert replace(done, status=DLQStatus.PENDING).with_status(DLQStatus.FAILED, AT).replayed_at is None


def test_only_their_owner_can_read_the_pages(tmp_path: Path) -> None:
    (tmp_path / "pages.db").touch(0o644)

    LocalPages(tmp_path)

    assert (tmp_path / "pages.db").stat().st_mode & 0o777 == 0o600
