# SPDX-License-Identifier: Apache-2.0
"""Small charts as SVG: bars, stacked bars and histograms, one panel below the other.

Text is escaped, and nothing is loaded from elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from xml.sax.saxutils import escape

import numpy as np
from numpy.typing import NDArray

BLUE: Final = "#2f6db5"
RED: Final = "#b5443c"
OUTCOMES: Final = {"ok": "#3c8d5a", "retry": "#d9a441", "dead": RED, "skipped": "#8a8f98"}

WIDTH: Final = 760
_LEFT: Final = 170
_BAR: Final = 360
_ROW: Final = 26
_TOP: Final = 40
_BINS: Final = 24
_HEIGHT: Final = 90

Panel = tuple[list[str], int]
"""The elements of a chart, and its height."""


def bars(title: str, rows: Sequence[tuple[str, int, str]], *, colour: str = BLUE) -> Panel:
    """Draw a bar for each row: its name, its count, and a remark."""
    most = max((count for _, count, _ in rows), default=0) or 1
    parts = [_text(16, 24, title, size=15, is_bold=True)]
    for place, (name, count, remark) in enumerate(rows):
        top = _TOP + place * _ROW
        length = _BAR * count / most
        parts += [
            _text(_LEFT - 8, top + 15, name, anchor="end"),
            _box(_LEFT, top + 3, max(length, 1.0) if count else 0.0, colour),
            _text(_LEFT + length + 8, top + 15, f"{count:,}  ({remark})"),
        ]
    if not rows:
        parts.append(_text(_LEFT, _TOP + 15, "none"))
    return parts, _TOP + max(1, len(rows)) * _ROW


def stacks(title: str, rows: Sequence[tuple[str, Mapping[str, int], str]]) -> Panel:
    """Draw a bar for each row, parted by outcome."""
    most = max((sum(parts.values()) for _, parts, _ in rows), default=0) or 1
    drawn = [_text(16, 24, title, size=15, is_bold=True)]
    for place, (outcome, colour) in enumerate(OUTCOMES.items()):
        key = WIDTH - 280 + place * 65
        drawn += [_box(key, 12, 12, colour, height=12), _text(key + 17, 23, outcome)]
    for place, (name, counts, remark) in enumerate(rows):
        top = _TOP + place * _ROW
        left: float = _LEFT
        drawn.append(_text(_LEFT - 8, top + 15, name, anchor="end"))
        for outcome, colour in OUTCOMES.items():
            length = _BAR * counts.get(outcome, 0) / most
            drawn.append(_box(left, top + 3, length, colour))
            left += length
        drawn.append(_text(left + 8, top + 15, f"{sum(counts.values()):,}  ({remark})"))
    return drawn, _TOP + len(rows) * _ROW


def histogram(title: str, values: NDArray[np.float64]) -> Panel:
    """Draw how often values occur, between the least and the greatest of them."""
    if not len(values):
        return bars(title, [])
    counts, edges = np.histogram(values, bins=_BINS)
    caption = f"{title}: {len(values):,} values, mean {values.mean():.3g}, deviation {values.std():.3g}"
    parts = [_text(16, 24, caption, size=15, is_bold=True)]
    width = (WIDTH - 2 * 40) / _BINS
    for place, count in enumerate(counts):
        height = _HEIGHT * float(count) / float(counts.max())
        parts.append(_box(40 + place * width, _TOP + _HEIGHT - height, width - 1, BLUE, height=height))
    bottom = _TOP + _HEIGHT + 16
    parts += [
        _text(40, bottom, f"{edges[0]:.3g}"),
        _text(WIDTH - 40, bottom, f"{edges[-1]:.3g}", anchor="end"),
    ]
    return parts, bottom + 4


def page(title: str, panels: Sequence[Panel]) -> str:
    """Return a picture of these panels."""
    drawn, top = [_text(16, 32, title, size=20, is_bold=True)], 48
    for parts, height in panels:
        drawn.append(f'<g transform="translate(0 {top})">{"".join(parts)}</g>')
        top += height + 20
    size = f'viewBox="0 0 {WIDTH} {top}" width="{WIDTH}" height="{top}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">'
    return f'{head}<rect width="{WIDTH}" height="{top}" fill="#fff"/>{"".join(drawn)}</svg>\n'


def _box(left: float, top: float, width: float, colour: str, *, height: float = 18) -> str:
    return f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'


def _text(
    left: float, top: float, text: str, *, size: int = 12, anchor: str = "start", is_bold: bool = False
) -> str:
    weight = ' font-weight="600"' if is_bold else ""
    return (
        f'<text x="{left:.1f}" y="{top:.1f}" font-size="{size}" text-anchor="{anchor}" fill="#222"{weight}>'
        f"{escape(text)}</text>"
    )
