# SPDX-License-Identifier: Apache-2.0
"""Six seconds of the soak; `python -m tests.faults.soak` runs it for ten minutes."""

from __future__ import annotations

from pathlib import Path

from .soak import soak


def test_four_processes_under_load_and_kills_keep_every_promise(tmp_path: Path) -> None:
    finding = soak(tmp_path, seconds=6, processes=4, kill_every=1.2, seed=7)

    assert finding.problems == []
    assert finding.kills >= 3
    assert finding.jobs >= 600
