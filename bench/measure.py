# SPDX-License-Identifier: Apache-2.0
"""Timing on a noisy machine: contenders take turns, and the best round of each counts."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

ROUNDS = 15
ROUND_SECONDS = 0.04


@dataclass(frozen=True, slots=True)
class Figure:
    """What one contender needed per call, and how that compares with the first one of its group."""

    group: str
    name: str
    nanoseconds: float
    ratio: float


def compare(group: str, contenders: Mapping[str, Callable[[], object]]) -> list[Figure]:
    """Time sync contenders in turns; the first one is the yardstick."""

    def timed(contender: Callable[[], object], calls: int) -> float:
        turns = range(calls)
        start = time.perf_counter_ns()
        for _ in turns:
            contender()
        return (time.perf_counter_ns() - start) / calls

    best = _best(
        {name: (lambda calls, c=contender: timed(c, calls)) for name, contender in contenders.items()}
    )
    return _figures(group, best)


def compare_async(group: str, contenders: Mapping[str, Callable[[], Awaitable[object]]]) -> list[Figure]:
    """Time async contenders in turns on one loop; the first one is the yardstick."""

    async def timed(contender: Callable[[], Awaitable[object]], calls: int) -> float:
        turns = range(calls)
        start = time.perf_counter_ns()
        for _ in turns:
            await contender()
        return (time.perf_counter_ns() - start) / calls

    with asyncio.Runner() as runner:
        best = _best(
            {
                name: (lambda calls, c=contender: runner.run(timed(c, calls)))
                for name, contender in contenders.items()
            }
        )
    return _figures(group, best)


def show(title: str, figures: list[Figure]) -> str:
    """Return the figures as a plain table."""
    lines = [f"## {title}", f"{'':44}{'ns':>12}{'ratio':>9}"]
    group = ""
    for figure in figures:
        if figure.group != group:
            group = figure.group
            lines.append(f"{group}:")
        lines.append(f"  {figure.name:42}{figure.nanoseconds:12,.0f}{figure.ratio:9.2f}")
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


def _figures(group: str, best: dict[str, float]) -> list[Figure]:
    yardstick = next(iter(best.values()))
    return [Figure(group, name, nanoseconds, nanoseconds / yardstick) for name, nanoseconds in best.items()]
