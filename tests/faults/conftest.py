# SPDX-License-Identifier: Apache-2.0
"""What the fault tests share: a database with its ledger."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.herd import Scene


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)
