# SPDX-License-Identifier: Apache-2.0
"""What statuses, headers and providers' error bodies mean, apart from any client library."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.http import classify_response, code_for_status
from redrive.core.provider import BODY_MAX, code_for_name, read_body

AT = 1_800_000_000.0


@pytest.mark.untraced
def test_of_the_4xx_only_408_425_429_and_499_heal_by_themselves() -> None:
    healing = [status for status in range(400, 500) if code_for_status(status).retryable == "yes"]

    assert healing == [408, 425, 429, 499]


@pytest.mark.untraced
def test_every_5xx_heals_but_those_that_complain_about_the_request_or_the_setup() -> None:
    lasting = [status for status in range(500, 600) if code_for_status(status).retryable != "yes"]

    assert lasting == [501, 505, 506, 510, 511, 526]


@pytest.mark.parametrize("status", [300, 301, 302, 304, 307, 308])
def test_a_redirect_that_was_raised_asks_for_another_request(status: int) -> None:
    assert code_for_status(status).name == "REQUEST_INVALID"


@pytest.mark.parametrize("status", [100, 101, 200, 204])
def test_a_success_that_was_raised_is_an_answer_that_makes_no_sense(status: int) -> None:
    """As aiohttp does when a server answers a WebSocket handshake with a plain page."""
    assert code_for_status(status).name == "NETWORK_PROTOCOL"


@pytest.mark.untraced
@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (429, {"error": {"code": "rate_limit_exceeded", "type": "requests"}}, "RATE_LIMITED"),
        (429, {"error": {"code": "insufficient_quota", "type": "insufficient_quota"}}, "QUOTA_EXHAUSTED"),
        (
            400,
            {"error": {"code": "context_length_exceeded", "type": "invalid_request_error"}},
            "REQUEST_TOO_LARGE",
        ),
        (400, {"error": {"code": "content_policy_violation"}}, "REJECTED_POLICY"),
        (401, {"error": {"code": "invalid_api_key", "type": "invalid_request_error"}}, "AUTH_INVALID"),
        (401, {"error": {"code": None, "type": "invalid_request_error"}}, "AUTH_INVALID"),
        (500, {"error": {"type": "server_error"}}, "UPSTREAM_ERROR"),
        (500, {"error": {"code": "internal_error"}}, "UPSTREAM_ERROR"),
        (529, {"type": "error", "error": {"type": "overloaded_error"}}, "UPSTREAM_OVERLOADED"),
        (403, {"error": {"errors": [{"reason": "rateLimitExceeded"}], "code": 403}}, "RATE_LIMITED"),
        (403, {"error": {"errors": [{"reason": "userRateLimitExceeded"}]}}, "RATE_LIMITED"),
        (403, {"error": {"errors": [{"reason": "dailyLimitExceeded"}]}}, "QUOTA_EXHAUSTED"),
        (403, {"error": {"errors": [{"reason": "insufficientPermissions"}]}}, "AUTH_DENIED"),
        (400, {"__type": "com.amazonaws.dynamodb#ThrottlingException:http://x"}, "RATE_LIMITED"),
        (409, {"code": "conflict_error"}, "CONFLICT"),
        (404, {"error": "not_found"}, "NOT_FOUND"),
        (500, {"error": {"code": "invalid_api_key"}}, "UPSTREAM_ERROR"),
        (503, {"error": {"status": "RESOURCE_EXHAUSTED"}}, "RATE_LIMITED"),
        (422, {"code": "validation_error"}, "SCHEMA_INVALID"),
        (418, {"code": "validation_error"}, "REQUEST_INVALID"),
        (504, {"error": {"type": "timeout_error"}}, "NETWORK_GATEWAY_TIMEOUT"),
        (429, {"code": "GenerateRequestsPerDayPerProject"}, "QUOTA_EXHAUSTED"),
        (402, {"error": {"type": "card_error", "code": "card_declined"}}, "REJECTED_POLICY"),
        (402, {"error": {"type": "card_error", "code": "authentication_required"}}, "REJECTED_POLICY"),
        (402, {"error": {"code": "insufficient_funds"}}, "REJECTED_POLICY"),
        (400, {"code": "expired_card"}, "REJECTED_POLICY"),
        (401, {"code": "authentication_required"}, "AUTH_INVALID"),
        (402, {"error": {"code": 402, "message": "Insufficient credits"}}, "QUOTA_EXHAUSTED"),
        (424, {"__type": "ModelErrorException"}, "UPSTREAM_ERROR"),
        (424, {"__type": "ModelStreamErrorException"}, "UPSTREAM_ERROR"),
        (400, {"__type": "IDPCommunicationError"}, "NETWORK_UNAVAILABLE"),
        (400, {"__type": "IDPCommunicationErrorException"}, "NETWORK_UNAVAILABLE"),
    ],
)
def test_the_providers_own_word_wins_where_it_says_more_than_the_status(
    status: int, body: object, code: str
) -> None:
    for form in (body, json.dumps(body), json.dumps(body).encode(), [body]):
        assert classify_response(status, AT, body=form).code.name == code


@pytest.mark.parametrize(
    ("status", "word", "code"),
    [
        (400, "internal_error", "REQUEST_INVALID"),
        (400, "DEADLINE_EXCEEDED", "REQUEST_INVALID"),
        (401, "service_unavailable", "AUTH_INVALID"),
        (403, "UNAVAILABLE", "AUTH_DENIED"),
        (404, "UNAVAILABLE", "NOT_FOUND"),
        (404, "overloaded", "NOT_FOUND"),
        (409, "server_error", "CONFLICT"),
        (422, "INTERNAL", "SCHEMA_INVALID"),
        # These name something that passes, and are known to come with a 4xx.
        (400, "RequestTimeout", "NETWORK_TIMEOUT"),
        (400, "Throttling", "RATE_LIMITED"),
        (400, "slow_down", "RATE_LIMITED"),
        (400, "temporarily_unavailable", "NETWORK_UNAVAILABLE"),
        (400, "authorization_pending", "UPSTREAM_NOT_READY"),
        (403, "rateLimitExceeded", "RATE_LIMITED"),
        # A status that heals anyway may be made more exact.
        (429, "engine_overloaded", "UPSTREAM_OVERLOADED"),
        (408, "service_unavailable", "NETWORK_TIMEOUT"),
    ],
)
def test_a_vague_word_does_not_make_a_4xx_heal(status: int, word: str, code: str) -> None:
    assert classify_response(status, AT, body={"error": {"code": word}}).code.name == code


@pytest.mark.parametrize(
    ("type_", "word"),
    [
        ("https://example.com/probs/out-of-credit", "out-of-credit"),
        ("https://example.com/probs/out-of-credit/?lang=en", "out-of-credit"),
        ("https://example.com/errors#rate-limited", "rate-limited"),
        ("/errors/rate-limited", "rate-limited"),
        ("urn:example:problem:rate-limited", "rate-limited"),
        ("com.amazonaws.dynamodb#ThrottlingException:http://internal.example/x/", "ThrottlingException"),
        ("https://example.com", None),
        ("about:blank", None),
    ],
)
def test_the_type_of_a_problem_is_named_by_the_end_of_its_address(type_: str, word: str | None) -> None:
    """RFC 9457: the type is a URI; `about:blank` says no more than the status does."""
    assert read_body({"type": type_, "title": "No", "status": 409}).name == word


def test_the_address_of_a_problem_says_more_than_its_status() -> None:
    body = {"type": "https://example.com/probs/out-of-credit", "status": 409}

    assert classify_response(409, AT, body=body).code.name == "QUOTA_EXHAUSTED"


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("Your credit balance is too low to access the Anthropic API. Please go to...", "QUOTA_EXHAUSTED"),
        ("prompt is too long: 215000 tokens > 200000 maximum", "REQUEST_TOO_LARGE"),
        ("input length and `max_tokens` exceed context limit: 1 + 2 > 3", "REQUEST_TOO_LARGE"),
        ("messages: at least one message is required", "REQUEST_INVALID"),
        (None, "REQUEST_INVALID"),
    ],
)
def test_anthropic_tells_some_failures_apart_by_their_message_alone(message: str | None, code: str) -> None:
    error = {"type": "invalid_request_error", "message": message}

    assert classify_response(400, AT, body={"type": "error", "error": error}).code.name == code
    # Another provider's words are not read.
    assert classify_response(400, AT, body={"error": error}).code.name == "REQUEST_INVALID"


@pytest.mark.parametrize(
    ("status", "told", "heals"),
    [
        (409, "true", "yes"),
        (400, "true", "yes"),
        (500, "false", "no"),
        (500, "true", "yes"),
        (500, "x", "yes"),
    ],
)
def test_a_server_that_says_whether_to_try_again_is_obeyed(status: int, told: str, heals: str) -> None:
    verdict = classify_response(status, AT, headers={"X-Should-Retry": told})

    assert (verdict.code.name, verdict.code.retryable) == (code_for_status(status).name, heals)


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        # core.telegram.org/bots/api#responseparameters
        ({"ok": False, "error_code": 429, "parameters": {"retry_after": 35}}, 35),
        # discord.com/developers/docs/topics/rate-limits
        ({"message": "You are being rate limited.", "retry_after": 64.57, "global": False}, 64.57),
        ({"retryAfter": "12"}, 12),
        ({"error": {"retry_after": 7}}, 7),
        ({"error": {"code": "x"}, "retry_after": 7}, 7),
        ({"retry_after_ms": 1500}, 1.5),
        ({"retry_after": -1}, None),
        ({"retry_after": "soon", "parameters": []}, None),
    ],
)
def test_a_body_may_tell_how_long_to_wait(body: object, seconds: float | None) -> None:
    assert classify_response(429, AT, body=body).retry_after == seconds


@pytest.mark.parametrize(
    "headers", [{"x-ratelimit-remaining": "0", "x-ratelimit-reset": "60"}, {"Retry-After": "60"}]
)
def test_a_403_with_a_spent_limit_is_a_rate_limit(headers: dict[str, str]) -> None:
    verdict = classify_response(403, AT, headers=headers)

    assert (verdict.code.name, verdict.retry_after) == ("RATE_LIMITED", 60)


def test_retry_info_in_the_body_is_a_told_delay_and_the_header_wins_over_it() -> None:
    body = {
        "error": {
            "status": "RESOURCE_EXHAUSTED",
            "details": [{"@type": "x/Help"}, {"@type": "x/RetryInfo", "retryDelay": "34s"}],
        }
    }

    assert classify_response(429, AT, body=body).retry_after == 34
    assert classify_response(429, AT, body=body, headers={"retry-after": "5"}).retry_after == 5


def test_the_request_id_is_kept_from_headers_or_body() -> None:
    assert classify_response(500, AT, headers={"X-Request-Id": "req_1"}).request_id == "req_1"
    assert classify_response(500, AT, body={"error": {}, "request_id": "req_2"}).request_id == "req_2"
    assert len(classify_response(500, AT, headers={"request-id": "x" * 10_000}).request_id or "") == 200


@pytest.mark.parametrize(
    "body",
    [
        None,
        b"",
        "<html>oops</html>",
        b"\xff\xfe",
        "[]",
        "7",
        "[" * 100_000,
        "x" * (BODY_MAX + 1),
        {"error": 5},
        5,
    ],
)
def test_an_unreadable_body_says_nothing(body: object) -> None:
    assert read_body(body).name is None
    assert classify_response(503, AT, body=body).code.name == "NETWORK_UNAVAILABLE"


def test_words_are_read_in_any_case_and_punctuation() -> None:
    for word in (
        "rate_limit_exceeded",
        "rateLimitExceeded",
        "RATE_LIMIT_EXCEEDED",
        "rate-limit-exceeded",
        "RateLimitExceededException",
        "RateLimitExceededError",
        "RateLimitExceededErrorException",
    ):
        meaning = code_for_name(word)
        assert meaning is not None
        assert meaning.name == "RATE_LIMITED"
    assert code_for_name("strange_word") is None
    assert read_body({"code": "strange_word"}).name == "strange_word"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda c: st.lists(c, max_size=4) | st.dictionaries(st.text(max_size=8), c, max_size=4),
    max_leaves=20,
)


@pytest.mark.untraced
@given(st.integers(100, 599), json_values)
def test_whatever_a_server_sends_there_is_a_verdict(status: int, body: object) -> None:
    assert classify_response(status, AT, body=body).http_status == status
    assert classify_response(status, AT, body={"error": body}).http_status == status
