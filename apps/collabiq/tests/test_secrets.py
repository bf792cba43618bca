# SPDX-License-Identifier: Apache-2.0
"""Keys from Infisical, and from .env when it does not answer."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from apps.collabiq.files import files_of
from apps.collabiq.records import DLQStatus
from apps.collabiq.secrets import load
from apps.collabiq.settings import Settings
from apps.collabiq.tests.services import Infisical
from apps.collabiq.tests.wire import Way
from redrive import ConfigurationError, Redrive, redact
from redrive.testing import VirtualClock


@pytest.fixture
def keyed(settings: Settings, infisical: Infisical) -> Settings:
    """Settings that need a key, and ask Infisical for it."""
    infisical.secrets = {"NOTION_TOKEN": "ntn_from_infisical", "OTHER": "x"}
    return replace(
        settings,
        sink="notion",
        infisical_url=infisical.url,
        infisical_client_id="machine",
        infisical_client_secret="made-up",
        infisical_project="p-1",
    )


def records(settings: Settings) -> list[dict[str, object]]:
    return [
        json.loads(line)
        for path in settings.root.glob("logs/*/*.json")
        for line in path.read_text().splitlines()
    ]


def test_keys_come_from_infisical_and_are_hidden_from_then_on(
    keyed: Settings, infisical: Infisical, clock: VirtualClock, rd: Redrive
) -> None:
    keys = load(rd, keyed)

    assert (keys["NOTION_TOKEN"], keys.origin) == ("ntn_from_infisical", "Infisical")
    login, listing = infisical.asked
    assert (login.method, login.path) == ("POST", "/api/v1/auth/universal-auth/login")
    assert login.body == {"clientId": "machine", "clientSecret": "made-up"}
    assert listing.query == {"workspaceId": ["p-1"], "environment": ["prod"], "secretPath": ["/"]}
    assert "ntn_from_infisical" not in redact("the token ntn_from_infisical was refused")
    assert "ntn_from_infisical" not in repr(keys)
    assert records(keyed) == []


@pytest.mark.req("CQ-3.2", "CQ-5.1", decision="D-8")
@pytest.mark.parametrize(
    ("way", "calls", "category"), [("drop", 2, "TRANSIENT"), (401, 1, "CRITICAL"), (503, 1, "PERMANENT")]
)
def test_when_infisical_does_not_answer_the_env_file_serves_and_one_record_says_so(
    keyed: Settings,
    rd: Redrive,
    infisical: Infisical,
    clock: VirtualClock,
    caplog: pytest.LogCaptureFixture,
    way: Way,
    calls: int,
    category: str,
) -> None:
    infisical.forever = way
    with caplog.at_level(logging.WARNING, "collabiq.secrets"):
        keys = load(rd, keyed)

    assert keys["NOTION_TOKEN"] == "ntn_made_up"
    assert keys.origin.startswith(".env, because Infisical did not return them")
    assert len(infisical.asked) == calls
    assert len(caplog.records) == 1
    (record,) = records(keyed)
    assert record["context"]["email_id"] == "system"  # type: ignore[index]
    assert record["context"]["operation"] == "infisical_fetch"  # type: ignore[index]
    assert record["retry_count"] == calls - 1
    assert record["severity"] == ("CRITICAL" if way == 401 else "ERROR")
    assert record["category"] == category
    assert "ask_infisical" in str(record["stack_trace"])
    assert not list((keyed.root / "dlq").glob("*/*.json"))


@pytest.mark.req("CQ-2.2", decision="D-8")
def test_when_the_env_file_lacks_the_key_too_there_is_one_dead_letter_until_the_key_is_found(
    keyed: Settings, infisical: Infisical, rd: Redrive
) -> None:
    infisical.forever = 500
    Path(keyed.env_file).write_text("# NOTION_TOKEN=commented\n")
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="NOTION_TOKEN"):
            load(rd, keyed)

    _, dlq = files_of(keyed)
    (entry,) = dlq.update(rd)
    assert (entry.email_id, entry.operation_type, entry.status) == (
        "system",
        "infisical_fetch",
        DLQStatus.PENDING,
    )
    assert entry.original_payload == {"names": ["NOTION_TOKEN"]}
    assert entry.error_details["error_type"] == "httpx.HTTPStatusError"
    assert entry.error_details["retry_count"] == 0  # a 500 is no exception of the list: there was one call
    (path,) = (keyed.root / "dlq" / "infisical_fetch").glob("*.json")
    assert path.stat().st_mode & 0o777 == 0o600

    infisical.forever = None
    load(rd, keyed)
    (done,) = dlq.update(rd)
    assert (done.dlq_id, done.status, done.processed) == (entry.dlq_id, DLQStatus.COMPLETED, True)
    infisical.forever = 500
    with pytest.raises(ConfigurationError):
        load(rd, keyed)
    assert [each.status for each in dlq.update(rd)] == [DLQStatus.COMPLETED, DLQStatus.PENDING]


@pytest.mark.req("CQ-4.1", "CQ-4.2")
def test_the_breaker_of_infisical_opens_after_three_failures_for_half_a_minute(
    keyed: Settings, infisical: Infisical, clock: VirtualClock, rd: Redrive
) -> None:
    infisical.forever = 500
    for _ in range(3):
        load(rd, keyed)
    clock.advance(29)
    load(rd, keyed)
    assert len(infisical.asked) == 3
    assert "CircuitBreakerOpen" in {each["error_type"] for each in records(keyed)}

    clock.advance(1.001)
    load(rd, keyed)
    assert len(infisical.asked) == 4  # half open: one call, and its failure opens it again
    assert "refused the call" in load(rd, keyed).origin
    assert len(infisical.asked) == 4

    infisical.forever = None
    clock.advance(30.001)
    assert [load(rd, keyed).origin for _ in range(3)] == ["Infisical"] * 3


def test_the_embedded_defaults_ask_nobody(settings: Settings, rd: Redrive, infisical: Infisical) -> None:
    keys = load(rd, replace(settings, infisical_url=infisical.url, infisical_client_id="machine"))

    assert (dict(keys.values), keys.origin, infisical.asked) == ({}, "no keys are needed", [])


def test_without_infisical_the_environment_comes_before_the_env_file(
    settings: Settings, rd: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    needy = replace(settings, sink="notion", extractor="gemini")
    monkeypatch.setenv("NOTION_TOKEN", "ntn_from_environment")

    keys = load(rd, needy)

    assert (keys["NOTION_TOKEN"], keys["GEMINI_API_KEY"]) == ("ntn_from_environment", "AIza-made-up")
