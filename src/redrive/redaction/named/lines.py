# SPDX-License-Identifier: Apache-2.0
"""Inspect the line of a name: its start, whether a string is open at the name, whether it is source code.

Looks back only, and at most a few source lines.
"""

from __future__ import annotations

from typing import Final

SOURCE_LINE_MAX: Final = 400
"""How far back the start of a line, and the line before it, may be."""


def line_start(text: str, before: int) -> int:
    """Return the start of the line that ends at `before`; an escaped line end counts."""
    floor = max(0, before - SOURCE_LINE_MAX)
    escaped = text.rfind("\\n", floor, before)
    return max(text.rfind("\n", floor, before) + 1, escaped + 2 if escaped >= 0 else floor)


def in_source(text: str, start: int) -> bool:
    """Return whether the line is the source line of a traceback: the line above it names a file."""
    if text.rfind('File "', max(0, start - 3 * SOURCE_LINE_MAX), start) < 0:
        return False
    line = line_start(text, start)
    end = line - (1 if text[line - 1 : line] == "\n" else 2)
    return end > 0 and text[line_start(text, end) : end].lstrip().startswith('File "')


def is_in_string(text: str, start: int, quote: str) -> bool:
    """Return whether a string in `quote` that opened on the same line is still open at `start`."""
    line = line_start(text, start)
    return (line == 0 or line > start - SOURCE_LINE_MAX) and text.count(quote, line, start) % 2 == 1
