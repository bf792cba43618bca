# SPDX-License-Identifier: Apache-2.0
"""Public tools for testing code that uses redrive.

    result = run_inline(pipeline, order)          # all stages, a real worker, no file, no waiting; in async code: arun_inline
    assert result.status == "complete"            # an InlineResult: value, attempts (InlineAttempt), letter, notes, events

    faults = Faults().fail("review", code="RATE_LIMITED", attempts=[1]).crash("notify", attempts=[1])
    run_inline(pipeline, order, faults=faults)    # or faults.on(pipeline), in a real worker
    assert faults.fired("review") == 1

    review(diff, context(key="change-42"))        # a stage as the function it is, with a Context

    with virtual_time() as clock:                 # a VirtualClock under every guard, stage and worker in this context
        fetch_with_retries()
    assert clock.waits == [1.0, 2.0]

`redrive.testing.conformance`, which needs pytest, has the tests that every `Store` must pass.
"""

from __future__ import annotations

from redrive.testing.clock import VirtualClock, virtual_time
from redrive.testing.contexts import context
from redrive.testing.faults import Faults
from redrive.testing.inline import arun_inline, run_inline
from redrive.testing.results import InlineAttempt, InlineResult

__all__ = [
    "Faults",
    "InlineAttempt",
    "InlineResult",
    "VirtualClock",
    "arun_inline",
    "context",
    "run_inline",
    "virtual_time",
]
