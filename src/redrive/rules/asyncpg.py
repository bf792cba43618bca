# SPDX-License-Identifier: Apache-2.0
"""asyncpg: every server error has a SQLSTATE; connection errors are the standard library's own.

Only InterfaceError has neither: it is raised for a lost connection and for wrong use, which only the text distinguishes.
"""

from __future__ import annotations

from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.core.verdict import RuleTable, Verdict
from redrive.rules.shared.inspection import text_of
from redrive.rules.shared.sqlstate import verdict_for, verdict_in

_CLOSED: Final = (
    "connection is closed",
    "connection was closed",
    "connection has been released",
    "underlying connection",
)


def _server(exc: BaseException, _now: float) -> Verdict | Code:
    """Read the SQLSTATE; the cause of a broken connection may have the server's last error."""
    last_error = verdict_in(exc.__cause__)
    own = verdict_in(exc)
    if own is not None and own.code is taxonomy.NETWORK_RESET and last_error is not None:
        return last_error
    return own or taxonomy.UPSTREAM_ERROR


def _interface(exc: BaseException, _now: float) -> Verdict | Code:
    text = text_of(exc)
    return taxonomy.NETWORK_RESET if any(words in text for words in _CLOSED) else taxonomy.BUG_CODE


RULES: Final[RuleTable] = {
    # The server's class of the same name has a SQLSTATE; this one is about an argument.
    "DataError": lambda exc, _now: verdict_in(exc) or verdict_for("22000"),
    "PostgresError": _server,
    "ClientConfigurationError": taxonomy.CONFIG_INVALID,
    "UnsupportedClientFeatureError": taxonomy.BUG_CODE,
    "UnsupportedServerFeatureError": taxonomy.UPSTREAM_UNSUPPORTED,
    "InterfaceError": _interface,
    # No host of the list is currently a primary (or a standby), as during a failover.
    "TargetServerAttributeNotMatched": taxonomy.NETWORK_UNAVAILABLE,
    # A table of a prepared statement changed; asyncpg has cleared its cache, so the next try works.
    "OutdatedSchemaCacheError": taxonomy.CONFLICT,
    "ProtocolError": taxonomy.NETWORK_PROTOCOL,
    "InternalClientError": taxonomy.BUG_CODE,
}
