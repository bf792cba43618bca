# SPDX-License-Identifier: Apache-2.0
"""Check constructor arguments, so that every invalid one is reported in the same form: field, rule, value, fix.

Zero never means "unlimited"; leaving an argument out does.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from datetime import timedelta
from typing import Final, TypeGuard

from redrive.errors import ConfigurationError

SECONDS_MAX: Final = 100 * 365 * 86_400.0
"""A hundred years; a longer time is a mistake, and `datetime` could not represent its end."""
NAME_MAX: Final = 100
"""Characters of the name of a stage, a pipeline or a limit."""
TEXT_MAX: Final = 500
"""Characters of a text that a database finds things by: more may not fit into an index, if each takes four bytes."""
WHOLE_END: Final = 1 << 63
"""Above every whole number that a database stores."""


def did_you_mean(name: str, known: Iterable[str], *, at_least: float = 0.6) -> str:
    """Return a question with the known names that are most similar to a wrong one; empty if none is similar enough."""
    similar = difflib.get_close_matches(name, sorted({*known}), n=3, cutoff=at_least)
    return f"Did you mean {' or '.join(similar)}?" if similar else ""


def number(value: object) -> float | None:
    """Return a finite number as a float; None for anything else, including booleans and numbers outside a float's range."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def seconds(field: str, value: timedelta | float, *, minimum: float = 0.0, above: bool = False) -> float:
    """Return a duration as float seconds; refuse one that is too short or too long, and anything that is not a duration."""
    given = value.total_seconds() if isinstance(value, timedelta) else number(value)
    is_enough = given is not None and (given > minimum if above else given >= minimum)
    if given is None or not is_enough or given > SECONDS_MAX:
        rule = f"must be {'more than' if above else 'at least'} {minimum:g} seconds, and less than a hundred years"
        raise ConfigurationError(
            field=field, value=value, rule=rule, fix="Give seconds as a number, or a timedelta."
        )
    return given


def flag(field: str, value: object) -> bool:
    """Return a bool; refuse a string such as "false", which would count as true."""
    if not isinstance(value, bool):
        raise ConfigurationError(field=field, value=value, rule="must be True or False", fix="Pass a bool.")
    return value


def whole(field: str, value: int, *, minimum: int, fix: str) -> int:
    """Return a whole number that is at least `minimum`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ConfigurationError(
            field=field, value=value, rule=f"must be a whole number of at least {minimum}", fix=fix
        )
    return value


def is_storable(value: str) -> bool:
    """Return whether every database takes a text: it has no NUL, and no half of a surrogate pair."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in value


def text(field: str, value: object, *, fix: str, longest: int = TEXT_MAX) -> None:
    """Refuse what is no text, and one that a database cannot store, or not find things by."""
    if not isinstance(value, str) or not 0 < len(value) <= longest or not is_storable(value):
        rule = f"must be a text of 1 to {longest:,} characters, none of them NUL or half of a surrogate pair"
        raise ConfigurationError(field=field, value=value, rule=rule, fix=fix)


def stored(field: str, value: object) -> None:
    """Refuse a text or a whole number that not every database takes; anything else is left to its caller."""
    if isinstance(value, str):
        if not is_storable(value):
            rule = "must be a text without NUL and without half of a surrogate pair: no database takes those"
            raise ConfigurationError(field=field, value=value, rule=rule, fix="Leave such characters out.")
    elif isinstance(value, int) and not -WHOLE_END <= value < WHOLE_END:
        rule = f"must be a whole number of at most {WHOLE_END - 1}"
        raise ConfigurationError(
            field=field, value=value, rule=rule, fix="Use a number that fits into 64 bits."
        )


def instance(field: str, value: object, kind: type, *, fix: str) -> None:
    """Refuse a value that is not an instance of a class."""
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        rule = f"must be {article} {kind.__name__}"
        raise ConfigurationError(field=field, value=value, rule=rule, fix=fix)


def function(field: str, value: object, *, fix: str) -> None:
    """Refuse a value that is given and cannot be called."""
    if value is not None and not callable(value):
        raise ConfigurationError(field=field, value=value, rule="must be a function", fix=fix)


def name(field: str, value: object, *, fix: str) -> None:
    """Refuse a name that is empty, too long, or does not fit on a line."""
    if not isinstance(value, str) or not value.strip() or len(value) > NAME_MAX or not value.isprintable():
        rule = f"must be a name of at most {NAME_MAX} printable characters"
        raise ConfigurationError(field=field, value=value, rule=rule, fix=fix)


def distinct(field: str, names: Iterable[str], *, fix: str) -> None:
    """Refuse a name that is given twice."""
    seen: set[str] = set()
    for each in names:
        if each in seen:
            raise ConfigurationError(field=field, value=each, rule="must have distinct names", fix=fix)
        seen.add(each)


def is_http_status(value: object) -> TypeGuard[int]:
    """Return whether a value is the number of an HTTP status."""
    return isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599


def one_of(field: str, value: str, choices: tuple[str, ...]) -> str:
    """Return a string that is one of the choices."""
    if value not in choices:
        fix = did_you_mean(value, choices) if isinstance(value, str) else ""
        raise ConfigurationError(
            field=field,
            value=value,
            rule=f"must be {' or '.join(choices)}",
            fix=fix or f'"{choices[0]}" is usual.',
        )
    return value


def share(field: str, value: float, *, fix: str, least: float | None = None) -> float:
    """Return a share: more than 0 (or at least `least`) and at most 1."""
    given = number(value)
    is_enough = given is not None and (given > 0 if least is None else given >= least)
    if given is None or not is_enough or given > 1:
        low = "above 0" if least is None else f"at least {least:g}"
        raise ConfigurationError(field=field, value=value, rule=f"must be {low} and at most 1", fix=fix)
    return given
