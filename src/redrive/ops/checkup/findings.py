# SPDX-License-Identifier: Apache-2.0
"""What a check finds: its level, a sentence, and advice. Nothing is checked here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Level = Literal["ok", "warn", "problem"]

REPORT: Final = "Report this with the output of `redrive doctor --deep -o json`."


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check."""

    about: str
    """What was checked, in a word: database, schema, clock, disk, ..."""
    level: Level
    sentence: str
    advice: str | None = None
    """What to do; None when nothing needs to be done."""


def fine(about: str, sentence: str) -> Finding:
    """Return that a check passed."""
    return Finding(about=about, level="ok", sentence=sentence)


def warning(about: str, sentence: str, advice: str) -> Finding:
    """Return a finding that does not stop the work."""
    return Finding(about=about, level="warn", sentence=sentence, advice=advice)


def problem(about: str, sentence: str, advice: str) -> Finding:
    """Return a finding that stops work or endangers stored data."""
    return Finding(about=about, level="problem", sentence=sentence, advice=advice)
