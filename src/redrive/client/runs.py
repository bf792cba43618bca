# SPDX-License-Identifier: Apache-2.0
"""Runs for async code; sync code uses `Runs` itself."""

from __future__ import annotations

from redrive.client.awaited import AsyncFace, awaited
from redrive.engine.runs.runs import Runs


class AsyncRuns(AsyncFace[Runs]):
    """What is known about runs; see `Runs`. Only the driver of a run changes it."""

    add = awaited(Runs.add)
    report = awaited(Runs.report)
    options = awaited(Runs.options)
    is_fed = awaited(Runs.is_fed)
    latest = awaited(Runs.latest)
