# SPDX-License-Identifier: Apache-2.0
"""jsonschema, and the library `referencing` beneath it: a document that breaks its schema, as opposed to a broken schema."""

from __future__ import annotations

from typing import Final

from redrive.core import taxonomy
from redrive.core.verdict import RuleTable
from redrive.rules.shared.network import trouble_or

_REFERENCE: Final = trouble_or(taxonomy.CONFIG_INVALID)
"""A reference that leads nowhere is wrong for good, unless it was the network that kept it from being fetched."""

RULES: Final[RuleTable] = {
    "ValidationError": taxonomy.SCHEMA_INVALID,
    "FormatError": taxonomy.SCHEMA_INVALID,
    "SchemaError": taxonomy.CONFIG_INVALID,
    "UnknownType": taxonomy.CONFIG_INVALID,
    "UndefinedTypeCheck": taxonomy.CONFIG_INVALID,
    "Unretrievable": _REFERENCE,
    "NoSuchResource": _REFERENCE,
    "Unresolvable": _REFERENCE,
}
