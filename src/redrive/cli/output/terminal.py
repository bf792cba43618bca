# SPDX-License-Identifier: Apache-2.0
"""The one way to people's terminals: whatever a text from elsewhere holds, it is shown, and commands nothing.

Messages, keys and imported letters are written by strangers; escape sequences in them could recolour, overwrite or rename what an
operator looks at, and marks of direction could turn it around. Such characters are shown by their number; newlines and tabs stay.
What redrive itself sends (colours, a moving bar) is not text, and goes on as it is.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import Any, Final

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

_COMMANDS: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""C0 but newline and tab, DEL, C1, marks of direction, other ends of lines, and lone surrogates, which cannot be written at all."""


def shown(text: str) -> str:
    r"""Return a text as people may see it: control characters and marks of direction by their number, such as \x1b."""
    return _COMMANDS.sub(_number, text)


def harmless(document: str) -> str:
    """Return JSON that says the same, with what a terminal might obey escaped; the encoder escapes C0 and no more."""
    return _COMMANDS.sub(lambda found: f"\\u{ord(found[0]):04x}", document)


class Screen(Console):
    """A console that shows texts and never obeys them, wherever in an answer they stand."""

    def render_str(self, text: str, **how: Any) -> Text:
        """Make a text of a string. Shown here already, so that it is measured and wrapped as it will be seen."""
        return super().render_str(shown(text), **how)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render anything. Every answer ends here, also one that brings texts of its own making."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(shown(segment.text), segment.style)


class LineFormatter(logging.Formatter):
    """Log records as lines for people."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as it may be seen, with its stack."""
        return shown(super().format(record))


def _number(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"
