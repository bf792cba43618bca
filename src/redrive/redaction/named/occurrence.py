# SPDX-License-Identifier: Apache-2.0
"""A telling name in a text, with what stands between it and its value. No judgement is made here."""

from __future__ import annotations

import re
from typing import NamedTuple

from redrive.redaction.named.names import Telling
from redrive.redaction.named.syntax import Carrier


class Named(NamedTuple):
    """A telling name in a text, and how a value follows it.

    A named tuple, not a dataclass, because one is made for every telling name of every text.
    """

    text: str
    start: int
    """Where the name starts."""
    name: str
    after: re.Match[str]
    """What stands between the name and the value."""
    carrier: Carrier
    said: Telling

    @property
    def quote(self) -> str:
        """The quote that opened before the name and is still open, as in `-H 'Cookie: ...'`."""
        before = self.text[self.start - 1 : self.start] if self.start else ""
        return before if before in ("'", '"') and not self.after["close"] else ""
