# SPDX-License-Identifier: Apache-2.0
"""Timing on a noisy machine: contenders take turns, and the best round of each counts; those that take seconds run once."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial

ROUNDS = 15
ROUND_SECONDS = 0.04


@dataclass(frozen=True, slots=True)
class Figure:
    """What one contender needed per call or job, and how that compares with the first one of its group."""

    group: str
    name: str
    amount: float
    ratio: float
    unit: str = "nanoseconds"


def compare(group: str, contenders: Mapping[str, Callable[[], object]]) -> list[Figure]:
    """Time sync contenders in turns; the first one is the yardstick."""

    def timed(contender: Callable[[], object], calls: int) -> float:
        turns = range(calls)
        start = time.perf_counter_ns()
        for _ in turns:
            contender()
        return (time.perf_counter_ns() - start) / calls

    best = _best({name: partial(timed, contender) for name, contender in contenders.items()})
    return figures_of(group, best)


def compare_async(group: str, contenders: Mapping[str, Callable[[], Awaitable[object]]]) -> list[Figure]:
    """Time async contenders in turns on one loop; the first one is the yardstick."""

    async def timed(contender: Callable[[], Awaitable[object]], calls: int) -> float:
        turns = range(calls)
        start = time.perf_counter_ns()
        for _ in turns:
            await contender()
        return (time.perf_counter_ns() - start) / calls

    with asyncio.Runner() as runner:

        def run(contender: Callable[[], Awaitable[object]], calls: int) -> float:
            return runner.run(timed(contender, calls))

        best = _best({name: partial(run, contender) for name, contender in contenders.items()})
    return figures_of(group, best)


def figures_of(group: str, best: Mapping[str, float], unit: str = "nanoseconds") -> list[Figure]:
    """Compare amounts with the first of them."""
    yardstick = next(iter(best.values()))
    return [Figure(group, name, amount, amount / yardstick, unit) for name, amount in best.items()]


def show(title: str, figures: list[Figure]) -> str:
    """Return the figures as a plain table."""
    lines = [f"## {title}"]
    group = ""
    for figure in figures:
        if figure.group != group:
            group = figure.group
            lines.append(f"{group + ':':44}{figure.unit:>14}{'ratio':>9}")
        lines.append(f"  {figure.name:42}{figure.amount:14,.0f}{figure.ratio:9.2f}")
    return "\n".join(lines) + "\n\n"


def _best(timers: Mapping[str, Callable[[int], float]]) -> dict[str, float]:
    calls = {name: max(10, int(ROUND_SECONDS * 1e9 / timer(200))) for name, timer in timers.items()}
    best = dict.fromkeys(timers, float("inf"))
    gc.collect()
    gc.disable()
    try:
        for _ in range(ROUNDS):
            for name, timer in timers.items():
                best[name] = min(best[name], timer(calls[name]))
    finally:
        gc.enable()
    return best


def per_job(jobs: int, work: Callable[[], object]) -> float:
    """Return the nanoseconds of each of the jobs that `work` goes through. What was prepared before is collected first."""
    gc.collect()
    start = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - start) / jobs


def wait_until(is_done: Callable[[], bool], seconds_max: float = 60.0) -> None:
    """Look every two milliseconds whether it is done."""
    deadline = time.monotonic() + seconds_max
    while not is_done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not done after {seconds_max:g} s")
        time.sleep(0.002)
