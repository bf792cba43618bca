# SPDX-License-Identifier: Apache-2.0
"""Warnings about a store that does not answer: not one per try, or a full disk would fill the log as well."""

from __future__ import annotations

import logging


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
        """Note that the store answers: the next failure is a first one."""
        self._failures = 0
