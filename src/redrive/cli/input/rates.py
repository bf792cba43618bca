# SPDX-License-Identifier: Apache-2.0
"""How people write a rate (`10/s`) and the steps of a canary (`1,5,20,100`)."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from redrive.errors import ConfigurationError

_UNITS: Final = {
    "s": 1.0,
    "sec": 1.0,
    "second": 1.0,
    "min": 60.0,
    "m": 60.0,
    "minute": 60.0,
    "h": 3_600.0,
    "hour": 3_600.0,
}


def rate_of(text: str | None) -> float | None:
    """Return a rate per second: `10/s`, `600/min`, `5000/h`; a number alone could mean any of them, and is refused."""
    if text is None:
        return None
    amount, separator, unit = text.strip().partition("/")
    try:
        rate = float(amount) / _UNITS[unit.strip().lower() if separator else ""]
    except (KeyError, ValueError) as error:
        rule = "is no rate" if separator else "is no rate without its unit"
        raise ConfigurationError(
            field="--rate", value=text, rule=rule, fix="10/s, 600/min or 5000/h, for example."
        ) from error
    if not 0 < rate < float("inf"):
        raise ConfigurationError(
            field="--rate",
            value=text,
            rule="must be more than nothing, and not endless",
            fix="Leave it out for no limit; redrive replay pause releases nothing for a while.",
        )
    return rate


def canary_of(text: str) -> tuple[int, ...]:
    """Return the sizes of the first steps, which rise; none for an empty text."""
    try:
        sizes = tuple(int(size) for size in text.split(",")) if text.strip() else ()
    except ValueError as error:
        raise ConfigurationError(
            field="--canary", value=text, rule="must be whole numbers with commas", fix="1,5,20,100 is usual."
        ) from error
    if any(later <= earlier for earlier, later in pairwise((0, *sizes))):
        raise ConfigurationError(
            field="--canary",
            value=text,
            rule="must rise from step to step, from 1 on",
            fix="1,5,20,100 is usual.",
        )
    return sizes
