# SPDX-License-Identifier: Apache-2.0
"""What statuses, headers and providers' error bodies mean, apart from any client library."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.http import code_for_status, read_answer
from redrive.core.provider import BODY_MAX, meaning_of, read_body
from redrive.core.verdict import Moment

AT = Moment(1_800_000_000.0)


@pytest.mark.parametrize("status", range(400, 500))
def test_of_the_4xx_only_408_425_429_and_499_heal_by_themselves(status: int) -> None:
    assert (code_for_status(status).retryable == "yes") == (status in {408, 425, 429, 499})


@pytest.mark.parametrize("status", range(500, 600))
def test_every_5xx_heals_but_501_and_505(status: int) -> None:
    assert (code_for_status(status).retryable == "yes") == (status not in {501, 505})


def test_a_status_below_400_that_was_raised_is_a_protocol_error() -> None:
    assert code_for_status(302).name == "NETWORK_PROTOCOL"


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
    ],
)
def test_the_providers_own_word_wins_where_it_says_more_than_the_status(
    status: int, body: object, code: str
) -> None:
    for form in (body, json.dumps(body), json.dumps(body).encode(), [body]):
        assert read_answer(status, AT, body=form).code.name == code


@pytest.mark.parametrize(
    "headers", [{"x-ratelimit-remaining": "0", "x-ratelimit-reset": "60"}, {"Retry-After": "60"}]
)
def test_a_403_with_a_spent_limit_is_a_rate_limit(headers: dict[str, str]) -> None:
    verdict = read_answer(403, AT, headers=headers)

    assert (verdict.code.name, verdict.retry_after) == ("RATE_LIMITED", 60)


def test_retry_info_in_the_body_is_a_told_delay_and_the_header_wins_over_it() -> None:
    body = {
        "error": {
            "status": "RESOURCE_EXHAUSTED",
            "details": [{"@type": "x/Help"}, {"@type": "x/RetryInfo", "retryDelay": "34s"}],
        }
    }

    assert read_answer(429, AT, body=body).retry_after == 34
    assert read_answer(429, AT, body=body, headers={"retry-after": "5"}).retry_after == 5


def test_the_request_id_is_kept_from_headers_or_body() -> None:
    assert read_answer(500, AT, headers={"X-Request-Id": "req_1"}).request_id == "req_1"
    assert read_answer(500, AT, body={"error": {}, "request_id": "req_2"}).request_id == "req_2"
    assert len(read_answer(500, AT, headers={"request-id": "x" * 10_000}).request_id or "") == 200


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
    assert read_body(body).words == ()
    assert read_answer(503, AT, body=body).code.name == "NETWORK_UNAVAILABLE"


def test_words_are_read_in_any_case_and_punctuation() -> None:
    for word in (
        "rate_limit_exceeded",
        "rateLimitExceeded",
        "RATE_LIMIT_EXCEEDED",
        "rate-limit-exceeded",
        "RateLimitExceededException",
    ):
        meaning = meaning_of(word)
        assert meaning is not None
        assert meaning.name == "RATE_LIMITED"
    assert meaning_of("strange_word") is None
    assert read_body({"code": "strange_word"}).word == "strange_word"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda c: st.lists(c, max_size=4) | st.dictionaries(st.text(max_size=8), c, max_size=4),
    max_leaves=20,
)


@given(st.integers(100, 599), json_values)
def test_whatever_a_server_sends_there_is_a_verdict(status: int, body: object) -> None:
    assert read_answer(status, AT, body=body).http_status == status
    assert read_answer(status, AT, body={"error": body}).http_status == status
