# SPDX-License-Identifier: Apache-2.0
"""Signals that a stage may raise or return to control its own job.

They are not errors and have a base class of their own.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from redrive.core.arguments import seconds
from redrive.errors import ConfigurationError

_CODE: Final = re.compile(r"[A-Za-z0-9_.:-]{1,100}")


class Signal(Exception):  # noqa: N818 - a signal is a request of the stage, not an error.
    """The base class of the signals; never raised itself."""

    __module__ = "redrive"

    def __init_subclass__(cls, **options: object) -> None:
        """Set the public module name of the signals of this module: it is part of an application's dead letters."""
        super().__init_subclass__(**options)
        if cls.__module__ == __name__:
            cls.__module__ = "redrive"


class Retry(Signal):
    """Try this stage again; burns an attempt. Without a delay the policy's backoff applies."""

    def __init__(
        self, delay: timedelta | float | None = None, *, message: str = "the stage asked for a retry"
    ) -> None:
        self.delay = None if delay is None else seconds("Retry.delay", delay)
        self.message = message
        super().__init__(self.delay)

    def __str__(self) -> str:
        return self.message


class Snooze(Signal):
    """Run this stage again after a delay; burns no attempt. The policy's `snooze_max` limits how often."""

    def __init__(self, delay: timedelta | float, *, message: str = "the stage asked to be run later") -> None:
        self.delay = seconds("Snooze.delay", delay)
        self.message = message
        super().__init__(self.delay)

    def __str__(self) -> str:
        return self.message


class Cancel(Signal):
    """Stop the job for good, as cancelled rather than failed."""

    def __init__(self, reason: str = "the stage asked to cancel") -> None:
        self.reason = reason
        super().__init__(reason)


class Skip(Signal):
    """End the job as skipped, with a reason: neither a success nor a failure, and counted as such."""

    def __init__(self, reason: str) -> None:
        if not isinstance(reason, str) or not reason.strip():
            raise ConfigurationError(
                field="Skip.reason",
                value=reason,
                rule="must say why",
                fix='Skip("it has no text"), for example.',
            )
        self.reason = reason
        super().__init__(reason)


class Finish(Signal):
    """End the job here with success; the result is what its last stage would have returned, and the stages between do not run."""

    def __init__(self, result: object) -> None:
        self.result = result
        super().__init__("the stage finished the job")


class Fail(Signal):
    """Give the job up at once with this code, whatever the retry policy."""

    def __init__(self, code: str, message: str = "") -> None:
        if not isinstance(code, str) or not _CODE.fullmatch(code):
            raise ConfigurationError(
                field="Fail.code",
                value="<hidden>",
                rule="must be the name of a code, of at most 100 letters, digits and _ . : -",
                fix='Fail("NOT_FOUND", "what happened"), for example.',
            )
        self.code = code
        self.message = message or f"the stage gave up with {code}"
        super().__init__(code, message)

    def __str__(self) -> str:
        return self.message
