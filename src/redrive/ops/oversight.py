# SPDX-License-Identifier: Apache-2.0
"""Who did something, and why: the line of the operator log that goes into the transaction of every change made by hand."""

from __future__ import annotations

import getpass
from dataclasses import dataclass

from redrive.engine.runtime import CURRENT
from redrive.store.protocol import Step


@dataclass(frozen=True, slots=True)
class By:
    """Who acts, and why."""

    actor: str
    reason: str | None = None

    def log(self, verb: str, subject: str) -> Step:
        """Return the step that writes this act down."""
        return Step("log", (CURRENT.get().clock.wall(), self.actor, verb, subject, self.reason))


def present_user() -> str:
    """Return the name of the user this process runs as; `unknown` where the system has none for it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "unknown"
