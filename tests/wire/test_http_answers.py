# SPDX-License-Identifier: Apache-2.0
"""What an error answer means: status, headers and body together, through every client that raises for a status."""

from __future__ import annotations

import asyncio
import email.utils
from collections.abc import Callable

import aiohttp
import httpx
import pytest
import requests

from redrive.engine.classifier import classify
from tests.wire.clients import CLIENTS, PATIENT_S, Call, failure_of
from tests.wire.server import Serve, answer

# urllib3 hands out any status as a normal response, so there is nothing to classify.
RAISING = {name: get for name, get in CLIENTS.items() if name != "urllib3"}

STATUSES = {
    400: ("REQUEST_INVALID", False),
    401: ("AUTH_INVALID", False),
    402: ("QUOTA_EXHAUSTED", False),
    403: ("AUTH_DENIED", False),
    404: ("NOT_FOUND", False),
    408: ("NETWORK_TIMEOUT", True),
    409: ("CONFLICT", False),
    410: ("NOT_FOUND", False),
    413: ("REQUEST_TOO_LARGE", False),
    418: ("REQUEST_INVALID", False),
    422: ("SCHEMA_INVALID", False),
    425: ("UPSTREAM_NOT_READY", True),
    429: ("RATE_LIMITED", True),
    451: ("REJECTED_POLICY", False),
    499: ("NETWORK_TIMEOUT", True),
    500: ("UPSTREAM_ERROR", True),
    501: ("UPSTREAM_UNSUPPORTED", False),
    502: ("NETWORK_BAD_GATEWAY", True),
    503: ("NETWORK_UNAVAILABLE", True),
    504: ("NETWORK_GATEWAY_TIMEOUT", True),
    505: ("UPSTREAM_UNSUPPORTED", False),
    506: ("UPSTREAM_UNSUPPORTED", False),
    508: ("UPSTREAM_ERROR", True),
    511: ("AUTH_INVALID", False),
    522: ("UPSTREAM_ERROR", True),
    526: ("TLS_CERTIFICATE", False),
    529: ("UPSTREAM_OVERLOADED", True),
    599: ("UPSTREAM_ERROR", True),
}


@pytest.fixture(params=RAISING)
def get(request: pytest.FixtureRequest) -> Callable[[Call], None]:
    return RAISING[request.param]


@pytest.mark.untraced
@pytest.mark.req("CR-1.1", "CR-1.3")
@pytest.mark.parametrize("status", STATUSES)
def test_a_status_says_what_failed_and_whether_it_heals(
    get: Callable[[Call], None], serve: Serve, status: int
) -> None:
    failure = classify(failure_of(get, Call(serve(answer(status, b"sorry")).url)))

    assert (failure.code, failure.retryable) == STATUSES[status]
    assert failure.http_status == status
    assert failure.proves_alive is not failure.is_reachability


@pytest.mark.parametrize("status", [301, 304, 308])
@pytest.mark.parametrize("name", [name for name in RAISING if name.startswith("httpx")])
def test_a_redirect_that_leads_nowhere_is_an_answer_and_does_not_heal(
    serve: Serve, name: str, status: int
) -> None:
    """httpx raises for whatever is no success; requests and aiohttp let it pass."""
    failure = classify(failure_of(RAISING[name], Call(serve(answer(status)).url)))

    assert (failure.code, failure.retryable, failure.proves_alive) == ("REQUEST_INVALID", False, True)


@pytest.mark.req("CR-1.4")
def test_a_conflict_heals_only_for_an_idempotent_stage(get: Callable[[Call], None], serve: Serve) -> None:
    raised = failure_of(get, Call(serve(answer(409)).url))

    assert not classify(raised).retryable
    assert classify(raised, idempotent=True).retryable


@pytest.mark.parametrize("status", [408, 429])
def test_a_4xx_that_heals_speaks_for_the_dependency_not_against_it(
    get: Callable[[Call], None], serve: Serve, status: int
) -> None:
    failure = classify(failure_of(get, Call(serve(answer(status)).url)))

    assert failure.retryable
    assert not failure.is_reachability


NOW = "Wed, 21 Oct 2026 07:28:00 GMT"


@pytest.mark.req("CR-1.2")
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT", "date": NOW}, 30.0),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"x-ratelimit-reset-requests": "6m0s"}, 360.0),
        (
            {
                "x-ratelimit-reset-tokens": "20ms",
                "x-ratelimit-reset-requests": "1s",
                "x-ratelimit-remaining-tokens": "0",
            },
            0.02,
        ),
        ({"ratelimit-reset": "12"}, 12.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({}, None),
    ],
)
def test_a_rate_limit_tells_how_long_to_wait(
    get: Callable[[Call], None], serve: Serve, headers: dict[str, str], seconds: float | None
) -> None:
    failure = classify(failure_of(get, Call(serve(answer(429, b"slow down", headers)).url)))

    assert (failure.code, failure.retry_after) == ("RATE_LIMITED", seconds)


@pytest.mark.req("CR-1.2")
def test_an_unavailable_service_may_name_the_instant_to_come_back(
    get: Callable[[Call], None], serve: Serve
) -> None:
    headers = {
        "retry-after": email.utils.formatdate(4102444800, usegmt=True),
        "date": email.utils.formatdate(4102444740, usegmt=True),
    }

    failure = classify(failure_of(get, Call(serve(answer(503, b"", headers)).url)))

    assert (failure.code, failure.retry_after) == ("NETWORK_UNAVAILABLE", 60.0)


@pytest.mark.untraced
@pytest.mark.parametrize(
    "name", ["x-request-id", "request-id", "x-amzn-requestid", "x-github-request-id", "x-ms-request-id"]
)
def test_the_dependencys_id_for_the_request_is_kept(
    get: Callable[[Call], None], serve: Serve, name: str
) -> None:
    failure = classify(failure_of(get, Call(serve(answer(500, b"", {name: "req-123"})).url)))

    assert failure.request_id == "req-123"


# GitHub, "Rate limits for the REST API": docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api
GITHUB_LIMIT = {
    "message": "API rate limit exceeded for user ID 1.",
    "documentation_url": "https://docs.github.com/rest/overview",
}


@pytest.mark.untraced
@pytest.mark.req("CR-1.2")
@pytest.mark.parametrize(
    ("headers", "code", "retry_after"),
    [
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "90"}, "RATE_LIMITED", 90.0),
        ({"retry-after": "60"}, "RATE_LIMITED", 60.0),
        ({"x-ratelimit-remaining": "4999"}, "AUTH_DENIED", None),
    ],
)
def test_a_403_with_nothing_left_of_a_limit_is_a_rate_limit(
    get: Callable[[Call], None], serve: Serve, headers: dict[str, str], code: str, retry_after: float | None
) -> None:
    failure = classify(failure_of(get, Call(serve(answer(403, GITHUB_LIMIT, headers)).url)))

    assert (failure.code, failure.retry_after) == (code, retry_after)


BODIES = [
    (429, {"error": {"code": "insufficient_quota"}}, "QUOTA_EXHAUSTED", False, "insufficient_quota"),
    (
        400,
        {"error": {"code": "context_length_exceeded"}},
        "REQUEST_TOO_LARGE",
        False,
        "context_length_exceeded",
    ),
    (400, {"error": {"code": "content_filter"}}, "REJECTED_POLICY", False, "content_filter"),
    (
        400,
        {"__type": "com.amazonaws.dynamodb#ThrottlingException"},
        "RATE_LIMITED",
        True,
        "ThrottlingException",
    ),
    (
        402,
        {"error": {"type": "card_error", "code": "card_declined"}},
        "REJECTED_POLICY",
        False,
        "card_declined",
    ),
    (404, {"code": "object_not_found"}, "NOT_FOUND", False, "object_not_found"),
    (500, {"error": {"type": "internal_error"}}, "UPSTREAM_ERROR", True, "internal_error"),
    (400, {"error": "invalid_grant", "error_description": "expired"}, "AUTH_INVALID", False, "invalid_grant"),
    (503, b'<?xml version="1.0"?><Error><Code>SlowDown</Code></Error>', "RATE_LIMITED", True, "SlowDown"),
    (403, b"<html>forbidden</html>", "AUTH_DENIED", False, None),
    (500, b"{" * 100_000, "UPSTREAM_ERROR", True, None),
]


@pytest.mark.req("CR-1.2", "CR-1.5")
@pytest.mark.parametrize(("status", "body", "code", "heals", "word"), BODIES)
@pytest.mark.parametrize("name", [name for name in RAISING if name != "aiohttp"])
def test_the_providers_own_word_wins_over_the_status(
    serve: Serve,
    name: str,
    status: int,
    body: bytes | dict[str, object],
    code: str,
    heals: bool,
    word: str | None,
) -> None:
    """aiohttp is left out: its exception carries no body."""
    failure = classify(failure_of(RAISING[name], Call(serve(answer(status, body)).url)))

    assert (failure.code, failure.retryable, failure.provider_code) == (code, heals, word)
    assert failure.http_status == status


def test_an_unread_body_of_a_streamed_answer_stays_unread_in_httpx(serve: Serve) -> None:
    listener = serve(answer(429, {"error": {"code": "insufficient_quota"}}))
    with httpx.Client(trust_env=False) as client, client.stream("GET", listener.url) as response:
        with pytest.raises(httpx.HTTPStatusError) as raised:
            response.raise_for_status()

        failure = classify(raised.value)

        assert not response.is_stream_consumed
    assert (failure.code, failure.http_status, failure.provider_code) == ("RATE_LIMITED", 429, None)


def test_an_unread_body_of_a_streamed_answer_stays_unread_in_requests(serve: Serve) -> None:
    listener = serve(answer(429, {"error": {"code": "insufficient_quota"}}))
    with requests.get(listener.url, stream=True, timeout=PATIENT_S) as response:
        with pytest.raises(requests.HTTPError) as raised:
            response.raise_for_status()

        failure = classify(raised.value)

        assert response._content_consumed is False
    assert (failure.code, failure.provider_code) == ("RATE_LIMITED", None)


async def _json(address: str) -> None:
    async with aiohttp.ClientSession() as session, session.get(address) as response:
        await response.json()


@pytest.mark.req("CR-1.5")
@pytest.mark.parametrize(("status", "code"), [(200, "SCHEMA_INVALID"), (503, "NETWORK_UNAVAILABLE")])
def test_an_html_page_where_json_was_expected_is_invalid_unless_its_status_says_more(
    serve: Serve, status: int, code: str
) -> None:
    listener = serve(answer(status, b"<html>", {"content-type": "text/html"}))

    with pytest.raises(aiohttp.ContentTypeError) as raised:
        asyncio.run(_json(listener.url))

    assert classify(raised.value).code == code
