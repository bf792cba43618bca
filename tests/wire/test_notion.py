# SPDX-License-Identifier: Apache-2.0
"""The Notion SDK against a server that answers as the API documents it (developers.notion.com/reference/status-codes)."""

from __future__ import annotations

import notion_client
import pytest

from redrive.engine.classifier import classify
from tests.wire.clients import HASTY_S, PATIENT_S
from tests.wire.server import Behaviour, Serve, answer, garbage, reset, silence

# developers.notion.com/reference/status-codes, "Error codes"
ERRORS = [
    (400, "invalid_json", "SCHEMA_INVALID", False),
    (400, "invalid_request_url", "REQUEST_INVALID", False),
    (400, "invalid_request", "REQUEST_INVALID", False),
    (400, "validation_error", "REQUEST_INVALID", False),
    (401, "unauthorized", "AUTH_INVALID", False),
    (403, "restricted_resource", "AUTH_DENIED", False),
    (404, "object_not_found", "NOT_FOUND", False),
    (409, "conflict_error", "CONFLICT", False),
    (429, "rate_limited", "RATE_LIMITED", True),
    (500, "internal_server_error", "UPSTREAM_ERROR", True),
    (503, "service_unavailable", "NETWORK_UNAVAILABLE", True),
    (503, "database_connection_unavailable", "NETWORK_UNAVAILABLE", True),
    (504, "gateway_timeout", "NETWORK_GATEWAY_TIMEOUT", True),
]


def _raised(address: str, *, timeout: float = PATIENT_S) -> BaseException:
    with notion_client.Client(
        auth="made-up", base_url=address, timeout_ms=int(timeout * 1000), retry=False
    ) as client:
        with pytest.raises(Exception) as raised:  # noqa: PT011 - httpx's own errors pass through the SDK
            client.pages.retrieve("11112222-3333-4444-5555-666677778888")
    return raised.value


@pytest.mark.untraced
@pytest.mark.req("CR-1.5", "CR-1.6", "CR-1.7")
@pytest.mark.parametrize(("status", "word", "code", "heals"), ERRORS)
def test_an_answer_means_what_its_code_says(
    serve: Serve, status: int, word: str, code: str, heals: bool
) -> None:
    body = {
        "object": "error",
        "status": status,
        "code": word,
        "message": "as documented",
        "request_id": "r-1",
    }

    failure = classify(_raised(serve(answer(status, body)).url))

    assert (failure.code, failure.retryable, failure.provider_code) == (code, heals, word)
    assert (failure.http_status, failure.request_id) == (status, "r-1")


@pytest.mark.req("CR-1.4")
def test_a_conflict_heals_for_an_idempotent_stage(serve: Serve) -> None:
    body = {"object": "error", "status": 409, "code": "conflict_error", "message": "collision"}

    assert classify(_raised(serve(answer(409, body)).url), idempotent=True).retryable


# developers.notion.com/reference/request-limits: 429 with Retry-After in seconds
@pytest.mark.req("CR-1.2")
def test_a_rate_limit_tells_how_long_to_wait(serve: Serve) -> None:
    body = {
        "object": "error",
        "status": 429,
        "code": "rate_limited",
        "message": "You have been rate limited.",
    }

    assert classify(_raised(serve(answer(429, body, {"retry-after": "11"})).url)).retry_after == 11.0


@pytest.mark.req("CR-1.1")
def test_an_answer_that_is_not_notions_keeps_its_status(serve: Serve) -> None:
    failure = classify(_raised(serve(answer(502, b"<html>Bad gateway</html>")).url))

    assert (failure.code, failure.http_status, failure.retryable) == ("NETWORK_BAD_GATEWAY", 502, True)


@pytest.mark.req("CR-1.1")
@pytest.mark.parametrize(
    ("behave", "code"),
    [(reset, "NETWORK_RESET"), (garbage, "NETWORK_PROTOCOL"), (silence, "NETWORK_TIMEOUT")],
)
def test_a_connection_that_fails_heals(serve: Serve, behave: Behaviour, code: str) -> None:
    failure = classify(_raised(serve(behave).url, timeout=HASTY_S if behave is silence else PATIENT_S))

    assert (failure.code, failure.retryable) == (code, True)


def test_a_path_that_leaves_the_api_fails_at_once() -> None:
    with notion_client.Client(auth="made-up") as client, pytest.raises(Exception) as raised:  # noqa: PT011
        client.pages.retrieve("../../secrets")

    assert (classify(raised.value).code, classify(raised.value).retryable) == ("REQUEST_INVALID", False)
