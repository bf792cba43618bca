# SPDX-License-Identifier: Apache-2.0
"""Everything printed for people passes here: control characters in a text are escaped and never reach the terminal.

Messages, keys and imported letters come from untrusted sources. Escape sequences in them could recolour, overwrite or rename what
an operator sees, and bidirectional marks could reverse it. Such characters are printed as their code; newlines and tabs stay.
Redrive's own control sequences (colours, a progress bar) are not text and are not touched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

_CONTROL: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""C0 except newline and tab, DEL, C1, bidirectional marks, other line ends, and lone surrogates, which cannot be encoded."""


def escaped(text: str) -> str:
    r"""Return a text with control characters and bidirectional marks as their code, such as \x1b."""
    return _CONTROL.sub(_code, text)


def escaped_json(document: str) -> str:
    """Return equal JSON with all control characters escaped; the encoder escapes only C0."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", document)


class SafeConsole(Console):
    """A console that escapes every text it prints."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Make a text of a string. Escapes here already, so that it is measured and wrapped as it will be printed."""
        return super().render_str(escaped(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render anything. All output passes here, also texts that rich built itself."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(escaped(segment.text), segment.style)


def _code(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
