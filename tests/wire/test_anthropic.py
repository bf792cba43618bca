# SPDX-License-Identifier: Apache-2.0
"""The Anthropic SDK against a server that answers as the API documents it (docs.anthropic.com/en/api/errors)."""

from __future__ import annotations

import json

import anthropic
import pytest

from redrive.core.failure import Category, Failure
from redrive.engine.classifier import classify
from tests.wire.clients import HASTY_S, PATIENT_S
from tests.wire.server import Behaviour, Refusing, Serve, answer, disconnect, reset, silence

# docs.anthropic.com/en/api/errors, "HTTP errors" and "Error shapes"
ERRORS = [
    (400, "invalid_request_error", "REQUEST_INVALID", False),
    (401, "authentication_error", "AUTH_INVALID", False),
    (402, "billing_error", "QUOTA_EXHAUSTED", False),
    (403, "permission_error", "AUTH_DENIED", False),
    (404, "not_found_error", "NOT_FOUND", False),
    (413, "request_too_large", "REQUEST_TOO_LARGE", False),
    (429, "rate_limit_error", "RATE_LIMITED", True),
    (500, "api_error", "UPSTREAM_ERROR", True),
    (504, "timeout_error", "NETWORK_GATEWAY_TIMEOUT", True),
    (529, "overloaded_error", "UPSTREAM_OVERLOADED", True),
]


def _body(kind: str, **details: str) -> dict[str, object]:
    error: dict[str, object] = {
        "type": kind,
        "message": "as documented",
        **({"details": details} if details else {}),
    }
    return {"type": "error", "error": error, "request_id": "req_011CSHoEeqs5C35K2UUqR7Fy"}


def _ask(address: str, *, timeout: float = PATIENT_S, stream: bool = False) -> None:
    with anthropic.Anthropic(api_key="made-up", base_url=address, max_retries=0, timeout=timeout) as client:
        asked = client.messages.create(
            model="claude-made-up", max_tokens=9, messages=[{"role": "user", "content": "hi"}], stream=stream
        )
        if stream:
            list(asked)


def _failure(address: str, *, timeout: float = PATIENT_S, stream: bool = False) -> Failure:
    with pytest.raises(anthropic.AnthropicError) as raised:
        _ask(address, timeout=timeout, stream=stream)
    return classify(raised.value)


@pytest.mark.untraced
@pytest.mark.req("CR-1.2", "CR-1.3", "CR-1.6")
@pytest.mark.parametrize(("status", "kind", "code", "heals"), ERRORS)
def test_an_answer_means_what_its_error_type_says(
    serve: Serve, status: int, kind: str, code: str, heals: bool
) -> None:
    failure = _failure(serve(answer(status, _body(kind))).url)

    assert (failure.code, failure.retryable, failure.http_status) == (code, heals, status)
    assert (failure.provider_code, failure.request_id) == (kind, "req_011CSHoEeqs5C35K2UUqR7Fy")


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("Your credit balance is too low to access the Anthropic API.", "QUOTA_EXHAUSTED"),
        ("prompt is too long: 215000 tokens > 200000 maximum", "REQUEST_TOO_LARGE"),
    ],
)
def test_a_400_whose_message_alone_says_what_is_wrong(serve: Serve, message: str, code: str) -> None:
    body = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    failure = _failure(serve(answer(400, body)).url)

    assert (failure.code, failure.retryable, failure.provider_code) == (code, False, "invalid_request_error")


# docs.anthropic.com/en/api/rate-limits, "Response headers"
@pytest.mark.req("CR-1.2")
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "23"}, 23.0),
        ({"anthropic-ratelimit-requests-reset": "2000-01-01T00:00:00Z"}, None),
        ({"date": "Wed, 21 Oct 2026 07:28:00 GMT", "retry-after": "Wed, 21 Oct 2026 07:28:05 GMT"}, 5.0),
    ],
)
def test_a_rate_limit_tells_how_long_to_wait(
    serve: Serve, headers: dict[str, str], seconds: float | None
) -> None:
    failure = _failure(serve(answer(429, _body("rate_limit_error"), headers)).url)

    assert failure.retry_after == seconds


@pytest.mark.req("CR-1.2")
@pytest.mark.parametrize(
    ("word", "code", "heals"),
    [
        ("enforced_spend_limit_reached", "QUOTA_EXHAUSTED", False),
        ("ramp_limit_exceeded", "RATE_LIMITED", True),
    ],
)
def test_the_error_code_in_the_details_says_more_than_the_type(
    serve: Serve, word: str, code: str, heals: bool
) -> None:
    """The words are those of the SDK's own `error_code` types."""
    failure = _failure(serve(answer(429, _body("rate_limit_error", error_code=word))).url)

    assert (failure.code, failure.retryable, failure.provider_code) == (code, heals, word)


# docs.anthropic.com/en/docs/build-with-claude/streaming, "Error events": an overload arrives inside an answer of status 200
@pytest.mark.req("CR-1.3")
@pytest.mark.parametrize(
    ("kind", "code", "heals"),
    [
        ("overloaded_error", "UPSTREAM_OVERLOADED", True),
        ("api_error", "UPSTREAM_ERROR", True),
        ("rate_limit_error", "RATE_LIMITED", True),
        ("invalid_request_error", "REQUEST_INVALID", False),
        ("a_new_error", "UPSTREAM_ERROR", True),
    ],
)
def test_an_error_event_in_a_stream_means_what_it_says(
    serve: Serve, kind: str, code: str, heals: bool
) -> None:
    event = f"event: error\ndata: {json.dumps(_body(kind))}\n\n".encode()

    failure = _failure(serve(answer(200, event, {"content-type": "text/event-stream"})).url, stream=True)

    assert (failure.code, failure.retryable, failure.provider_code) == (code, heals, kind)
    assert failure.http_status is None


@pytest.mark.req("CR-1.1")
@pytest.mark.parametrize(
    ("behave", "code"),
    [(reset, "NETWORK_RESET"), (disconnect, "NETWORK_PROTOCOL"), (silence, "NETWORK_TIMEOUT")],
)
def test_a_connection_error_is_what_the_transport_beneath_it_says(
    serve: Serve, behave: Behaviour, code: str
) -> None:
    failure = _failure(serve(behave).url, timeout=HASTY_S if behave is silence else PATIENT_S)

    assert (failure.code, failure.category, failure.retryable) == (code, Category.NETWORK, True)


@pytest.mark.req("CR-1.1")
def test_refused_and_unresolved_are_told_apart(refusing: Refusing) -> None:
    assert _failure(refusing.url).code == "NETWORK_REFUSED"
    assert _failure("http://nowhere.invalid").code == "NETWORK_DNS"


def test_a_mistake_in_our_own_hook_is_a_bug_although_the_sdk_calls_it_a_connection_error(
    serve: Serve,
) -> None:
    def broken(_request: object) -> None:
        raise TypeError("our mistake")

    http = anthropic.DefaultHttpxClient(event_hooks={"request": [broken]})
    with anthropic.Anthropic(
        api_key="k", base_url=serve(answer(200, {})).url, max_retries=0, http_client=http
    ) as client:
        with pytest.raises(anthropic.APIConnectionError) as raised:
            client.models.list()

    assert (classify(raised.value).code, classify(raised.value).retryable) == ("BUG_CODE", False)
