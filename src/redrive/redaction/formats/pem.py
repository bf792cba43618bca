# SPDX-License-Identifier: Apache-2.0
"""Private key blocks: PEM, OpenSSH, PGP and PuTTY, over many lines or with escaped line ends, whole or cut off.

Public certificates and public keys are left alone. Every character is looked at a bounded number of times: a block
is read up to the next row of dashes and no further.
"""

from __future__ import annotations

import re
from typing import Final

from redrive.redaction.placeholders import Marks

KEY_MAX: Final = 8192
"""How much of a key whose beginning is missing is looked for before its end."""

_LABEL: Final = r"(?:[A-Z0-9]{1,12} ){0,4}PRIVATE KEY(?: BLOCK)?"
_BLOCK: Final = re.compile(
    # The body is anything but five dashes; a block that never ends takes the lines that look like a key.
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
_PUTTY: Final = re.compile(r"(Private-Lines: \d{1,3}\s++)(?>(?:[A-Za-z0-9+/=]{1,80}+(?:\s++|\Z))+)")


def redact_private_keys(text: str, marks: Marks) -> str:
    """Put one mark in place of every private key block."""
    if "PRIVATE KEY" in text:
        text = _BLOCK.sub(lambda block: _without_key(block, marks), text)
        if "END " in text:
            text = _without_tails(text, marks)
    if "Private-Lines: " in text:
        text = _PUTTY.sub(lambda found: f"{found[1]}{marks.redacted('private-key')}\n", text)
    return text


def _without_key(block: re.Match[str], marks: Marks) -> str:
    # A marker without a key after it, as in source code, is no block.
    return marks.redacted("private-key") if _ROW.search(block[1]) else block[0]


def _without_tails(text: str, marks: Marks) -> str:
    """Replace the rows of keys whose beginning was cut off."""
    pieces: list[str] = []
    done = 0
    for end in _END.finditer(text):
        rows = _ROWS_BACKWARDS.match(text[max(done, end.start() - KEY_MAX) : end.start()][::-1])
        if rows:
            pieces += (text[done : end.start() - rows.end()], marks.redacted("private-key"))
            done = end.end()
    pieces.append(text[done:])
    return "".join(pieces)
