# SPDX-License-Identifier: Apache-2.0
"""Checks of constructor arguments, so that every wrong one is refused in the same words: field, rule, value, fix.

Zero never means "unlimited" anywhere; leaving an argument out does.
"""

from __future__ import annotations

import math
from datetime import timedelta

from redrive.errors import ConfigurationError


def seconds(field: str, value: timedelta | float, *, minimum: float = 0.0, above: bool = False) -> float:
    """Return a length of time as float seconds, or refuse what is not finite, too small or no length of time at all."""
    rule = f"must be {'more than' if above else 'at least'} {minimum:g} seconds"
    fix = "Give seconds as a number, or a timedelta."
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigurationError(field=field, value=value, rule=rule, fix=fix)
    if value < minimum or (above and value == minimum):
        raise ConfigurationError(field=field, value=value, rule=rule, fix=fix)
    return float(value)


def whole(field: str, value: int, *, minimum: int, fix: str) -> int:
    """Return a whole number that is at least `minimum`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ConfigurationError(
            field=field, value=value, rule=f"must be a whole number of at least {minimum}", fix=fix
        )
    return value


def share(field: str, value: float, *, fix: str) -> float:
    """Return a share: above 0 and at most 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise ConfigurationError(field=field, value=value, rule="must be above 0 and at most 1", fix=fix)
    return float(value)
