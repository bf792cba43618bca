# SPDX-License-Identifier: Apache-2.0
"""The loops that run a guarded function: one sync, one async, each only carrying out what `engine.call` says.

A call that succeeds while its breaker is calm takes the fast way: no object is made and no lock is taken. The first attempt is the
function itself, called in place; only its failure starts the machinery.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from redrive.core.signals import Signal
from redrive.engine.breakers import BreakerCell
from redrive.engine.call import Call, CallPlan, Step
from redrive.engine.runtime import CURRENT, Runtime
from redrive.errors import AttemptTimeoutError, DeadlineExceededError

P = ParamSpec("P")
R = TypeVar("R")

_Bound = tuple[Runtime | None, BreakerCell | None]


def guard_sync(plan: CallPlan, fn: Callable[P, R]) -> Callable[P, R]:
    """Return the sync function with its plan around it."""
    bound: _Bound = (None, None)
    is_limited = plan.deadline is not None

    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        nonlocal bound
        runtime = CURRENT.get()
        known, cell = bound
        if known is not runtime:
            cell = _cell(plan, runtime)
            bound = (runtime, cell)
        now = runtime.clock.monotonic()
        wait: Step | float
        if is_limited or not (cell is None or cell.is_calm):
            call, wait = Call(plan, runtime, cell, now), 0.0
        else:
            try:
                result = fn(*args, **kwargs)
            except Exception as exc:
                call = Call(plan, runtime, cell, now)
                wait = call.after(exc)
                if wait is Step.OVER:
                    raise
            else:
                if not isinstance(result, Signal):
                    if cell is not None and cell.is_sampled:
                        cell.count(now)
                    return result
                call = Call(plan, runtime, cell, now)
                wait = call.after(result)
                if wait is Step.OVER:
                    raise result
        return _run(call, wait, functools.partial(fn, *args, **kwargs))

    return guarded


def guard_async(plan: CallPlan, fn: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
    """Return the async function with its plan around it."""
    bound: _Bound = (None, None)
    is_limited = plan.deadline is not None or plan.timeout is not None

    async def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        nonlocal bound
        runtime = CURRENT.get()
        known, cell = bound
        if known is not runtime:
            cell = _cell(plan, runtime)
            bound = (runtime, cell)
        now = runtime.clock.monotonic()
        wait: Step | float
        if is_limited or not (cell is None or cell.is_calm):
            call, wait = Call(plan, runtime, cell, now), 0.0
        else:
            try:
                result = await fn(*args, **kwargs)
            except Exception as exc:
                call = Call(plan, runtime, cell, now)
                wait = call.after(exc)
                if wait is Step.OVER:
                    raise
            else:
                if not isinstance(result, Signal):
                    if cell is not None and cell.is_sampled:
                        cell.count(now)
                    return result
                call = Call(plan, runtime, cell, now)
                wait = call.after(result)
                if wait is Step.OVER:
                    raise result
        return await _arun(call, wait, functools.partial(fn, *args, **kwargs))

    return guarded


def _cell(plan: CallPlan, runtime: Runtime) -> BreakerCell | None:
    return None if plan.breaker is None else runtime.breakers.cell(plan.breaker)


def _run(call: Call, wait: Step | float, attempt: Callable[[], R]) -> R:
    """Go on with a call until it succeeds or is over."""
    while True:
        while wait is not Step.GO:
            if wait is Step.PROBE:
                _probe(call)
            elif isinstance(wait, float) and wait > 0:
                call.clock.sleep(wait)
            wait = call.before()
        try:
            result = attempt()
        except Exception as exc:
            wait = call.after(exc)
            if wait is Step.OVER:
                raise
        except (
            BaseException
        ):  # An interrupt says nothing about the dependency, but the probe must be given back.
            call.abandoned()
            raise
        else:
            if not isinstance(result, Signal):
                call.succeeded()
                return result
            wait = call.after(result)
            if wait is Step.OVER:
                raise result


async def _arun(call: Call, wait: Step | float, attempt: Callable[[], Awaitable[R]]) -> R:
    """Go on with a call until it succeeds or is over."""
    while True:
        while wait is not Step.GO:
            if wait is Step.PROBE:
                await _aprobe(call)
            elif isinstance(wait, float) and wait > 0:
                await call.clock.asleep(wait)
            wait = call.before()
        try:
            result = await _limited(call, attempt)
        except Exception as exc:
            wait = call.after(exc)
            if wait is Step.OVER:
                raise
        except (
            BaseException
        ):  # A cancellation says nothing about the dependency, but the probe must be given back.
            call.abandoned()
            raise
        else:
            if not isinstance(result, Signal):
                call.succeeded()
                return result
            wait = call.after(result)
            if wait is Step.OVER:
                raise result


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
    """Ask the breaker's own probe instead of risking the call."""
    try:
        call.run_probe()
    except Exception:  # noqa: BLE001 - whatever the probe raises means that the dependency is not back.
        call.probed(is_alive=False)
    else:
        call.probed(is_alive=True)


async def _aprobe(call: Call) -> None:
    try:
        answer = call.run_probe()
        if inspect.isawaitable(answer):
            await answer
    except Exception:  # noqa: BLE001 - whatever the probe raises means that the dependency is not back.
        call.probed(is_alive=False)
    except BaseException:
        call.abandoned()
        raise
    else:
        call.probed(is_alive=True)
