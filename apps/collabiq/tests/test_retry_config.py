# SPDX-License-Identifier: Apache-2.0
"""The four configurations, and the rules a configuration keeps."""

from __future__ import annotations

import math

import notion_client
import pytest
from google.api_core.exceptions import DeadlineExceeded, ResourceExhausted
from googleapiclient.errors import HttpError  # type: ignore[import-untyped]

from apps.collabiq.retry_config import (
    GEMINI_RETRY_CONFIG,
    GMAIL_RETRY_CONFIG,
    INFISICAL_RETRY_CONFIG,
    NOTION_RETRY_CONFIG,
    RetryConfig,
    Service,
    breaker_for,
)
from redrive import ConfigurationError, guard
from redrive.testing import VirtualClock

GOOD: dict[str, object] = {"retryable_exceptions": {ConnectionError}}


@pytest.mark.req("CQ-3.2")
@pytest.mark.parametrize(
    ("config", "numbers", "exceptions"),
    [
        (
            GMAIL_RETRY_CONFIG,
            (3, 1.0, 1.0, 10.0, 0.0, 2.0, 30.0, True),
            {TimeoutError, ConnectionError, HttpError},
        ),
        (
            GEMINI_RETRY_CONFIG,
            (3, 1.0, 1.0, 10.0, 0.0, 2.0, 60.0, True),
            {ResourceExhausted, DeadlineExceeded, ConnectionError},
        ),
        (NOTION_RETRY_CONFIG, (3, 1.0, 1.0, 10.0, 0.0, 2.0, 30.0, True), {notion_client.APIResponseError}),
        (INFISICAL_RETRY_CONFIG, (2, 1.0, 1.0, 5.0, 0.0, 1.0, 10.0, False), {TimeoutError, ConnectionError}),
    ],
)
def test_each_service_has_the_configuration_of_the_specification(
    config: RetryConfig, numbers: tuple[object, ...], exceptions: set[type[Exception]]
) -> None:
    assert numbers == (
        config.max_attempts,
        config.backoff_multiplier,
        config.backoff_min,
        config.backoff_max,
        config.jitter_min,
        config.jitter_max,
        config.timeout,
        config.respect_retry_after,
    )
    assert exceptions <= config.retryable_exceptions
    policy = config.to_policy()
    assert (policy.max_attempts, policy.respect_retry_after) == (
        config.max_attempts,
        config.respect_retry_after,
    )


@pytest.mark.req("CQ-3.1")
@pytest.mark.parametrize("multiplier", [0.1, 1.0, 3.0, 50.0])
@pytest.mark.parametrize("attempt", [1, 2, 3, 4, 5, 40, 10_000])
@pytest.mark.parametrize("draw", [0.0, 0.25, 0.999])
def test_the_delay_is_the_formula(multiplier: float, attempt: int, draw: float) -> None:
    config = RetryConfig(
        backoff_multiplier=multiplier, jitter_min=0.5, jitter_max=2.0, retryable_exceptions={ConnectionError}
    )
    grown = math.inf if attempt > 1000 else multiplier * 2 ** (attempt - 1)

    expected = min(max(grown, 1.0), 10.0) + 0.5 + 1.5 * draw
    assert config.backoff.delay(attempt, draw) == pytest.approx(expected)


@pytest.mark.req("CQ-3.1")
@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": 1.5}, "max_attempts"),
        ({"max_attempts": True}, "max_attempts"),
        ({"backoff_min": 10.0}, "backoff_min"),
        ({"backoff_min": -1.0}, "backoff"),
        ({"backoff_max": math.inf}, "backoff"),
        ({"backoff_multiplier": 0.0}, "backoff_multiplier"),
        ({"jitter_min": 2.0}, "jitter_min"),
        ({"jitter_max": math.nan}, "jitter"),
        ({"timeout": 0.0}, "timeout"),
        ({"timeout": -1.0}, "timeout"),
        ({"timeout": math.inf}, "timeout"),
        ({"retryable_exceptions": set()}, "retryable_exceptions"),
        ({"retryable_exceptions": {"ConnectionError"}}, "retryable_exceptions"),
    ],
)
def test_a_configuration_that_breaks_a_rule_is_refused_by_name(
    changes: dict[str, object], field: str
) -> None:
    with pytest.raises(ConfigurationError, match=field):
        RetryConfig(**(GOOD | changes))  # type: ignore[arg-type]


@pytest.mark.req("CQ-3.1")
@pytest.mark.parametrize("attempts", [1, 2, 3])
def test_max_attempts_counts_the_first_and_only_listed_exceptions_are_tried_again(
    clock: VirtualClock, attempts: int
) -> None:
    config = RetryConfig(max_attempts=attempts, retryable_exceptions={ConnectionError})
    calls: list[type[Exception]] = []

    def call(error: type[Exception]) -> None:
        calls.append(error)
        raise error("made up")

    guarded = guard(retry=config.to_policy())(call)
    for error in (ConnectionResetError, TimeoutError, LookupError):
        with pytest.raises(error):
            guarded(error)

    assert calls == [ConnectionResetError] * attempts + [TimeoutError, LookupError]
    assert len(clock.waits) == attempts - 1
    assert all(2**n <= wait < 2**n + 2 for n, wait in enumerate(clock.waits))


@pytest.mark.req("CQ-4.1")
@pytest.mark.parametrize(
    ("service", "failures", "cool_down"),
    [("gmail", 5, 60.0), ("gemini", 5, 60.0), ("notion", 5, 60.0), ("infisical", 3, 30.0)],
)
def test_each_service_has_the_breaker_of_the_specification(
    service: Service, failures: int, cool_down: float
) -> None:
    breaker = breaker_for(service)

    assert (breaker.name, breaker.consecutive, breaker.close_after) == (service, failures, 2)
    assert (breaker.open_for, breaker.mode, breaker.counts) == (cool_down, "fail_fast", "all")
