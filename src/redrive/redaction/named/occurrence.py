# SPDX-License-Identifier: Apache-2.0
"""A secret name in a text, with the text between it and its value. Nothing is decided here."""

from __future__ import annotations

import re
from typing import NamedTuple

from redrive.redaction.named.names import NameMeaning
from redrive.redaction.named.syntax import Syntax


class NamedValue(NamedTuple):
    """A secret name in a text, and the syntax by which a value follows it.

    A named tuple, not a dataclass, because one is built for every secret name of every text.
    """

    text: str
    start: int
    """The start of the name."""
    name: str
    after: re.Match[str]
    """The text between the name and the value."""
    syntax: Syntax
    meaning: NameMeaning

    @property
    def quote(self) -> str:
        """The quote before the name that is still open, as in `-H 'Cookie: ...'`."""
        before = self.text[self.start - 1 : self.start] if self.start else ""
        return before if before in ("'", '"') and not self.after["close"] else ""
