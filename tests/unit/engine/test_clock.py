# SPDX-License-Identifier: Apache-2.0
"""The system's clock."""

from __future__ import annotations

import asyncio
import time

import pytest

from redrive.engine.clock import SYSTEM_CLOCK


def test_what_replaces_sleeping_after_the_import_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a test of a user's, or by gevent."""
    slept: list[float] = []

    async def asleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(asyncio, "sleep", asleep)

    SYSTEM_CLOCK.sleep(1.0)
    asyncio.run(SYSTEM_CLOCK.asleep(2.0))

    assert slept == [1.0, 2.0]
