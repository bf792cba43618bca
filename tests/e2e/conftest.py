# SPDX-License-Identifier: Apache-2.0
"""The fixtures of the command line's tests."""

from __future__ import annotations

import logging
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.e2e.shell import FLOWS, Shell


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Generator[Shell]:
    """A shell in an empty folder with `flows.py`."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("REDRIVE_DATABASE_URL", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "flows.py").write_text(FLOWS, encoding="utf-8")
    opened = Shell(tmp_path, monkeypatch, capsys)
    yield opened
    for process in opened.started:
        process.kill()
        process.communicate(timeout=60)
    for name in [name for name, module in sys.modules.items() if _is_from(module, tmp_path)]:
        del sys.modules[name]
    root.handlers[:], root.level = before


def _is_from(module: object, folder: Path) -> bool:
    return str(getattr(module, "__file__", None) or "").startswith(str(folder))
