# SPDX-License-Identifier: Apache-2.0
"""jsonschema, and the library `referencing` beneath it: a document that breaks its schema, as opposed to a broken schema."""

from __future__ import annotations

from typing import Final

from redrive.core import taxonomy
from redrive.core.verdict import RuleTable
from redrive.rules.reading import unless_caused

RULES: Final[RuleTable] = {
    "ValidationError": taxonomy.SCHEMA_INVALID,
    "FormatError": taxonomy.SCHEMA_INVALID,
    "SchemaError": taxonomy.CONFIG_INVALID,
    "UnknownType": taxonomy.CONFIG_INVALID,
    "UndefinedTypeCheck": taxonomy.CONFIG_INVALID,
    # A reference that leads nowhere. When fetching it failed, that failure is the cause and knows better.
    "Unretrievable": unless_caused(taxonomy.CONFIG_INVALID),
    "NoSuchResource": unless_caused(taxonomy.CONFIG_INVALID),
    "Unresolvable": unless_caused(taxonomy.CONFIG_INVALID),
}
