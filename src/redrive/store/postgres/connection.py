# SPDX-License-Identifier: Apache-2.0
"""The connection to a server: its address, its settings, and what its errors mean to the engine.

libpq reads the address, so that the variables `PG*`, `sslmode` and several hosts work as everywhere; `schema=` in the query of the
address names the schema. What identifies the database in messages has no password. Behind a pooler a session is only a
transaction's: settings are made in each one, nothing stays prepared, and nobody listens.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Any, Final, Literal
from urllib.parse import parse_qsl, quote, urlencode

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo

from redrive.config import variable
from redrive.errors import (
    ConfigurationError,
    StoreDamagedError,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
)
from redrive.store.connections import Pool
from redrive.store.postgres.arrays import adapt
from redrive.store.postgres.watchdog import WatchedConnection
from redrive.store.records import Row

DEFAULT_SCHEMA: Final = "redrive"
OLDEST_SERVER: Final = 14
PORT_MAX: Final = 65_535
LOCK_SECONDS: Final = 30
"""How long a statement waits for a lock; also how long a worker that hangs in a transaction keeps its locks."""
DEFAULTS: Final = {
    "fallback_application_name": "redrive",
    "connect_timeout": "10",
    # A server that is gone without a word is noticed in about ten seconds, long before a lease of half a minute ends.
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
"""Settings of a connection that neither its address nor a variable of libpq makes."""
PASSING: Final = ("08", "40", "53", "55", "57", "58", "25")
"""Classes of errors after which a repetition may succeed: connection, conflict, resources, lock, operator, system, read-only."""
ADMISSION: Final = re.compile(
    r"authentication failed|no password supplied|does not exist|no pg_hba\.conf entry|not permitted to log in"
    r"|permission denied for database|certificate|does not support SSL",
    re.IGNORECASE,
)
"""What is wrong with who connects, or how. Other errors of SSL are those of a connection that was lost."""
STARTING: Final = "the database system is"
"""What a server answers while it starts, recovers or shuts down; libpq passes on no SQLSTATE of a connection that failed."""
ABSENT: Final = (os.strerror(errno.ECONNREFUSED), "accepting connections on that socket")
"""What libpq reports while no server listens at an address."""
_SESSION: Final = "SELECT pid, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()"
_END: Final = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND backend_start::text = $2"
)
_AT_WORK: Final = "SELECT 1 FROM pg_stat_activity WHERE pid = $1 AND state = 'active' AND wait_event_type IS DISTINCT FROM 'Client'"
_HOLDER: Final = """SELECT activity.pid, application_name, to_char(query_start, 'YYYY-MM-DD HH24:MI:SS TZ'), mode,
    coalesce(relname, 'the whole schema')
FROM pg_locks held JOIN pg_stat_activity activity ON activity.pid = held.pid LEFT JOIN pg_class ON pg_class.oid = relation
WHERE granted AND held.pid <> pg_backend_pid()
    AND (xact_start IS NULL OR xact_start <= clock_timestamp() - make_interval(secs => $2))
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND ((relnamespace = to_regnamespace($1::text) AND relkind IN ('r', 'p'))
        OR (locktype = 'advisory' AND objsubid = 1 AND mode = 'ExclusiveLock'
            AND ((classid::bigint << 32 | objid::bigint) = hashtextextended($3::text, 0) OR EXISTS (SELECT FROM pg_class own
                WHERE own.oid::bigint = (classid::bigint << 32 | objid::bigint) & ((1::bigint << 46) - 1)
                    AND own.relnamespace = to_regnamespace($1::text)))))
ORDER BY array_position(ARRAY['AccessExclusiveLock', 'ExclusiveLock', 'ShareRowExclusiveLock', 'ShareLock',
    'ShareUpdateExclusiveLock', 'RowExclusiveLock', 'RowShareLock', 'AccessShareLock'], mode), xact_start LIMIT 1"""
"""Who holds a lock on a table of a schema, or the one for migrations and rare rows, since before the wait; the strongest first.

Workers hold locks all the time, and each for a moment only. What is locked as a number has the id of one of our tables in its last
46 bits: other schemas, and other programs, lock numbers in the same database.
"""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")

Link = WatchedConnection


@dataclass(frozen=True, slots=True)
class Address:
    """Where a database is."""

    conninfo: str
    schema: str
    name: str
    """How it is called in messages, without a password."""
    url: str
    """As it was given."""

    @property
    def lock(self) -> str:
        """The text whose hash is locked by whoever creates the schema or migrates it."""
        return f"redrive {self.schema}"


def address_of(url: str) -> Address:
    """Return the parts of an address.

    Raises:
        ConfigurationError: libpq cannot read it, or the schema has no plain name.
    """
    try:
        # Not taken apart further: an address may have no host at all, or several.
        place, _, query = url.partition("?")
        asked = parse_qsl(query, keep_blank_values=True)
        # libpq takes a plus sign for itself.
        rest = urlencode([(name, value) for name, value in asked if name != "schema"], quote_via=quote)
        _check_options(name for name, _ in asked)
        conninfo = f"{place}?{rest}"
        known = conninfo_to_dict(conninfo)
    except ConfigurationError:
        raise
    except (psycopg.Error, ValueError):
        # What libpq says about it repeats the address, with its password.
        raise ConfigurationError(
            field="connect(url)",
            value="postgresql://...",
            rule="must be an address that libpq can read",
            fix="postgresql://user@host:5432/name, for example; encode special characters in a password (%40 for @).",
        ) from None
    _check_ports(str(known.get("port", "")))
    schema = next((value for name, value in asked if name == "schema"), DEFAULT_SCHEMA)
    if not _NAME.fullmatch(schema):
        raise ConfigurationError(
            field="connect(url)",
            value=f"?schema={schema}",
            rule="must name a schema with letters, digits and underscores",
            fix="postgresql://host/name?schema=redrive, for example.",
        )
    return Address(conninfo, schema, _name_of(known, schema), url)


def _check_options(names: Iterable[str]) -> None:
    """Refuse unknown options."""
    options = {option.keyword.decode() for option in Conninfo.get_defaults()} | {"schema", "ssl"}
    for name in names:
        if name not in options:
            similar = get_close_matches(name, options, 1)
            raise ConfigurationError(
                field="connect(url)",
                value=f"?{name}=...",
                rule="has an option that libpq does not know",
                fix=f"Did you mean {similar[0]}?"
                if similar
                else "schema= and the options of libpq are known.",
            )


def _check_ports(ports: str) -> None:
    """Refuse a port that is none; several hosts may have one each."""
    for port in ports.split(","):
        if port and not (port.isascii() and port.isdigit() and 0 < int(port) <= PORT_MAX):
            raise ConfigurationError(
                field="connect(url)",
                value=port,
                rule=f"must have a port from 1 to {PORT_MAX}",
                fix="postgresql://user@host:5432/name, for example.",
            )


def _name_of(known: dict[str, Any], schema: str) -> str:
    user = f"{known['user']}@" if "user" in known else ""
    port = f":{known['port']}" if "port" in known else ""
    host, name = known.get("host", ""), known.get("dbname", "")
    folder = f"?host={host}" if str(host).startswith("/") else ""
    place = "" if folder else host
    named = "" if schema == DEFAULT_SCHEMA else f"{'&' if folder else '?'}schema={schema}"
    return f"postgresql://{user}{place}{port}/{name}{folder}{named}"


class Server:
    """One connection to a server, made anew after it was lost."""

    def __init__(self, address: Address, *, clock: str = "server") -> None:
        self.address = address
        self._clock = clock
        self.is_pooled = False
        """Whether a pooler stands in between, so that a session is a transaction."""
        self._link: Link | None = None
        self._session: Row = ()
        """The process of the last connection, and when it began: what the server itself calls it by."""

    @property
    def settings(self) -> bytes:
        """The statement that makes the settings of a session; inside a transaction, behind a pooler."""
        local = "true" if self.is_pooled else "false"
        made = (
            ("search_path", f'"{self.address.schema}"'),
            ("lock_timeout", f"{LOCK_SECONDS}s"),
            ("idle_in_transaction_session_timeout", f"{LOCK_SECONDS}s"),
            # Compiling a statement takes longer than any of ours.
            ("jit", "off"),
            ("redrive.clock", self._clock),
        )
        texts = [f"set_config('{name}', '{value}', {local})" for name, value in made]
        return f"SELECT {', '.join(texts)}".encode()

    def link(self) -> Link:
        """Return the connection; a new one when the last was lost."""
        if self._link is None or self._link.closed:
            self._link = self.connect()
            if self._session and not self.is_pooled:
                # The server may not have noticed yet, and its locks would stand in the way.
                self._link.execute(_END, self._session)
            self._session = self._link.session
        return self._link

    def connect(self) -> Link:
        """Return another connection, ready for use."""
        link = self._open()
        try:
            self._prepare(link)
        except BaseException:
            link.close()
            raise
        link.is_lost = partial(self._is_lost, link.session[:1])
        return link

    def _open(self) -> WatchedConnection:
        # With what the variables of libpq say: a default of ours must not go before those.
        known = _set_by_variables() | conninfo_to_dict(self.address.conninfo)
        given: dict[str, Any] = {name: value for name, value in DEFAULTS.items() if name not in known}
        if "," in str(known.get("host", "")) and "target_session_attrs" not in known:
            given["target_session_attrs"] = "read-write"
        link = WatchedConnection.connect(
            self.address.conninfo,
            autocommit=True,
            cursor_factory=psycopg.RawCursor,
            client_encoding="utf8",
            **given,
        )
        link.patience = int(known.get("tcp_user_timeout") or DEFAULTS["tcp_user_timeout"]) / 1_000
        return link

    def _is_lost(self, process: Row) -> bool:
        """Return whether the server works on no statement of a connection that is silent; asked on another one."""
        try:
            with self._open() as beside:
                row = beside.execute(_AT_WORK, process).fetchone()
        except psycopg.Error:
            return True
        # Behind a pooler the process is not known; the pooler has a limit of its own.
        return not self.is_pooled and row is None

    def _prepare(self, link: WatchedConnection) -> None:
        major = link.info.server_version // 10_000
        if major < OLDEST_SERVER:
            raise StoreRefusedError(
                database=self.address.name,
                cause=f"the server is PostgreSQL {major}, and redrive needs {OLDEST_SERVER} or newer",
                hint="Upgrade the server, or name another one.",
            )
        adapt(link)
        # A pooler gives a process id of its own.
        link.session = link.execute(_SESSION).fetchone() or ()
        self.is_pooled = link.session[:1] != (link.info.backend_pid,)
        if self.is_pooled:
            link.prepare_threshold = None
        else:
            link.execute(self.settings)

    def drop(self) -> None:
        """Close the connection; the next use makes another."""
        link, self._link = self._link, None
        if link is not None:
            link.close()


class ServerPool(Pool[Link]):
    """Connections to a server beside the store's own. A kept one may be lost by now; then another one is made."""

    errors = psycopg.Error
    lost = (psycopg.OperationalError,)

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server

    def opened(self) -> Link:
        """See `Pool.opened`."""
        return self._server.connect()


def _set_by_variables() -> dict[str, Any]:
    """Return the settings that the variables `PG*` make."""
    options = [
        (option.keyword.decode(), (option.envvar or b"").decode()) for option in Conninfo.get_defaults()
    ]
    return {keyword: value for keyword, name in options if name and (value := variable(name)) is not None}


def holder_of_lock(link: Link, address: Address) -> str:
    """Return who holds the strongest lock on a table of ours now, and for longest; an empty text if nobody does.

    The statement that waited has timed out by now, so the server no longer knows who blocked it.
    """
    row = link.execute(_HOLDER, (address.schema, float(LOCK_SECONDS), address.lock)).fetchone()
    if row is None:
        return ""
    pid, program, since, mode, place = row
    began = since or "at a time that this role may not see"
    return f"pid {pid} ({program or 'no application_name'}, query started {began}) holds {mode} on {place}"


def lock_not_granted(error: Exception, address: Address, holder: str) -> StoreUnavailableError:
    """Return the error of a statement that did not get a lock, with who holds it."""
    return StoreUnavailableError(
        database=address.name,
        cause=f"{_one_line(error)}: {holder}",
        hint="Wait until it ends, or end it: SELECT pg_terminate_backend(...) with its pid.",
    )


def error_of(error: Exception, address: Address) -> StoreError:
    """Return what an error of the driver means to the engine."""
    state = getattr(error, "sqlstate", None) or ""
    text = _one_line(error)
    database = address.name
    if state.startswith("XX") and state != "XX000":
        return StoreDamagedError(
            database=database,
            cause=text,
            hint="Stop all workers and look into the server's log; restore a backup if it reports damage.",
        )
    if isinstance(error, errors.InsufficientPrivilege):
        return StoreRefusedError(
            database=database,
            cause=text,
            hint="Grant it to the role (docs/how-to/postgresql.md lists what each role needs), or connect with another.",
            is_forbidden=True,
        )
    if isinstance(error, errors.UndefinedTable | errors.InvalidSchemaName | errors.UndefinedFunction):
        return StoreRefusedError(
            database=database,
            cause=f"the schema {address.schema} is missing or incomplete: {text}",
            hint="Create it with: redrive migrate --database-url ..., or restore a backup.",
        )
    if not state and isinstance(error, psycopg.OperationalError) and ADMISSION.search(text):
        return StoreRefusedError(
            database=database,
            cause=text,
            hint="Check user, password and database name (in the address, PGPASSWORD or ~/.pgpass), and pg_hba.conf on the server.",
        )
    if (state and state.startswith(PASSING)) or (
        not state and isinstance(error, psycopg.OperationalError | OSError)
    ):
        return StoreUnavailableError(
            database=database,
            cause=text,
            hint="Check that the server runs, and that host and port are right.",
            server=_server_in(text),
        )
    return StoreRefusedError(database=database, cause=f"the statement was refused: {text}")


def _server_in(text: str) -> Literal["starting", "absent"] | None:
    if STARTING in text:
        return "starting"
    return "absent" if any(words in text for words in ABSENT) else None


def _one_line(error: Exception) -> str:
    """Return the driver's message, without the statement."""
    diagnosis = getattr(error, "diag", None)
    primary = getattr(diagnosis, "message_primary", None) if diagnosis is not None else None
    return " ".join(str(primary or str(error) or type(error).__name__).split())
