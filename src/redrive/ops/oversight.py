# SPDX-License-Identifier: Apache-2.0
"""Who did something, and why: the line of the operator log that goes into the transaction of every change made by hand."""

from __future__ import annotations

import getpass
from dataclasses import dataclass

from redrive.engine.codec import storable
from redrive.engine.runtime import CURRENT
from redrive.redaction import redact
from redrive.store.protocol import Step


@dataclass(frozen=True, slots=True)
class By:
    """Who acts, and why."""

    actor: str
    reason: str | None = None

    def log(self, verb: str, subject: str) -> Step:
        """Return the step that writes this act down; the reason is redacted."""
        told = None if self.reason is None else redact(storable(self.reason))
        return Step("log", (CURRENT.get().clock.wall(), storable(self.actor), verb, storable(subject), told))


def present_user() -> str:
    """Return the name of the user this process runs as; `unknown` where the system has none for it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "unknown"
