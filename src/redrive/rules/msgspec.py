# SPDX-License-Identifier: Apache-2.0
"""msgspec: decoding fails because of the data, encoding because of a bug in the program."""

from __future__ import annotations

from typing import Final

from redrive.core import taxonomy
from redrive.core.verdict import RuleTable

RULES: Final[RuleTable] = {
    "DecodeError": taxonomy.SCHEMA_INVALID,  # its subclass ValidationError included
    "EncodeError": taxonomy.BUG_CODE,
}
