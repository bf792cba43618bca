# SPDX-License-Identifier: Apache-2.0
"""Where a JSON value is nested deeper than the engine reads (`DEPTH_MAX`): such a value would fail every stage it is given to.

Looks at the text alone, so that it can tell of values that no decoder would take.
"""

from __future__ import annotations

import re
from typing import Final

from redrive.engine.pipeline.codec import DEPTH_MAX, is_deep, storable
from redrive.redaction.process import redact

PARTS_MAX: Final = 6
"""Parts of a place that are named: where the nesting begins says more than two hundred of them."""
PART_MAX: Final = 60
_TOKEN: Final = re.compile(rb'"([^"\\]*(?:\\.[^"\\]*)*)"(\s*:)?|[\[\]{},]', re.DOTALL)


def too_deep(encoded: bytes) -> str | None:
    """Say that a value is nested too deep, and where; None when it is not. What is no JSON has to be told from it by others."""
    return deeper(encoded) if is_deep(encoded) else None


def deeper(encoded: bytes) -> str:
    """Say where a value goes deeper than it may: as a JSON Pointer to where that begins, redacted and cut short."""
    return f"it is nested deeper than {DEPTH_MAX} levels, below {_pointer(_way_down(encoded))}"


def _way_down(encoded: bytes) -> list[str | int]:
    """Return the names and places that lead to the first part that lies too deep."""
    way: list[str | int] = []
    for token in _TOKEN.finditer(encoded):
        sign = token[0]
        if token[2] is not None:
            if way:
                way[-1] = token[1].decode("utf-8", "replace")
        elif sign in {b"[", b"{"}:
            if len(way) == DEPTH_MAX:
                break
            way.append(0 if sign == b"[" else "")
        elif sign in {b"]", b"}"} and way:
            way.pop()
        elif sign == b"," and way and isinstance(place := way[-1], int):
            way[-1] = place + 1
    return way


def _pointer(way: list[str | int]) -> str:
    # A name may be a secret; each is redacted whole before it is cut.
    named = [redact(storable(str(part).replace("~", "~0").replace("/", "~1"))) for part in way[:PARTS_MAX]]
    cut = "/..." if len(way) > PARTS_MAX else ""
    return "".join(f"/{part[:PART_MAX]}" for part in named) + cut or "the top"
