# SPDX-License-Identifier: Apache-2.0
"""Private key blocks: PEM, OpenSSH, PGP and PuTTY, over many lines or with escaped line ends, whole or cut off.

Public certificates and public keys are left alone. Every character is looked at a bounded number of times: a block
is read up to the next row of dashes and no further.
"""

from __future__ import annotations

import re
from typing import Final

from redrive.core.redact.marks import Marks

_LABEL: Final = r"(?:[A-Z0-9]{1,12} ){0,4}PRIVATE KEY(?: BLOCK)?"
_BLOCK: Final = re.compile(
    # The body is anything but five dashes; a block that never ends takes the lines that look like a key.
    rf"-{{4,5}} ?BEGIN {_LABEL} ?-{{4,5}}"
    rf"(?:(?>[^-]*+(?:-{{1,3}}(?!-)[^-]++)*)-{{4,5}} ?END {_LABEL} ?-{{4,5}}"
    r"|(?>(?:\s++|\\++[nrt]|[A-Za-z-]{3,20}: [^\n\\]{1,80}+|[A-Za-z0-9+/=]++)*))"
)
_TAIL: Final = re.compile(
    rf"(?>(?:[A-Za-z0-9+/=]{{1,80}}+(?>(?:\s|\\++[nr]){{1,8}}))*)-{{4,5}} ?END {_LABEL} ?-{{4,5}}"
)
_PUTTY: Final = re.compile(r"(Private-Lines: \d{1,3}\s++)(?>(?:[A-Za-z0-9+/=]{1,80}+(?:\s++|\Z))+)")


def redact_private_keys(text: str, marks: Marks) -> str:
    """Put one mark in place of every private key block."""
    if "PRIVATE KEY" in text:
        mark = marks.redacted("private-key")
        text = _BLOCK.sub(mark, text)
        if "END " in text:
            text = _TAIL.sub(mark, text)
    if "Private-Lines: " in text:
        text = _PUTTY.sub(lambda found: f"{found[1]}{marks.redacted('private-key')}\n", text)
    return text
