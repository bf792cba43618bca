# SPDX-License-Identifier: Apache-2.0
"""asyncpg: every error of the server carries its SQLSTATE, those of connecting are the standard library's own.

Only InterfaceError has neither: a connection that was lost and one that is used wrongly are the same class, told apart by text.
"""

from __future__ import annotations

from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.core.verdict import RuleTable, Verdict
from redrive.rules.shared.reading import text_of
from redrive.rules.shared.sqlstate import verdict_for, verdict_in

_CLOSED: Final = (
    "connection is closed",
    "connection was closed",
    "connection has been released",
    "underlying connection",
)


def _server(exc: BaseException, _now: float) -> Verdict | Code:
    """Read the SQLSTATE; a connection that broke says in its cause what the server's last word was."""
    last_word = verdict_in(exc.__cause__)
    own = verdict_in(exc)
    if own is not None and own.code is taxonomy.NETWORK_RESET and last_word is not None:
        return last_word
    return own or taxonomy.UPSTREAM_ERROR


def _interface(exc: BaseException, _now: float) -> Verdict | Code:
    text = text_of(exc)
    return taxonomy.NETWORK_RESET if any(words in text for words in _CLOSED) else taxonomy.BUG_CODE


RULES: Final[RuleTable] = {
    # Not to be confused with the server's class of the same name, which has a SQLSTATE: this one is about an argument.
    "DataError": lambda exc, _now: verdict_in(exc) or verdict_for("22000"),
    "PostgresError": _server,
    "ClientConfigurationError": taxonomy.CONFIG_INVALID,
    "UnsupportedClientFeatureError": taxonomy.BUG_CODE,
    "UnsupportedServerFeatureError": taxonomy.UPSTREAM_UNSUPPORTED,
    "InterfaceError": _interface,
    # No host of the list is a primary (or a standby) at the moment, as during a failover.
    "TargetServerAttributeNotMatched": taxonomy.NETWORK_UNAVAILABLE,
    # A table changed beneath a prepared statement; asyncpg has thrown its cache away, so the next try works.
    "OutdatedSchemaCacheError": taxonomy.CONFLICT,
    "ProtocolError": taxonomy.NETWORK_PROTOCOL,
    "InternalClientError": taxonomy.BUG_CODE,
}
