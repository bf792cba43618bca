# SPDX-License-Identifier: Apache-2.0
"""Loops that continue while the store does not answer, and warnings about it.

Not one warning per try: a full disk would fill the log as well.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from redrive.engine.clock import Clock
from redrive.errors import StoreError


class Outage:
    """Counts failures in a row, and logs the first, the second, the fourth, the eighth and so on."""

    __slots__ = ("_failures", "_logger")

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._failures = 0

    def failed(self, message: str, *args: object) -> None:
        """Count a failure; log it if it is one of those."""
        self._failures += 1
        if self._failures & (self._failures - 1) == 0:
            self._logger.warning(message, *args)

    def answered(self) -> None:
        """Note that the store answers: the next failure counts as the first again."""
        self._failures = 0


async def repeat(
    look: Callable[[], Awaitable[float]],
    clock: Clock,
    warnings: logging.Logger,
    failure: str,
    *,
    every: float,
) -> None:
    """Look until cancelled, again after as many seconds as the last look returned; or `every` so many if the store failed."""
    outage = Outage(warnings)
    while True:
        wait = every
        try:
            wait = await look()
            outage.answered()
        except StoreError as error:
            outage.failed(f"{failure}: %s", error)
        await clock.asleep(wait)
