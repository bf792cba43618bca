# SPDX-License-Identifier: Apache-2.0
"""What three-digit replies mean, as FTP and SMTP servers give them: 4xx heals, 5xx does not.

The digits after the first differ in meaning between the two, so each library brings its own table of exceptions to that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.core.verdict import Verdict
from redrive.rules.shared.reading import text_of

_NUMBER: Final = re.compile(r"\s*([1-5]\d\d)\b")


def reply_number(text: object) -> int | None:
    """Return the number that a reply starts with."""
    found = _NUMBER.match(text_of(text))
    return int(found[1]) if found else None


def read_reply(number: int, table: Mapping[int, Code]) -> Verdict:
    """Return what a reply with this number means, by the table first and by its first digit otherwise."""
    if number in table:
        code = table[number]
    elif 400 <= number < 500:
        code = taxonomy.UPSTREAM_NOT_READY
    else:
        code = taxonomy.REQUEST_INVALID if 500 <= number < 600 else taxonomy.NETWORK_PROTOCOL
    return Verdict(code=code, provider_code=str(number))
