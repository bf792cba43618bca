# SPDX-License-Identifier: Apache-2.0
"""Small SVG charts: bars, rankings, shares and trends.

A chart is self-contained: no script, no font, no external reference. Every text is escaped. Colours follow the reader's light or
dark mode, and are never the only distinction: every bar has its number beside it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final
from xml.sax.saxutils import escape

WIDTH: Final = 720
LABEL: Final = 240
"""The width for names."""
NUMBER: Final = 110
ROOM: Final = WIDTH - LABEL - NUMBER
"""The width for bars and lines."""
ROW: Final = 26
TOP: Final = 48
LABEL_MAX: Final = 30
"""Longer names are cut to fit beside their bars."""
_UNFIT: Final = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that are not allowed in XML."""
_STYLE: Final = (
    "svg{font:13px system-ui,sans-serif}.bg{fill:#fff}.t{fill:#1f2328}.m{fill:#57606a}.b{fill:#0969da}.g{fill:#1a7f37}"
    ".r{fill:#cf222e}.y{fill:#9a6700}.c{fill:#8250df}.h{font-weight:600;font-size:15px}.l{stroke:#0969da;fill:none;stroke-width:1.5}"
    "@media(prefers-color-scheme:dark){.bg{fill:#0d1117}.t{fill:#e6edf3}.m{fill:#9198a1}.b{fill:#4493f8}.g{fill:#3fb950}"
    ".r{fill:#f85149}.y{fill:#d29922}.c{fill:#ab7df8}.l{stroke:#4493f8}}"
)
PARTS: Final[Mapping[str, str]] = {"ok": "g", "retry": "y", "hold": "b", "dead": "r", "crashed": "c"}


def histogram(title: str, counts: Sequence[tuple[str, int]]) -> str:
    """Draw one vertical bar for each count."""
    height, base = 280, 230
    step = (WIDTH - 40) / max(len(counts), 1)
    most = max((count for _, count in counts), default=0) or 1
    drawn: list[str] = []
    for place, (name, count) in enumerate(counts):
        left, tall = 20 + place * step, (base - TOP - 24) * count / most
        middle = left + step / 2
        drawn += [
            _box(left + step * 0.15, base - tall, step * 0.7, tall, "b"),
            _text(middle, base - tall - 6, f"{count:,}", "t", anchor="middle"),
            _text(middle, base + 20, name, "m", anchor="middle"),
        ]
    return _picture(title, height, drawn)


def ranking(title: str, counts: Sequence[tuple[str, int]]) -> str:
    """Draw one horizontal bar for each count, in the given order."""
    most = max((count for _, count in counts), default=0) or 1
    drawn: list[str] = []
    for place, (name, count) in enumerate(counts):
        top = TOP + place * ROW
        drawn += [
            _text(LABEL - 10, top + 14, _cut(name), "t", anchor="end"),
            _box(LABEL, top + 3, ROOM * count / most, ROW - 10, "b"),
            _text(LABEL + ROOM * count / most + 6, top + 14, f"{count:,}", "m"),
        ]
    return _picture(title, TOP + len(counts) * ROW + 16, drawn or [_nothing()])


def shares(title: str, rows: Sequence[tuple[str, Mapping[str, int], str]]) -> str:
    """Draw one bar for each row, divided by outcome, with a remark beside it."""
    drawn: list[str] = []
    for place, (name, parts, remark) in enumerate(rows):
        top, left = TOP + place * ROW, float(LABEL)
        total = sum(parts.values()) or 1
        drawn.append(_text(LABEL - 10, top + 14, _cut(name), "t", anchor="end"))
        for part, colour in PARTS.items():
            wide = ROOM * parts.get(part, 0) / total
            if wide:
                drawn.append(_box(left, top + 3, wide, ROW - 10, colour, title=f"{part}: {parts[part]:,}"))
            left += wide
        drawn.append(_text(LABEL + ROOM + 6, top + 14, remark, "m"))
    bottom = TOP + len(rows) * ROW + 20
    for place, (part, colour) in enumerate(PARTS.items()):
        drawn += [
            _box(LABEL + place * 84, bottom - 10, 10, 10, colour),
            _text(LABEL + place * 84 + 15, bottom, part, "m"),
        ]
    return _picture(title, bottom + 16, drawn)


def trends(title: str, rows: Sequence[tuple[str, Sequence[int], str]]) -> str:
    """Draw one line over time for each row, with a remark beside it; each has its own scale."""
    drawn: list[str] = []
    for place, (name, values, remark) in enumerate(rows):
        top = TOP + place * ROW
        drawn += [
            _text(LABEL - 10, top + 14, _cut(name), "t", anchor="end"),
            _line(values, left=LABEL, top=top + 2, wide=ROOM, tall=ROW - 9),
            _text(LABEL + ROOM + 6, top + 14, remark, "m"),
        ]
    return _picture(title, TOP + len(rows) * ROW + 16, drawn or [_nothing()])


def _line(values: Sequence[int], *, left: float, top: float, wide: float, tall: float) -> str:
    most = max(values, default=0) or 1
    step = wide / max(len(values) - 1, 1)
    points = (
        f"{left + place * step:.1f},{top + tall * (1 - value / most):.1f}"
        for place, value in enumerate(values)
    )
    return f'<polyline class="l" points="{" ".join(points)}"/>'


def _picture(title: str, height: float, drawn: Sequence[str]) -> str:
    heading = _escaped(title)
    size = f'viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" height="{height:g}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{heading}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect class="bg" width="{WIDTH}" height="{height:g}"/>',
        f'<text class="t h" x="20" y="28">{heading}</text>',
        *drawn,
        "</svg>",
    ]
    return "\n".join(parts)


def _box(left: float, top: float, wide: float, tall: float, colour: str, *, title: str = "") -> str:
    place = f'class="{colour}" x="{left:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{tall:.1f}" rx="2"'
    return f"<rect {place}><title>{_escaped(title)}</title></rect>" if title else f"<rect {place}/>"


def _text(left: float, base: float, text: str, colour: str, *, anchor: str = "start") -> str:
    return (
        f'<text class="{colour}" x="{left:.1f}" y="{base:.1f}" text-anchor="{anchor}">{_escaped(text)}</text>'
    )


def _nothing() -> str:
    return _text(20, TOP + 6, "nothing to show", "m")


def _cut(text: str) -> str:
    return text if len(text) <= LABEL_MAX else f"{text[: LABEL_MAX - 1]}…"


def _escaped(text: str) -> str:
    return escape(_UNFIT.sub("\ufffd", text), {'"': "&quot;"})
