# SPDX-License-Identifier: Apache-2.0
"""Run something that must fail, and return what redrive makes of the exception it raised."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from redrive.core.failure import Failure
from redrive.engine.classifier import classify


def raised_by(call: Callable[..., object], *args: object, **options: object) -> BaseException:
    """Return the exception that the call raises, without the frames that would keep its sockets alive."""
    try:
        call(*args, **options)
    except BaseException as exc:
        return exc
    raise AssertionError(f"{call} raised nothing")


def failure_of(call: Callable[..., object], *args: object, **options: object) -> Failure:
    """Return the failure that the call ends in."""
    return classify(raised_by(call, *args, **options))


async def failure_awaited(awaitable: Awaitable[object]) -> Failure:
    """Return the failure that awaiting ends in."""
    try:
        await awaitable
    except BaseException as exc:
        return classify(exc)
    raise AssertionError("nothing was raised")
