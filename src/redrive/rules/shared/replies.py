# SPDX-License-Identifier: Apache-2.0
"""Codes for the three-digit replies of FTP and SMTP servers: 4xx is retryable, 5xx is not.

The other two digits mean different things in the two protocols, so each library has its own table of exceptions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.core.verdict import Verdict
from redrive.rules.shared.inspection import text_of

_NUMBER: Final = re.compile(r"\s*([1-5]\d\d)\b")


def reply_number(text: object) -> int | None:
    """Return the number that a reply starts with."""
    found = _NUMBER.match(text_of(text))
    return int(found[1]) if found else None


def verdict_from_reply(number: int, table: Mapping[int, Code]) -> Verdict:
    """Return the verdict for a reply: by the table, else by the first digit."""
    if number in table:
        code = table[number]
    elif 400 <= number < 500:
        code = taxonomy.UPSTREAM_NOT_READY
    else:
        code = taxonomy.REQUEST_INVALID if 500 <= number < 600 else taxonomy.NETWORK_PROTOCOL
    return Verdict(code=code, provider_code=str(number))
