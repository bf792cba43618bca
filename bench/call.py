# SPDX-License-Identifier: Apache-2.0
"""What a guard costs on a call that succeeds, next to retry and breaker libraries, sync and async."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import backoff
import hyx.circuitbreaker
import hyx.retry
import purgatory
import pybreaker
import stamina
import tenacity

from bench.measure import Figure, compare, compare_async
from redrive import Breaker, RetryPolicy, guard


def run() -> list[Figure]:
    """Compare the success path of every contender with a do-nothing wrapper."""
    return compare("sync", _sync()) + compare_async("async", _async())


def work() -> int:
    """Stand for a call that costs nothing itself."""
    return 1


async def awork() -> int:
    """Stand for an async call that costs nothing itself."""
    return 1


def _nothing(fn: Callable[..., int]) -> Callable[..., int]:
    def wrapper(*args: object, **kwargs: object) -> int:
        try:
            return fn(*args, **kwargs)
        except Exception:
            raise

    return wrapper


def _anothing(fn: Callable[..., Awaitable[int]]) -> Callable[..., Awaitable[int]]:
    async def wrapper(*args: object, **kwargs: object) -> int:
        try:
            return await fn(*args, **kwargs)
        except Exception:
            raise

    return wrapper


def _sync() -> dict[str, Callable[[], object]]:
    retrying = tenacity.retry(stop=tenacity.stop_after_attempt(3), wait=tenacity.wait_exponential_jitter())
    breaking = pybreaker.CircuitBreaker(fail_max=5, reset_timeout=60)
    gate = purgatory.SyncCircuitBreakerFactory(default_threshold=5, default_ttl=60)
    return {
        "do-nothing try/except wrapper": _nothing(work),
        "redrive guard (retry)": guard(retry=RetryPolicy(3))(work),
        "redrive guard (retry + consecutive breaker)": guard(
            retry=RetryPolicy(3), breaker=Breaker("a", consecutive=5)
        )(work),
        "redrive guard (retry + rate breaker)": guard(
            retry=RetryPolicy(3), breaker=Breaker("b", failure_rate=0.5)
        )(work),
        "purgatory": gate("sync")(work),
        "pybreaker": breaking(work),
        "backoff": backoff.on_exception(backoff.expo, OSError, max_tries=3)(work),
        "stamina": stamina.retry(on=OSError, attempts=3)(work),
        "tenacity": retrying(work),
        "tenacity + pybreaker": retrying(pybreaker.CircuitBreaker(fail_max=5, reset_timeout=60)(work)),
    }


def _async() -> dict[str, Callable[[], Awaitable[object]]]:
    gate = purgatory.AsyncCircuitBreakerFactory(default_threshold=5, default_ttl=60)
    broken = hyx.circuitbreaker.consecutive_breaker(
        exceptions=(OSError,), failure_threshold=5, recovery_time_secs=60
    )
    return {
        "do-nothing try/except wrapper": _anothing(awork),
        "redrive guard (retry)": guard(retry=RetryPolicy(3))(awork),
        "redrive guard (retry + consecutive breaker)": guard(
            retry=RetryPolicy(3), breaker=Breaker("a", consecutive=5)
        )(awork),
        "redrive guard (retry + rate breaker)": guard(
            retry=RetryPolicy(3), breaker=Breaker("b", failure_rate=0.5)
        )(awork),
        "purgatory": gate("async")(awork),
        "hyx retry + breaker": hyx.retry.retry(on=OSError, attempts=3)(broken(awork)),
        "backoff": backoff.on_exception(backoff.expo, OSError, max_tries=3)(awork),
        "stamina": stamina.retry(on=OSError, attempts=3)(awork),
        "tenacity": tenacity.retry(
            stop=tenacity.stop_after_attempt(3), wait=tenacity.wait_exponential_jitter()
        )(awork),
    }
