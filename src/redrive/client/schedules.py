# SPDX-License-Identifier: Apache-2.0
"""Schedules for async code; sync code uses `ScheduleBook` itself."""

from __future__ import annotations

from redrive.client.awaited import AsyncFace, awaited
from redrive.engine.schedules import ScheduleBook


class AsyncSchedules(AsyncFace[ScheduleBook]):
    """The schedules of a store; see `ScheduleBook`."""

    put = awaited(ScheduleBook.put)
    drop = awaited(ScheduleBook.drop)
    all = awaited(ScheduleBook.all)
