# SPDX-License-Identifier: Apache-2.0
"""pydantic and pydantic_core: a value that does not fit its model, as opposed to a model that makes no sense."""

from __future__ import annotations

from typing import Final

from redrive.core import taxonomy
from redrive.core.verdict import RuleTable

RULES: Final[RuleTable] = {
    "ValidationError": taxonomy.SCHEMA_INVALID,
    "PydanticCustomError": taxonomy.SCHEMA_INVALID,
    "PydanticKnownError": taxonomy.SCHEMA_INVALID,
    # What we built cannot be written out, and what defines the model is wrong: both are the program's doing.
    "PydanticSerializationError": taxonomy.BUG_CODE,
    "PydanticSerializationUnexpectedValue": taxonomy.BUG_CODE,
    "SchemaError": taxonomy.BUG_CODE,
    "PydanticUserError": taxonomy.BUG_CODE,
    "PydanticUndefinedAnnotation": taxonomy.BUG_CODE,
    "PydanticImportError": taxonomy.BUG_CODE,
}
