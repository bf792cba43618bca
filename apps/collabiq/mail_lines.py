# SPDX-License-Identifier: Apache-2.0
"""The lines of a mail that are worth parsing: of long parts only the beginning.

The standard library keeps every line as an object, so that a mail of short lines takes fifty times its size. Attachments are never
read, and of texts only the beginning is; what is left out here would be thrown away later.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

PART_BYTES: Final = 2**20
PART_LINES: Final = 20_000
MAIL_BYTES: Final = 8 * 2**20
MAIL_LINES: Final = 200_000
_BOUNDARY: Final = re.compile(rb'boundary\s*=\s*(?:"([^"\r\n]{1,200})"|([^\s;"]{1,200}))', re.IGNORECASE)
HEADER_MAX: Final = 2_000
BOUNDARIES_MAX: Final = 1_000
"""Boundaries that are known, and lines of them that begin a part."""


def lines_worth_parsing(raw: bytes) -> Iterator[bytes]:
    """Yield the headers of a mail and of its parts, the boundaries, and the beginning of each body."""
    boundaries: set[bytes] = set()
    parts, mail, part = 0, [MAIL_BYTES, MAIL_LINES], [PART_BYTES, PART_LINES]
    place = 0
    while place < len(raw):
        line = raw[place : raw.find(b"\n", place) + 1 or None]
        place += len(line)
        if parts < BOUNDARIES_MAX and _is_boundary(line, boundaries):
            parts += 1
            part = [PART_BYTES, PART_LINES]
            yield line
        elif min(*part, *mail) > 0:
            kept = line[: min(part[0], mail[0])]
            for left in (part, mail):
                left[0] -= len(kept)
                left[1] -= 1
            if len(boundaries) < BOUNDARIES_MAX and len(kept) < HEADER_MAX:
                boundaries.update(quoted or bare for quoted, bare in _BOUNDARY.findall(kept))
            # A boundary must not become the rest of a line that was cut.
            yield kept if kept is line else kept + b"\n"
        else:
            place = raw.find(b"\n--", place - 1) + 1 if parts < BOUNDARIES_MAX else 0
            if not place:
                return


def _is_boundary(line: bytes, boundaries: set[bytes]) -> bool:
    """Return whether a line separates parts: two dashes, a boundary, perhaps two dashes more."""
    if not line.startswith(b"--"):
        return False
    name = line[2:].strip()
    return name in boundaries or (name.endswith(b"--") and name[:-2] in boundaries)
