# SPDX-License-Identifier: Apache-2.0
"""Limits in a world of faults: the service never sees too much, and a deliberate bug is caught."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from redrive.core import limit_state
from redrive.store.sqlite import store as sqlite
from redrive.store.statements import workers as worker_sql

from .limited_world import LimitedWorld, limit_breaches


# In 266 the answer to the first reservation is lost: a full bucket of calls begins a second after its tokens were taken.
@pytest.mark.parametrize("seed", [*range(3), 266])
def test_the_service_never_sees_more_than_its_limit(seed: int) -> None:
    world = LimitedWorld(seed)
    world.run()

    assert limit_breaches(world) == []


def a_crash_forgets_the_limit(patch: pytest.MonkeyPatch) -> None:
    plain = sqlite.SqliteStore.reap

    def forgetful(self: sqlite.SqliteStore, now: float) -> int:
        workers = self.query(worker_sql.worker_ids())
        reaped = plain(self, now)
        if self.query(worker_sql.worker_ids()) != workers:
            self._db.execute("DELETE FROM limits")
        return reaped

    patch.setattr(sqlite.SqliteStore, "reap", forgetful)


def the_slots_of_others_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    plain = limit_state.shared
    patch.setattr(
        limit_state,
        "shared",
        lambda limit, state, now, request, _live: plain(limit, state, now, request, {request.worker}),
    )


@pytest.mark.parametrize("bug", [a_crash_forgets_the_limit, the_slots_of_others_are_not_counted])
def test_deliberate_bugs_are_caught(
    bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)

    caught: list[str] = []
    for seed in range(40):
        world = LimitedWorld(seed)
        world.run()
        caught = [breach for breach in limit_breaches(world) if "the service saw" in breach]
        if caught:
            break
    assert caught
