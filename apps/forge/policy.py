# SPDX-License-Identifier: Apache-2.0
"""Policies in Forge's words, and the `stage` decorator with Forge's default policy.

    delay of attempt n   jittered_exponential   min(base * 2^(n-1), max), and up to 25 % more or less
                         fixed                  base
                         linear                 min(base * n, max)

A policy is data: redrive decides and waits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final, Literal, ParamSpec, TypedDict, TypeVar, Unpack

import redrive
from redrive import Backoff, Batch, Breaker, ConfigurationError, Jitter, Limit, RetryPolicy
from redrive.engine.pipeline.stage import Stage

P = ParamSpec("P")
R = TypeVar("R")

Kind = Literal["jittered_exponential", "fixed", "linear"]
Errors = Literal["all", "none"] | Collection[int | str | type[BaseException]]

JITTER: Final = 0.25


def policy(
    max_attempts: int = 3,
    *,
    backoff: Kind = "jittered_exponential",
    base_delay: float = 1.0,
    max_delay: float = 60.0,
    retriable_errors: Errors = "all",
) -> RetryPolicy:
    """Return a retry policy; delays are in seconds.

    `retriable_errors` is "all", "none", or a list of HTTP statuses, exception classes and error codes.

    Raises:
        ConfigurationError: there is no such kind of backoff, or a number does not fit.
    """
    match backoff:
        case "jittered_exponential":
            made = Backoff.exponential(base_delay, factor=2, cap=max_delay, jitter=Jitter.ratio(JITTER))
        case "fixed":
            made = Backoff.fixed(base_delay)
        case "linear":
            made = Backoff.linear(base_delay, cap=max_delay)
        case _:
            raise ConfigurationError(
                field="policy(backoff)",
                value=backoff,
                rule="must be jittered_exponential, fixed or linear",
                fix="jittered_exponential is the default.",
            )
    return RetryPolicy(max_attempts, made, retry_on=retriable_errors)


DEFAULT: Final = policy()
"""Three attempts, a jittered second and then two between them, whatever the error."""


class StageOptions(TypedDict, total=False):
    """What `redrive.stage` takes besides the policy."""

    timeout: float
    breaker: Breaker
    limits: Limit | Iterable[Limit]
    batch: Batch
    concurrency: int
    idempotent: bool
    process: bool
    version: str
    name: str


def stage(
    *, retry: RetryPolicy = DEFAULT, **options: Unpack[StageOptions]
) -> Callable[[Callable[P, R]], Stage[P, R]]:
    """Make a function a stage, with Forge's default policy unless another is given."""
    return redrive.stage(retry=retry, **options)
