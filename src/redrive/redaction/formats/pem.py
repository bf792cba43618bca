# SPDX-License-Identifier: Apache-2.0
"""Find private key blocks: PEM, OpenSSH and PGP, over many lines or with escaped line ends, complete or cut off.

Public certificates and public keys stay. Every character is read a bounded number of times: a block ends at the next row of
dashes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from redrive.redaction.placeholders import Sentinels

_LABEL: Final = r"(?:[A-Z0-9]{1,12} ){0,4}(?:PRIVATE KEY(?: BLOCK)?|OpenVPN Static key V1)"
_BLOCK: Final = re.compile(
    # The body is anything but five dashes; a block without an end takes the lines that look like a key.
    rf"-{{4,5}} ?BEGIN {_LABEL} ?-{{4,5}}"
    rf"((?>[^-]*+(?:-{{1,3}}(?!-)[^-]++)*)-{{4,5}} ?END {_LABEL} ?-{{4,5}}"
    r"|(?>(?:\s++|\\++[nrt]|[A-Za-z-]{3,20}: [^\n\\]{1,80}+|[A-Za-z0-9+/=]++)*))"
)
_ROW: Final = re.compile("[A-Za-z0-9+/=]{10}")
_END: Final = re.compile(rf"-{{4,5}} ?END {_LABEL} ?-{{4,5}}")
# The rows before an END whose BEGIN was cut off, read backwards so that each is read once.
_ROWS_BACKWARDS: Final = re.compile(
    r"(?:\s|[nr]\\+){1,8}[A-Za-z0-9+/=]{1,80}(?:(?:\s|[nr]\\+){1,8}[A-Za-z0-9+/=]{16,80})*"
)


def redact_private_keys(text: str, sentinels: Sentinels) -> str:
    """Replace every private key block."""
    if "PRIVATE KEY" not in text and "Static key V1" not in text:
        return text
    hidden = sentinels.redacted("private-key")
    # A marker without a key after it, as in source code, is not a block.
    text = _BLOCK.sub(lambda block: hidden if _ROW.search(block[1]) else block[0], text)
    return sentinels.replace(text, _tails(text)) if "END " in text else text


def _tails(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the lines of keys whose beginning was cut off."""
    done = 0
    for end in _END.finditer(text):
        rows = _ROWS_BACKWARDS.match(text[max(done, end.start() - 8192) : end.start()][::-1])
        if rows:
            yield end.start() - rows.end(), end.end(), "private-key"
            done = end.end()
