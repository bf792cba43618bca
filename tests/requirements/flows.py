# SPDX-License-Identifier: Apache-2.0
"""Pipelines of stages that call an upstream, which answers as a test wants it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache

import httpx

from redrive import Backoff, Jitter, Pipeline, Redrive, RetryPolicy, stage

STEADY = Backoff.fixed(1, jitter=Jitter.none())


class Answered:
    """An upstream: each call gets the next answer, an HTTP status; the last one for ever."""

    def __init__(self, *statuses: int) -> None:
        self._statuses: Iterator[int] = itertools.chain(statuses, itertools.repeat(statuses[-1]))
        self.calls = 0

    def call(self) -> None:
        self.calls += 1
        error = answered(next(self._statuses))
        if error is not None:
            raise error.with_traceback(None)


@cache
def answered(status: int) -> httpx.HTTPStatusError | None:
    """Return what httpx raises for a status; None for a good one."""
    try:
        httpx.Response(status, request=httpx.Request("GET", "http://upstream/")).raise_for_status()
    except httpx.HTTPStatusError as error:
        return error
    return None


def stage_calling(upstream: Answered, name: str = "call", **options: object) -> object:
    def run(number: int) -> int:
        upstream.call()
        return number

    return stage(name=name, **options)(run)  # type: ignore[call-overload]


def pipeline(*stages: object, name: str = "flow", **options: object) -> Pipeline:
    return Pipeline(name, list(stages), **options)  # type: ignore[arg-type]


def attempts_of(rd: Redrive, job: int) -> list[tuple[object, ...]]:
    return [(one.stage, one.attempt, one.outcome, one.code) for one in rd.job(job).attempts()]


def policy(attempts: int, **options: object) -> RetryPolicy:
    return RetryPolicy(attempts, STEADY, **options)  # type: ignore[arg-type]
