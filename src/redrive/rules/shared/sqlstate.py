# SPDX-License-Identifier: Apache-2.0
"""Codes for a SQLSTATE: the five characters that identify a PostgreSQL error, whatever the driver and the language.

The whole state is looked up first, its class (the first two characters) next. Shared by psycopg, asyncpg and SQLAlchemy.
"""

from __future__ import annotations

from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.core.verdict import Verdict
from redrive.rules.shared.inspection import attribute

_STATES: Final[dict[str, Code]] = {
    "08001": taxonomy.NETWORK_ERROR,
    "08004": taxonomy.NETWORK_REFUSED,
    "08P01": taxonomy.NETWORK_PROTOCOL,
    "23505": taxonomy.CONFLICT,
    "23P01": taxonomy.CONFLICT,  # exclusion constraint: like a unique key, for ranges
    # After a failover the old primary is read-only; the next connection finds the new one.
    "25006": taxonomy.NETWORK_UNAVAILABLE,
    "25P03": taxonomy.LOCAL_TIMEOUT,
    "25P04": taxonomy.LOCAL_TIMEOUT,
    "42501": taxonomy.AUTH_DENIED,
    "53100": taxonomy.DISK_FULL,
    "53200": taxonomy.OUT_OF_MEMORY,
    "55006": taxonomy.CONFLICT,
    "55P03": taxonomy.CONFLICT,
    "55P02": taxonomy.CONFIG_INVALID,
    # A statement timeout or pg_cancel_backend: both end a statement that took too long.
    "57014": taxonomy.LOCAL_TIMEOUT,
    "57P04": taxonomy.CONFIG_INVALID,  # the database was dropped
    "57P05": taxonomy.NETWORK_RESET,  # the session was idle for too long
    "P0001": taxonomy.REJECTED_POLICY,  # RAISE EXCEPTION: a business rule in the database
    "P0002": taxonomy.NOT_FOUND,
}
_CLASSES: Final[dict[str, Code]] = {
    "02": taxonomy.NOT_FOUND,
    "08": taxonomy.NETWORK_RESET,
    "0A": taxonomy.BUG_CODE,
    "21": taxonomy.BUG_CODE,
    "22": taxonomy.SCHEMA_INVALID,
    "23": taxonomy.SCHEMA_INVALID,
    "25": taxonomy.BUG_CODE,
    "28": taxonomy.AUTH_INVALID,
    "3D": taxonomy.CONFIG_INVALID,
    "40": taxonomy.CONFLICT,
    "42": taxonomy.BUG_CODE,
    "44": taxonomy.SCHEMA_INVALID,
    "53": taxonomy.RESOURCE_EXHAUSTED,
    "54": taxonomy.REQUEST_TOO_LARGE,
    "57": taxonomy.NETWORK_UNAVAILABLE,
    "58": taxonomy.UPSTREAM_ERROR,
    "72": taxonomy.CONFLICT,
    "F0": taxonomy.CONFIG_INVALID,
    "HV": taxonomy.UPSTREAM_ERROR,
    "XX": taxonomy.UPSTREAM_ERROR,
}


def verdict_for(state: object) -> Verdict | None:
    """Return the verdict for a SQLSTATE; None when it is not one. A state of an unlisted class is a bug in the program."""
    if not isinstance(state, str) or len(state) != 5 or not state.isalnum():
        return None
    code = _STATES.get(state) or _CLASSES.get(state[:2], taxonomy.BUG_CODE)
    return Verdict(code=code, provider_code=state)


def verdict_in(exc: object) -> Verdict | None:
    """Return the verdict for the SQLSTATE of a driver's exception; psycopg2 calls it `pgcode`."""
    return verdict_for(attribute(exc, "sqlstate")) or verdict_for(attribute(exc, "pgcode"))
