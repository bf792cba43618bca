# SPDX-License-Identifier: Apache-2.0
"""What a checkup finds: how bad it is, a sentence about it, and what to do. Also how sentences tell ages and sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Level = Literal["ok", "warn", "problem"]

_UNITS: Final = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    about: str
    """What was looked at, in a word: database, schema, clock, disk, ..."""
    level: Level
    sentence: str
    advice: str | None = None
    """What to do about it; None when nothing needs to be done."""


def fine(about: str, sentence: str) -> Finding:
    """Return that all is well."""
    return Finding(about=about, level="ok", sentence=sentence)


def warning(about: str, sentence: str, advice: str) -> Finding:
    """Return something to know, that does not stop the work."""
    return Finding(about=about, level="warn", sentence=sentence, advice=advice)


def problem(about: str, sentence: str, advice: str) -> Finding:
    """Return something that stops work, or endangers what is stored."""
    return Finding(about=about, level="problem", sentence=sentence, advice=advice)


def age(seconds: float) -> str:
    """Return a length of time in the largest unit that fits."""
    for size, unit in _UNITS:
        if abs(seconds) >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def size(count: float) -> str:
    """Return a number of bytes in the largest unit that fits."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} TiB"


def jobs(count: int) -> str:
    """Return a number of jobs in words."""
    return "1 job" if count == 1 else f"{count:,} jobs"
