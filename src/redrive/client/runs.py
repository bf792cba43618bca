# SPDX-License-Identifier: Apache-2.0
"""Runs for async code; sync code uses `RunBook` itself."""

from __future__ import annotations

from redrive.client.awaited import AsyncFace, awaited
from redrive.engine.runs.runs import RunBook


class AsyncRuns(AsyncFace[RunBook]):
    """What is known about runs; see `RunBook`. What moves a run is the matter of whoever drives it, and not here."""

    add = awaited(RunBook.add)
    report = awaited(RunBook.report)
    options = awaited(RunBook.options)
    is_fed = awaited(RunBook.is_fed)
    latest = awaited(RunBook.latest)
