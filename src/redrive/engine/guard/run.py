# SPDX-License-Identifier: Apache-2.0
"""The loops that run a guarded function, one sync and one async; `guard.call` takes every decision.

A call that succeeds while its breaker is quiet takes the fast path: it creates no object and takes no lock. The first attempt calls
the function directly; only a failure creates a `Call`.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from types import CoroutineType
from typing import Final, ParamSpec, TypeVar, cast

from redrive.core.signals import Signal
from redrive.engine.guard.breakers import BreakerCell
from redrive.engine.guard.call import Call, CallPlan, Step
from redrive.engine.runtime import CURRENT, Runtime
from redrive.errors import AttemptTimeoutError, ConfigurationError, DeadlineExceededError

P = ParamSpec("P")
R = TypeVar("R")

_Bound = tuple[Runtime | None, BreakerCell | None]

_SPECIAL: Final = (Signal, CoroutineType)
"""Results that need handling; checked together, because the check is on the fast path."""


def guard_sync(plan: CallPlan, fn: Callable[P, R]) -> Callable[P, R]:
    """Return the guarded sync function."""
    bound: _Bound = (None, None)
    is_limited = plan.deadline is not None

    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        nonlocal bound
        runtime = CURRENT.get()
        known, cell = bound
        if known is not runtime:
            cell = plan.cell_in(runtime)
            bound = (runtime, cell)
        if is_limited or not (cell is None or cell.is_quiet):
            return _run(Call(plan, runtime, cell), 0.0, functools.partial(fn, *args, **kwargs))
        try:
            result = fn(*args, **kwargs)
        except Exception as exc:
            call = Call(plan, runtime, cell)
            wait = call.failed(exc)
            if wait is Step.END:
                raise
        else:
            if not isinstance(result, _SPECIAL):
                if cell is not None and (cell.counts_successes or not cell.is_quiet):
                    cell.succeeded()
                return result
            call = Call(plan, runtime, cell)
            wait = call.returned(cast("object", result))
        return _run(call, wait, functools.partial(fn, *args, **kwargs))

    return guarded


def guard_async(plan: CallPlan, fn: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
    """Return the guarded async function."""
    bound: _Bound = (None, None)
    is_limited = plan.deadline is not None or plan.timeout is not None

    async def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        nonlocal bound
        runtime = CURRENT.get()
        known, cell = bound
        if known is not runtime:
            cell = plan.cell_in(runtime)
            bound = (runtime, cell)
        if is_limited or not (cell is None or cell.is_quiet):
            return await _arun(Call(plan, runtime, cell), 0.0, functools.partial(fn, *args, **kwargs))
        try:
            result = await fn(*args, **kwargs)
        except Exception as exc:
            call = Call(plan, runtime, cell)
            wait = call.failed(exc)
            if wait is Step.END:
                raise
        else:
            if not isinstance(result, _SPECIAL):
                if cell is not None and (cell.counts_successes or not cell.is_quiet):
                    cell.succeeded()
                return result
            call = Call(plan, runtime, cell)
            wait = call.returned(cast("object", result))
        return await _arun(call, wait, functools.partial(fn, *args, **kwargs))

    return guarded


def _run(call: Call, wait: Step | float, attempt: Callable[[], R]) -> R:
    """Continue a call until it succeeds or fails for good."""
    while True:
        while wait is not Step.RUN:
            if wait is Step.PROBE:
                _probe(call)
            elif not isinstance(wait, Step) and wait > 0:
                call.clock.sleep(wait)
            wait = call.admit()
        try:
            result = attempt()
        except Exception as exc:
            wait = call.failed(exc)
            if wait is Step.END:
                raise
        except BaseException:
            # An interrupt proves nothing about the dependency, but the probe must be released.
            call.abandoned()
            raise
        else:
            if not isinstance(result, _SPECIAL):
                call.succeeded()
                return result
            wait = call.returned(cast("object", result))


async def _arun(call: Call, wait: Step | float, attempt: Callable[[], Awaitable[R]]) -> R:
    """Continue a call until it succeeds or fails for good."""
    while True:
        while wait is not Step.RUN:
            if wait is Step.PROBE:
                await _aprobe(call)
            elif not isinstance(wait, Step) and wait > 0:
                await call.clock.asleep(wait)
            wait = call.admit()
        try:
            result = await _limited(call, attempt)
        except Exception as exc:
            wait = call.failed(exc)
            if wait is Step.END:
                raise
        except BaseException:  # A cancellation proves nothing about the dependency; release the probe.
            call.abandoned()
            raise
        else:
            if not isinstance(result, _SPECIAL):
                call.succeeded()
                return result
            wait = call.returned(cast("object", result))


async def _limited(call: Call, attempt: Callable[[], Awaitable[R]]) -> R:
    """Run one attempt within its timeout and the rest of the deadline."""
    timeout, remaining = call.plan.timeout, call.remaining()
    limits = [limit for limit in (timeout, remaining) if limit is not None]
    if not limits:
        return await attempt()
    scope = asyncio.timeout(min(limits))
    try:
        async with scope:
            return await attempt()
    except TimeoutError as exc:
        if not scope.expired():
            raise  # The function's own timeout, not ours.
        if timeout is not None and timeout <= min(limits):
            raise AttemptTimeoutError(timeout=timeout) from exc
        raise DeadlineExceededError(deadline=call.plan.deadline or 0.0) from exc


def _probe(call: Call) -> None:
    """Run the breaker's own probe instead of the call."""
    try:
        answer = call.run_probe()
    except Exception:  # noqa: BLE001 - any exception of the probe means that the dependency is still down.
        call.probed(is_alive=False)
        return
    except BaseException:  # An interrupt proves nothing about the dependency, but the probe must be released.
        call.abandoned()
        raise
    if not inspect.isawaitable(answer):
        call.probed(is_alive=True)
        return
    call.abandoned()
    if inspect.iscoroutine(answer):
        answer.close()
    raise ConfigurationError(
        field="Breaker.probe",
        value=answer,
        rule="must be a sync function when a sync callable is guarded",
        fix="Use a sync probe, or guard an async function.",
    )


async def _aprobe(call: Call) -> None:
    try:
        async with asyncio.timeout(call.probe_limit()):
            answer = call.run_probe()
            if inspect.isawaitable(answer):
                await answer
    except Exception:  # noqa: BLE001 - any exception of the probe means that the dependency is still down.
        call.probed(is_alive=False)
    except BaseException:  # A cancellation proves nothing about the dependency; release the probe.
        call.abandoned()
        raise
    else:
        call.probed(is_alive=True)
