# SPDX-License-Identifier: Apache-2.0
"""jsonschema and its library `referencing`: distinguishes a document that does not fit its schema from an invalid schema."""

from __future__ import annotations

from typing import Final

from redrive.core import taxonomy
from redrive.core.verdict import RuleTable
from redrive.rules.shared.network import network_or

_REFERENCE: Final = network_or(taxonomy.CONFIG_INVALID)
"""A reference that cannot be resolved is permanent, unless the network prevented fetching it."""

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
