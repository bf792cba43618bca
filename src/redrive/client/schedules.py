# SPDX-License-Identifier: Apache-2.0
"""Schedules for async code; sync code uses `Schedules` itself."""

from __future__ import annotations

from redrive.client.awaited import AsyncFace, awaited
from redrive.engine.schedules import Schedules


class AsyncSchedules(AsyncFace[Schedules]):
    """The schedules of a store; see `Schedules`."""

    put = awaited(Schedules.put)
    drop = awaited(Schedules.drop)
    all = awaited(Schedules.all)
