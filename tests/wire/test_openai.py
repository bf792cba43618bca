# SPDX-License-Identifier: Apache-2.0
"""The OpenAI SDK against a server that answers as the API documents it (platform.openai.com/docs/guides/error-codes)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from redrive.core.failure import Category, Failure
from redrive.engine.classifier import classify
from tests.wire.clients import HASTY_S, PATIENT_S
from tests.wire.server import (
    Behaviour,
    Certificates,
    Refusing,
    Serve,
    answer,
    disconnect,
    garbage,
    reset,
    silence,
    truncated_chunk,
)


@dataclass(frozen=True)
class Answer:
    status: int
    error: dict[str, object]
    code: str
    heals: bool
    word: str
    headers: dict[str, str] = field(default_factory=dict)
    retry_after: float | None = None


ANSWERS = {
    # guides/rate-limits, "Rate limits in headers"
    "too many requests": Answer(
        429,
        {
            "message": "Rate limit reached for gpt-4o in organization org-x on requests per min (RPM): Limit 3, Used 3.",
            "type": "requests",
            "param": None,
            "code": "rate_limit_exceeded",
        },
        "RATE_LIMITED",
        True,
        "rate_limit_exceeded",
        {
            "x-ratelimit-remaining-requests": "0",
            "x-ratelimit-reset-requests": "20s",
            "x-ratelimit-reset-tokens": "6m0s",
        },
        20.0,
    ),
    "told to wait": Answer(
        429,
        {"message": "Slow down", "type": "tokens", "param": None, "code": "rate_limit_exceeded"},
        "RATE_LIMITED",
        True,
        "rate_limit_exceeded",
        {"retry-after-ms": "250", "retry-after": "1"},
        0.25,
    ),
    # guides/error-codes: "429 - You exceeded your current quota, please check your plan and billing details"
    "no credit": Answer(
        429,
        {
            "message": "You exceeded your current quota, please check your plan and billing details.",
            "type": "insufficient_quota",
            "param": None,
            "code": "insufficient_quota",
        },
        "QUOTA_EXHAUSTED",
        False,
        "insufficient_quota",
    ),
    # guides/error-codes: "401 - Incorrect API key provided"
    "wrong key": Answer(
        401,
        {
            "message": "Incorrect API key provided: sk-x.",
            "type": "invalid_request_error",
            "param": None,
            "code": "invalid_api_key",
        },
        "AUTH_INVALID",
        False,
        "invalid_api_key",
    ),
    # guides/error-codes: "403 - Country, region, or territory not supported"
    "wrong country": Answer(
        403,
        {
            "message": "Country, region, or territory not supported",
            "type": "request_forbidden",
            "param": None,
            "code": "unsupported_country_region_territory",
        },
        "AUTH_DENIED",
        False,
        "unsupported_country_region_territory",
    ),
    "too long": Answer(
        400,
        {
            "message": "This model's maximum context length is 8192 tokens.",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        },
        "REQUEST_TOO_LARGE",
        False,
        "context_length_exceeded",
    ),
    "no such model": Answer(
        404,
        {
            "message": "The model `gpt-9` does not exist or you do not have access to it.",
            "type": "invalid_request_error",
            "param": None,
            "code": "model_not_found",
        },
        "NOT_FOUND",
        False,
        "model_not_found",
    ),
    # api-reference/images: a prompt that the safety system rejects
    "rejected prompt": Answer(
        400,
        {
            "message": "Your request was rejected as a result of our safety system.",
            "type": "invalid_request_error",
            "param": None,
            "code": "content_policy_violation",
        },
        "REJECTED_POLICY",
        False,
        "content_policy_violation",
    ),
    # learn.microsoft.com/azure/ai-services/openai/concepts/content-filter, "Scenario: prompt is filtered"
    "azure filter": Answer(
        400,
        {
            "message": "The response was filtered due to the prompt triggering the content management policy.",
            "type": None,
            "param": "prompt",
            "code": "content_filter",
            "status": 400,
            "innererror": {"code": "ResponsibleAIPolicyViolation"},
        },
        "REJECTED_POLICY",
        False,
        "content_filter",
    ),
    # guides/error-codes: "500 - The server had an error while processing your request"
    "server error": Answer(
        500,
        {"message": "The server had an error.", "type": "server_error", "param": None, "code": None},
        "UPSTREAM_ERROR",
        True,
        "server_error",
    ),
    # guides/error-codes: "503 - Slow Down"
    "slow down": Answer(
        503,
        {"message": "Slow Down", "type": "service_unavailable_error", "param": None, "code": "slow_down"},
        "RATE_LIMITED",
        True,
        "slow_down",
    ),
    "bad parameter": Answer(
        400,
        {
            "message": "Invalid value for 'temperature'.",
            "type": "invalid_request_error",
            "param": "temperature",
            "code": "invalid_value",
        },
        "REQUEST_INVALID",
        False,
        "invalid_value",
    ),
}


def _client(address: str, timeout: float = PATIENT_S) -> openai.OpenAI:
    return openai.OpenAI(api_key="sk-made-up", base_url=address, max_retries=0, timeout=timeout)


def _ask(client: openai.OpenAI, **more: Any) -> Any:
    return client.chat.completions.create(
        model="gpt-4o", messages=[{"role": "user", "content": "hi"}], **more
    )


def _failure(address: str, timeout: float = PATIENT_S) -> Failure:
    with _client(address, timeout) as client, pytest.raises(openai.OpenAIError) as raised:
        _ask(client)
    return classify(raised.value)


@pytest.mark.req("CR-1.2", "CR-1.3", "CR-1.6")
@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_means_what_its_error_code_says(serve: Serve, name: str) -> None:
    case = ANSWERS[name]

    failure = _failure(
        serve(answer(case.status, {"error": case.error}, {"x-request-id": "req_1", **case.headers})).url
    )

    assert (failure.code, failure.retryable, failure.provider_code) == (case.code, case.heals, case.word)
    assert (failure.http_status, failure.retry_after, failure.request_id) == (
        case.status,
        case.retry_after,
        "req_1",
    )


def test_the_async_client_raises_the_same(serve: Serve) -> None:
    case = ANSWERS["no credit"]
    listener = serve(answer(case.status, {"error": case.error}))

    async def ask() -> None:
        async with openai.AsyncOpenAI(api_key="sk-made-up", base_url=listener.url, max_retries=0) as client:
            await client.models.list()

    with pytest.raises(openai.RateLimitError) as raised:
        asyncio.run(ask())

    assert classify(raised.value).code == "QUOTA_EXHAUSTED"


def test_a_server_that_forbids_retries_is_obeyed(serve: Serve) -> None:
    failure = _failure(serve(answer(500, {"error": {}}, {"x-should-retry": "false"})).url)

    assert (failure.code, failure.retryable) == ("UPSTREAM_ERROR", False)


def test_a_server_that_asks_for_a_retry_is_obeyed(serve: Serve) -> None:
    failure = _failure(serve(answer(409, {"error": {}}, {"x-should-retry": "true"})).url)

    assert (failure.code, failure.retryable) == ("CONFLICT", True)


@pytest.mark.req("CR-1.1")
@pytest.mark.parametrize(
    ("behave", "code"),
    [
        (reset, "NETWORK_RESET"),
        (disconnect, "NETWORK_PROTOCOL"),
        (garbage, "NETWORK_PROTOCOL"),
        (silence, "NETWORK_TIMEOUT"),
    ],
)
def test_a_connection_error_is_what_the_transport_beneath_it_says(
    serve: Serve, behave: Behaviour, code: str
) -> None:
    failure = _failure(serve(behave).url, HASTY_S if behave is silence else PATIENT_S)

    assert (failure.code, failure.category, failure.retryable) == (code, Category.NETWORK, True)


@pytest.mark.req("CR-1.1")
def test_refused_and_unresolved_are_told_apart(refusing: Refusing) -> None:
    assert _failure(refusing.url).code == "NETWORK_REFUSED"
    assert _failure("http://nowhere.invalid").code == "NETWORK_DNS"


def test_an_untrusted_certificate_is_found_beneath_the_connection_error(
    serve: Serve, certificates: Certificates
) -> None:
    listener = serve(answer(200, {}), tls=certificates.untrusted)

    failure = _failure(listener.url)

    assert (failure.code, failure.retryable) == ("TLS_CERTIFICATE", False)


def _stream(*events: str) -> bytes:
    return "".join(f"data: {event}\n\n" for event in events).encode()


@pytest.mark.req("CR-1.3")
@pytest.mark.parametrize(
    ("event", "code", "heals"),
    [
        (
            '{"error": {"message": "The server had an error", "type": "server_error", "code": null}}',
            "UPSTREAM_ERROR",
            True,
        ),
        (
            '{"error": {"message": "Rate limit", "type": "tokens", "code": "rate_limit_exceeded"}}',
            "RATE_LIMITED",
            True,
        ),
        (
            '{"error": {"message": "No credit", "type": "insufficient_quota", "code": "x"}}',
            "QUOTA_EXHAUSTED",
            False,
        ),
        ('{"error": {"message": "something new"}}', "UPSTREAM_ERROR", True),
    ],
)
def test_an_error_event_in_a_stream_means_what_it_says(
    serve: Serve, event: str, code: str, heals: bool
) -> None:
    listener = serve(answer(200, _stream(event), {"content-type": "text/event-stream"}))

    with _client(listener.url) as client, pytest.raises(openai.APIError) as raised:
        list(_ask(client, stream=True))
    failure = classify(raised.value)

    assert (failure.code, failure.retryable, failure.http_status) == (code, heals, None)


def test_a_stream_that_breaks_off_is_a_network_failure(serve: Serve) -> None:
    with _client(serve(truncated_chunk).url) as client, pytest.raises(openai.APIConnectionError) as raised:
        list(_ask(client, stream=True))

    assert classify(raised.value).code == "NETWORK_PROTOCOL"


class _Verdict(BaseModel):
    ok: bool


# api-reference/chat/object: `finish_reason` is "length" at the token limit and "content_filter" when content was omitted
@pytest.mark.req("CR-1.5")
@pytest.mark.parametrize(
    ("reason", "code", "category"),
    [
        ("length", "REQUEST_TOO_LARGE", Category.VALIDATION),
        ("content_filter", "REJECTED_POLICY", Category.REJECTED),
    ],
)
def test_a_completion_that_was_cut_off_does_not_heal(
    serve: Serve, reason: str, code: str, category: Category
) -> None:
    choice = {
        "index": 0,
        "finish_reason": reason,
        "message": {"role": "assistant", "content": '{"ok"'},
        "logprobs": None,
    }
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "gpt-4o", "choices": [choice]}

    with _client(serve(answer(200, body)).url) as client, pytest.raises(openai.OpenAIError) as raised:
        client.chat.completions.parse(
            model="gpt-4o", messages=[{"role": "user", "content": "x"}], response_format=_Verdict
        )
    failure = classify(raised.value)

    assert (failure.code, failure.category, failure.retryable) == (code, category, False)


def test_a_missing_key_is_wrong_configuration() -> None:
    with pytest.raises(openai.OpenAIError) as raised:
        openai.OpenAI()

    assert (classify(raised.value).code, classify(raised.value).retryable) == ("CONFIG_INVALID", False)


@pytest.mark.req("CR-1.5")
def test_an_answer_of_another_form_is_invalid(serve: Serve) -> None:
    """The strict mode of the SDK is the only one that validates."""
    listener = serve(answer(200, {"object": 7}))
    with (
        openai.OpenAI(
            api_key="k", base_url=listener.url, max_retries=0, _strict_response_validation=True
        ) as client,
        pytest.raises(openai.APIResponseValidationError) as raised,
    ):
        _ask(client)

    assert classify(raised.value).code == "SCHEMA_INVALID"


@pytest.mark.req("CR-1.9")
@pytest.mark.parametrize("url", ["localhost:80/v1", "htp://localhost/v1", ""])
def test_an_address_that_is_none_is_a_wrong_setting_and_named(url: str) -> None:
    client = openai.OpenAI(api_key="x", base_url=url or "/v1", max_retries=0)

    with pytest.raises(openai.APIConnectionError) as raised:
        client.models.list()

    failure = classify(raised.value)
    assert (failure.code, failure.category, failure.severity) == ("CONFIG_INVALID", Category.BUG, "critical")
    assert failure.message.startswith("Connection error: Request URL")
