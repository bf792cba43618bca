# SPDX-License-Identifier: Apache-2.0
"""Items from a file, or from standard input, one JSON value per line; a wrong line is named by its number.

A file is looked through before anything is stored, so that a wrong line leaves nothing half done. Standard input cannot be read
twice: there, what came before the wrong line stays.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

from redrive.engine.clock import instant
from redrive.engine.runtime import CURRENT
from redrive.errors import ConfigurationError

STANDARD_INPUT: Final = "-"
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_DURATION: Final = re.compile(r"(?P<count>\d+(?:\.\d+)?)\s*(?P<unit>[smhdw]?)")


def decoded(text: str | bytes, where: str) -> object:
    """Return a JSON value, or say where it is none."""
    try:
        value: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            field=where,
            value=text if isinstance(text, str) else text.decode(errors="replace").strip(),
            rule="must be JSON",
            fix=f"{error}.",
        ) from error
    return value


def items_in(source: str, option: str) -> Iterator[tuple[int, object]]:
    """Yield line number and value of every line that is not empty; `-` reads standard input."""
    name = "standard input" if source == STANDARD_INPUT else source
    try:
        with nullcontext(sys.stdin.buffer) if source == STANDARD_INPUT else Path(source).open("rb") as lines:
            yield from _values(lines, name)
    except OSError as error:
        raise ConfigurationError(
            field=option, value=source, rule="cannot be read", fix=f"{error.strerror}."
        ) from error


def is_read_once(source: str) -> bool:
    """Say whether a source cannot be looked through before it is used."""
    return source == STANDARD_INPUT or (Path(source).exists() and not Path(source).is_file())


def length_of_time(field: str, text: str) -> float:
    """Return `90s`, `15m`, `12h`, `30d` or `2w` in seconds; a number alone is seconds."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise ConfigurationError(
            field=field, value=text, rule="must be a length of time", fix="90s, 15m, 12h, 30d or 2w."
        )
    return float(found["count"]) * _UNITS[found["unit"] or "s"]


def point_in_time(field: str, text: str) -> datetime:
    """Return an ISO instant with its zone, or `+15m` from now."""
    if text.startswith("+"):
        return instant(CURRENT.get().clock.wall()) + timedelta(seconds=length_of_time(field, text[1:]))
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise ConfigurationError(
            field=field,
            value=text,
            rule="must be an instant with its zone",
            fix="2026-03-01T08:00:00+01:00, 2026-03-01T07:00:00Z, or +15m from now.",
        )
    return at


def _values(lines: Iterable[bytes], name: str) -> Iterator[tuple[int, object]]:
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield number, decoded(line, f"{name}, line {number}")
