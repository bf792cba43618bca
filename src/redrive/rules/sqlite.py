# SPDX-License-Identifier: Apache-2.0
"""The standard library's sqlite3, by SQLite's own result names.

A locked database is not a conflict: nothing was written, so a retry is safe even if the stage is not idempotent. It counts as an
exhausted resource.
"""

from __future__ import annotations

from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.core.verdict import RuleFunction, RuleTable, Verdict
from redrive.rules.shared.inspection import attribute, text_of

_RESULTS: Final[dict[str, Code]] = {
    "SQLITE_BUSY": taxonomy.RESOURCE_EXHAUSTED,
    "SQLITE_LOCKED": taxonomy.RESOURCE_EXHAUSTED,
    "SQLITE_PROTOCOL": taxonomy.RESOURCE_EXHAUSTED,  # lost the race for the WAL lock too often
    "SQLITE_SCHEMA": taxonomy.CONFLICT,
    "SQLITE_ABORT": taxonomy.CONFLICT,
    "SQLITE_INTERRUPT": taxonomy.CANCELLED,
    "SQLITE_FULL": taxonomy.DISK_FULL,
    "SQLITE_IOERR": taxonomy.IO_ERROR,
    "SQLITE_NOMEM": taxonomy.OUT_OF_MEMORY,
    # Reading a damaged file again gives the same bytes.
    "SQLITE_CORRUPT": taxonomy.SCHEMA_INVALID,
    "SQLITE_NOTADB": taxonomy.SCHEMA_INVALID,
    "SQLITE_READONLY": taxonomy.IO_DENIED,
    "SQLITE_PERM": taxonomy.IO_DENIED,
    "SQLITE_CANTOPEN": taxonomy.IO_NOT_FOUND,
    "SQLITE_AUTH": taxonomy.AUTH_DENIED,
    "SQLITE_TOOBIG": taxonomy.REQUEST_TOO_LARGE,
    "SQLITE_MISMATCH": taxonomy.SCHEMA_INVALID,
    "SQLITE_CONSTRAINT_UNIQUE": taxonomy.CONFLICT,
    "SQLITE_CONSTRAINT_PRIMARYKEY": taxonomy.CONFLICT,
    "SQLITE_CONSTRAINT_ROWID": taxonomy.CONFLICT,
    "SQLITE_CONSTRAINT": taxonomy.SCHEMA_INVALID,
    "SQLITE_ERROR": taxonomy.BUG_CODE,
    "SQLITE_MISUSE": taxonomy.BUG_CODE,
    "SQLITE_RANGE": taxonomy.BUG_CODE,
}
_TEXTS: Final[tuple[tuple[str, Code], ...]] = (
    ("database is locked", taxonomy.RESOURCE_EXHAUSTED),
    ("database table is locked", taxonomy.RESOURCE_EXHAUSTED),
    ("UNIQUE constraint failed", taxonomy.CONFLICT),
)
"""Pickling an exception, as a process pool does, loses the name of the result; these are recognised by text."""


def _or(fallback: Code) -> RuleFunction:
    def read(exc: BaseException, _now: float) -> Verdict | Code:
        name = attribute(exc, "sqlite_errorname")
        if isinstance(name, str):
            # An extended result such as SQLITE_BUSY_SNAPSHOT falls back to its primary result.
            known = _RESULTS.get(name) or _RESULTS.get("_".join(name.split("_")[:2]))
            return Verdict(code=known or fallback, provider_code=name)
        text = text_of(exc)
        return next((code for words, code in _TEXTS if words in text), fallback)

    return read


RULES: Final[RuleTable] = {
    "IntegrityError": _or(taxonomy.SCHEMA_INVALID),
    "DataError": _or(taxonomy.SCHEMA_INVALID),
    "InterfaceError": _or(taxonomy.BUG_CODE),
    "ProgrammingError": _or(taxonomy.BUG_CODE),
    "NotSupportedError": _or(taxonomy.BUG_CODE),
    "OperationalError": _or(taxonomy.BUG_CODE),
    "Error": _or(taxonomy.BUG_CODE),
    "Warning": taxonomy.BUG_CODE,  # raised for two statements at once, up to Python 3.11
}
