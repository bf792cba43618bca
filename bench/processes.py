# SPDX-License-Identifier: Apache-2.0
"""Run contenders in processes of their own, so that none inherits the threads, the garbage or the memory of another.

A contender is a function of a module that takes an empty folder and returns what one job cost it, in nanoseconds or in bytes.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from multiprocessing.connection import Connection
from pathlib import Path

from bench.measure import Figure, figures_of

Contender = Callable[[Path], float]


def race(
    group: str, contenders: Mapping[str, Sequence[Contender]], unit: str = "nanoseconds"
) -> list[Figure]:
    """Run each contender's ways in turns, each alone, and keep the best of each; the first one is the yardstick.

    The ways of a contender are rounds of the same, or configurations of which the best shall count.
    """
    best = dict.fromkeys(contenders, float("inf"))
    for turn in zip_longest(*contenders.values()):
        for name, way in zip(contenders, turn, strict=True):
            if way is not None:
                best[name] = min(best[name], alone(way))
    return figures_of(group, best, unit)


def alone(contender: Callable[[Path], float]) -> float:
    """Run a contender in a new process and an empty folder."""
    return measured(contender)[0]


def measured(contender: Callable[[Path], float | Sequence[float]]) -> list[float]:
    """As `alone`, for a contender that returns several figures at once."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = context.Process(target=_answer, args=(there, contender, Path(folder)))
        process.start()
        there.close()
        try:
            answer: list[float] | str = here.recv()
        except EOFError:
            answer = "the process ended without an answer"
        finally:
            process.join()
            here.close()
    if isinstance(answer, str):
        raise RuntimeError(f"{contender}: {answer}")
    return answer


def _answer(to: Connection, contender: Callable[[Path], float | Sequence[float]], folder: Path) -> None:
    """Send the figures to the parent and exit at once: workers that were not stopped must not keep the process alive."""
    try:
        figures = contender(folder)
        to.send(list(figures) if isinstance(figures, Sequence) else [figures])
    except BaseException:  # noqa: BLE001 - whatever happened here is reported in the parent.
        to.send(traceback.format_exc())
    to.close()
    os._exit(0)
