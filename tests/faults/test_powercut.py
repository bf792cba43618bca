# SPDX-License-Identifier: Apache-2.0
"""What a method has returned from survives a power cut; `make soak` cuts the power more often."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from redrive.store.sqlite.store import SqliteStore

from .disk import Deleted, Fact, Synced, Written
from .powercut import losses, recorded

CUTS = 150


def test_whatever_somebody_relied_on_is_there_after_a_power_cut(tmp_path: Path) -> None:
    events = recorded(tmp_path)

    # First, that there was something to lose, and that checkpoints were among it.
    kinds = Counter(type(event) for event in events)
    assert {Written, Synced, Fact, Deleted} <= set(kinds)
    assert {event.kind for event in events if isinstance(event, Fact)} == {
        "submitted",
        "started",
        "ok",
        "dead",
    }
    assert sum(isinstance(event, Synced) and event.file == "jobs.db" for event in events) > 10
    assert list(losses(tmp_path, events, seed=1, cuts=CUTS)) == []


def test_a_default_that_does_not_sync_each_commit_would_be_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = SqliteStore.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "synchronous", "NORMAL")

    events = recorded(tmp_path)

    assert any(isinstance(event, Written) for event in events)
    (lost,) = islice(losses(tmp_path, events, seed=1, cuts=CUTS), 1)
    assert "lost: " in lost
