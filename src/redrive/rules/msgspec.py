# SPDX-License-Identifier: Apache-2.0
"""msgspec: what was read does not fit, or what we built cannot be written; the second is the program's doing."""

from __future__ import annotations

from typing import Final

from redrive.core import taxonomy
from redrive.core.verdict import RuleTable

RULES: Final[RuleTable] = {
    "DecodeError": taxonomy.SCHEMA_INVALID,  # its subclass ValidationError included
    "EncodeError": taxonomy.BUG_CODE,
}
