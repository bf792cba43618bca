# SPDX-License-Identifier: Apache-2.0
"""Benchmarks that write rows by plain SQL know the tables as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import letters


def test_letters_are_written_as_the_tables_are_and_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letters, "LETTERS", 40)
    monkeypatch.setattr(letters, "GROUPS", 10)

    assert len(letters.look(tmp_path)) == len(letters.looks())


def test_replayed_letters_are_drained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letters, "REPLAYED", 20)

    assert letters.drain_replayed(tmp_path) > 0
