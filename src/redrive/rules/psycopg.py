# SPDX-License-Identifier: Apache-2.0
"""psycopg, psycopg2 and psycopg_pool: by SQLSTATE if there is one, else by class.

While connecting there is neither: libpq returns only a text, so a wrong password, a missing database and a closed port are all an
OperationalError. Only these are classified by the texts of libpq and of an English server; an unknown text is a failed
connection, which is retryable.
"""

from __future__ import annotations

from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.core.verdict import RuleFunction, RuleTable, Verdict
from redrive.rules.shared.inspection import attribute, text_of
from redrive.rules.shared.sqlstate import verdict_in

_TEXTS: Final[tuple[tuple[str, Code], ...]] = (
    # With several hosts (localhost is two) the text has the error of every host. The answer of a server is more specific than
    # an unreachable host, so it comes first.
    ("password authentication failed", taxonomy.AUTH_INVALID),
    ("no password supplied", taxonomy.AUTH_INVALID),
    ("pg_hba.conf", taxonomy.AUTH_INVALID),
    ("authentication failed", taxonomy.AUTH_INVALID),
    ("is not permitted to log in", taxonomy.AUTH_INVALID),
    ("permission denied for database", taxonomy.AUTH_DENIED),
    ("certificate verify failed", taxonomy.TLS_CERTIFICATE),
    ("does not support SSL", taxonomy.CONFIG_INVALID),
    ("remaining connection slots are reserved", taxonomy.RESOURCE_EXHAUSTED),
    ("too many clients already", taxonomy.RESOURCE_EXHAUSTED),
    ("too many connections for", taxonomy.RESOURCE_EXHAUSTED),
    ("the database system is", taxonomy.NETWORK_UNAVAILABLE),  # starting up, shutting down, in recovery mode
    ("FATAL:  role ", taxonomy.AUTH_INVALID),
    ("FATAL:  database ", taxonomy.CONFIG_INVALID),
    ("failed to resolve host", taxonomy.NETWORK_DNS),
    ("could not translate host name", taxonomy.NETWORK_DNS),
    ("Connection refused", taxonomy.NETWORK_REFUSED),
    ("timeout expired", taxonomy.NETWORK_TIMEOUT),
    ("timed out", taxonomy.NETWORK_TIMEOUT),
    ("No route to host", taxonomy.NETWORK_UNREACHABLE),
    ("Network is unreachable", taxonomy.NETWORK_UNREACHABLE),
    ("closed the connection unexpectedly", taxonomy.NETWORK_RESET),
    ("has been closed unexpectedly", taxonomy.NETWORK_RESET),
    ("connection is closed", taxonomy.NETWORK_RESET),
    ("is lost", taxonomy.NETWORK_RESET),
    ("connection socket closed", taxonomy.NETWORK_RESET),
    ("Connection reset by peer", taxonomy.NETWORK_RESET),
    ("invalid response to", taxonomy.NETWORK_PROTOCOL),
    ("SSL error", taxonomy.NETWORK_TLS),
)


def _connection(exc: BaseException, _now: float) -> Verdict | Code:
    by_state = verdict_in(exc)
    if by_state is not None:
        return by_state
    # A flag of libpq, more reliable than the text: the server asked for a password and there was none.
    if attribute(exc, "pgconn", "needs_password") is True:
        return taxonomy.AUTH_INVALID
    text = text_of(exc)
    return next((code for words, code in _TEXTS if words in text), taxonomy.NETWORK_ERROR)


def _or(fallback: Code) -> RuleFunction:
    return lambda exc, _now: verdict_in(exc) or fallback


def _interface(exc: BaseException, _now: float) -> Verdict | Code:
    """Classify wrong use of the driver; psycopg2 also raises it for a connection that was lost earlier."""
    was_lost = "connection already closed" in text_of(exc)
    return verdict_in(exc) or (taxonomy.NETWORK_RESET if was_lost else taxonomy.BUG_CODE)


RULES: Final[RuleTable] = {
    "ConnectionTimeout": taxonomy.NETWORK_TIMEOUT,
    "CancellationTimeout": taxonomy.NETWORK_TIMEOUT,
    "PoolTimeout": taxonomy.RESOURCE_EXHAUSTED,
    "TooManyRequests": taxonomy.QUEUE_FULL,
    "PoolClosed": taxonomy.BUG_CODE,
    "OperationalError": _connection,
    "IntegrityError": _or(taxonomy.SCHEMA_INVALID),
    "DataError": _or(taxonomy.SCHEMA_INVALID),
    "InternalError": _or(taxonomy.UPSTREAM_ERROR),
    "InterfaceError": _interface,
    "ProgrammingError": _or(taxonomy.BUG_CODE),
    "NotSupportedError": _or(taxonomy.BUG_CODE),
    "Error": _or(taxonomy.BUG_CODE),
}
