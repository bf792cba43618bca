# SPDX-License-Identifier: Apache-2.0
"""Retries and breakers of each service: four configurations, four breakers.

    delay(n) = clamp(multiplier * 2 ** (n - 1), backoff_min, backoff_max) + uniform(jitter_min, jitter_max)

n is the number of the attempt that failed; `max_attempts` counts the first one. The exceptions are those that the specification
names, and the classes that current clients raise for the same failures.
"""

from __future__ import annotations

import imaplib
import importlib
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from msgspec import Meta

from apps.collabiq.values import Amount, Positive, check, check_fields
from redrive import Backoff, Breaker, BreakerOpenError, Category, Jitter, RetryPolicy

Service = Literal["gmail", "gemini", "notion", "infisical"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryConfig:
    """How often, after how long, and after which exceptions a call is retried."""

    max_attempts: Annotated[int, Meta(ge=1)] = 3
    backoff_multiplier: Positive = 1.0
    backoff_min: Amount = 1.0
    backoff_max: Amount = 10.0
    jitter_min: Amount = 0.0
    jitter_max: Amount = 2.0
    timeout: Positive = 30.0
    """Time limit of one request, in seconds."""
    retryable_exceptions: AbstractSet[type[Exception]]
    """Exception classes to retry, unless the failure is permanent by its HTTP status, such as a 404."""
    retryable_codes: AbstractSet[str] = frozenset()
    """Codes and categories of the engine to retry as well: some clients have no exception class for what is retryable."""
    respect_retry_after: bool = True

    def __post_init__(self) -> None:
        classes = self.retryable_exceptions
        check_fields(self, but="retryable_exceptions")
        for name in ("backoff", "jitter"):
            least, most = getattr(self, f"{name}_min"), getattr(self, f"{name}_max")
            check(self, f"{name}_min", least, f"must be below {name}_max ({most})", ok=least < most)
        are_classes = all(isinstance(each, type) and issubclass(each, Exception) for each in classes)
        rule = "must be a set of exception classes with at least one in it"
        check(self, "retryable_exceptions", classes, rule, ok=bool(classes) and are_classes)

    @property
    def backoff(self) -> Backoff:
        """The delays between attempts."""
        # The engine requires a first delay below the cap; a larger one would be cut to it anyway.
        return Backoff.exponential(
            min(self.backoff_multiplier, self.backoff_max),
            factor=2,
            floor=self.backoff_min,
            cap=self.backoff_max,
            jitter=Jitter.additive(self.jitter_min, self.jitter_max),
        )

    def to_policy(self) -> RetryPolicy:
        """Return it as the engine's policy. A call refused by a breaker counts as an attempt."""
        return RetryPolicy(
            self.max_attempts,
            self.backoff,
            retry_on=[*self.retryable_exceptions, *sorted(self.retryable_codes), BreakerOpenError],
            respect_retry_after=self.respect_retry_after,
        )


def _installed(*names: str) -> set[type[Exception]]:
    """Return those of these classes whose library is installed."""
    found: set[type[Exception]] = set()
    for name in names:
        module, _, kind = name.rpartition(".")
        try:
            found.add(getattr(importlib.import_module(module), kind))
        except ImportError:
            continue
    return found


_HTTPX: Final = ("httpx.TimeoutException", "httpx.NetworkError", "httpx.RemoteProtocolError")
"""httpx's classes for timeouts and broken connections; its successor has the same names."""

GMAIL_RETRY_CONFIG: Final = RetryConfig(
    # imaplib raises `abort` when the connection breaks.
    retryable_exceptions={TimeoutError, ConnectionError, imaplib.IMAP4.abort}
    | _installed("googleapiclient.errors.HttpError", *_HTTPX),
    # Its other failures, such as a name that cannot be resolved or NO [UNAVAILABLE], are in classes for everything else too.
    retryable_codes={Category.NETWORK.value, "RATE_LIMITED", "UPSTREAM_ERROR", "UPSTREAM_NOT_READY"},
)
GEMINI_RETRY_CONFIG: Final = RetryConfig(
    timeout=60.0,  # a model takes its time
    retryable_exceptions={ConnectionError}
    | _installed(
        "google.api_core.exceptions.ResourceExhausted",
        "google.api_core.exceptions.DeadlineExceeded",
        "google.genai.errors.APIError",
        *_HTTPX,
        *(name.replace("httpx", "httpx2") for name in _HTTPX),
    ),
)
NOTION_RETRY_CONFIG: Final = RetryConfig(
    # The SDK's classes for responses without a JSON body and for timeouts are siblings of APIResponseError.
    retryable_exceptions={ConnectionError}
    | _installed(
        "notion_client.APIResponseError",
        "notion_client.errors.HTTPResponseError",
        "notion_client.errors.RequestTimeoutError",
        *_HTTPX,
    ),
)
INFISICAL_RETRY_CONFIG: Final = RetryConfig(
    max_attempts=2,  # the .env file is there besides
    backoff_max=5.0,
    jitter_max=1.0,
    timeout=10.0,
    retryable_exceptions={TimeoutError, ConnectionError} | _installed(*_HTTPX),
    respect_retry_after=False,
)


def breaker_for(service: Service) -> Breaker:
    """Return the breaker of a service: every failed call counts, and while it is open calls fail at once."""
    has_fallback = service == "infisical"
    return Breaker(
        service,
        consecutive=3 if has_fallback else 5,
        close_after=2,
        open_for=30.0 if has_fallback else 60.0,
        mode="fail_fast",
        counts="all",
    )
