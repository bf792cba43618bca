# SPDX-License-Identifier: Apache-2.0
"""The clock of contenders that take seconds: one run over many jobs, the cost divided among them."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable


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
