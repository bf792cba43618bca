# SPDX-License-Identifier: Apache-2.0
"""Labels with a bounded number of values: codes and names come from the application, and every value is a series of its own."""

from __future__ import annotations

from typing import Final

CODES_MAX: Final = 100
LANES_MAX: Final = 200
BREAKERS_MAX: Final = 100
TEXT_MAX: Final = 100
"""Characters of one value."""
OTHER: Final = "other"
"""Stands for every value after the first so many."""


class Labels:
    """The first so many values of a label, or of several that belong together; all later ones are counted as `other`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[tuple[str, ...], tuple[str, ...]] = {}

    def of(self, *values: str) -> tuple[str, ...]:
        """Return the values to report."""
        found = self._known.get(values)
        if found is None:
            if len(self._known) >= self._most:
                return (OTHER,) * len(values)
            found = self._known[values] = tuple(value[:TEXT_MAX] for value in values)
        return found
