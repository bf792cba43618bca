# SPDX-License-Identifier: Apache-2.0
"""pydantic and pydantic_core: distinguishes a value that does not fit its model from an invalid model."""

from __future__ import annotations

from typing import Final

from redrive.core import taxonomy
from redrive.core.verdict import RuleTable

RULES: Final[RuleTable] = {
    "ValidationError": taxonomy.SCHEMA_INVALID,
    "PydanticCustomError": taxonomy.SCHEMA_INVALID,
    "PydanticKnownError": taxonomy.SCHEMA_INVALID,
    # A value that cannot be serialized and an invalid model are both bugs in the program.
    "PydanticSerializationError": taxonomy.BUG_CODE,
    "PydanticSerializationUnexpectedValue": taxonomy.BUG_CODE,
    "SchemaError": taxonomy.BUG_CODE,
    "PydanticUserError": taxonomy.BUG_CODE,
    "PydanticUndefinedAnnotation": taxonomy.BUG_CODE,
    "PydanticImportError": taxonomy.BUG_CODE,
}
