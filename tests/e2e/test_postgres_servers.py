# SPDX-License-Identifier: Apache-2.0
"""Servers as operators have them: found by libpq's variables, with passwords, too old, and restored from a dump."""

from __future__ import annotations

import subprocess
from collections.abc import Generator
from pathlib import Path

import psycopg
import pytest

from redrive import connect
from redrive.store.postgres import connection
from redrive.store.postgres.connection import Server, address_of
from redrive.store.postgres.watchdog import WatchedConnection
from tests.databases import Schemas
from tests.e2e.cli.test_postgres import SECRET, assert_one_line
from tests.e2e.shell import Shell
from tests.postgres_server import PostgresServer, programs

RIGHT = "opensesame-of-the-test"


@pytest.fixture(scope="module")
def guarded() -> Generator[PostgresServer]:
    """A server that asks everybody but its superuser for a password."""
    server = PostgresServer("password_encryption = 'scram-sha-256'\n")
    with psycopg.connect(server.address, autocommit=True) as db:
        db.execute(f"CREATE ROLE ann LOGIN PASSWORD '{RIGHT}'; GRANT CREATE ON DATABASE postgres TO ann")
        rules = "host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
        (server.data / "pg_hba.conf").write_text(rules, encoding="utf-8")
        db.execute("SELECT pg_reload_conf()")
    yield server
    server.close()


def url_of(server: PostgresServer, password: str) -> str:
    return f"postgresql://ann{password}@127.0.0.1:{server.port}/postgres?sslmode=disable"


def test_a_wrong_password_is_one_line_without_it(
    shell: Shell, guarded: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for command in (("job", "list"), ("migrate",), ("worker", "flows:orders", "--until-idle")):
        refused = shell(*command, "--database-url", url_of(guarded, f":{SECRET}"))

        assert refused.code == 1
        assert refused.err.count("\n") == 2
        assert_one_line(refused.err, "password authentication failed", "Check user, password")
    missing = shell("job", "list", "--database-url", url_of(guarded, ""))
    assert missing.code == 1
    assert_one_line(missing.err, "no password supplied", "PGPASSWORD")

    monkeypatch.setenv("PGPASSWORD", RIGHT)
    assert shell("migrate", "--database-url", url_of(guarded, "")).code == 0


def test_the_variables_of_libpq_name_the_server(
    shell: Shell, guarded: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {
        "HOST": "127.0.0.1",
        "PORT": str(guarded.port),
        "USER": "ann",
        "PASSWORD": RIGHT,
        "DATABASE": "postgres",
    }
    for name, value in said.items():
        monkeypatch.setenv(f"PG{name}", value)

    assert shell("migrate", "--database-url", "postgresql://").code == 0
    assert shell("job", "list", "--database-url", "postgresql://").code == 0

    monkeypatch.setenv("PGPASSWORD", SECRET)
    refused = shell("job", "list", "--database-url", "postgresql://")
    assert refused.code == 1
    assert_one_line(refused.err, "password authentication failed")


@pytest.mark.parametrize(
    ("url", "variables", "expected"),
    [
        ("postgresql://h/d", {}, {"connect_timeout": "10", "target_session_attrs": None}),
        ("postgresql://h/d", {"CONNECT_TIMEOUT": "3"}, {"connect_timeout": None}),
        ("postgresql://h/d?connect_timeout=4", {"CONNECT_TIMEOUT": "3"}, {"connect_timeout": None}),
        ("postgresql://g,h/d", {}, {"target_session_attrs": "read-write"}),
        ("postgresql://g,h/d", {"TARGETSESSIONATTRS": "any"}, {"target_session_attrs": None}),
        ("postgresql:///d", {"HOST": "g,h"}, {"target_session_attrs": "read-write"}),
    ],
)
def test_a_default_does_not_go_before_a_variable(
    url: str, variables: dict[str, str], expected: dict[str, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """None: it is left to libpq, which takes it from the address or the variable."""
    given: dict[str, object] = {}

    def connected(_: str, **options: object) -> WatchedConnection:
        given.update(options)
        raise psycopg.OperationalError("not tried")

    monkeypatch.setattr(WatchedConnection, "connect", connected)
    for name, value in variables.items():
        monkeypatch.setenv(f"PG{name}", value)

    with pytest.raises(psycopg.OperationalError, match="not tried"):
        Server(address_of(url)).connect()

    assert {name: given.get(name) for name in expected} == expected


def test_a_server_that_is_too_old_is_one_line_with_the_fix(
    shell: Shell, fresh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "OLDEST_SERVER", 99)

    for command in (("job", "list"), ("migrate",), ("worker", "flows:orders", "--until-idle")):
        refused = shell(*command, "--database-url", fresh)

        assert refused.code == 1
        assert refused.err.count("\n") == 2
        assert_one_line(refused.err, "redrive needs 99 or newer", "Upgrade the server")


def test_a_dump_is_restored_as_an_installation_of_its_own(
    shell: Shell, schemas: Schemas, tmp_path: Path
) -> None:
    folder, _ = programs()
    dump = tmp_path / "redrive.dump"
    with schemas.database() as source, schemas.database() as target:
        assert shell("submit", "flows:orders", "5", "--database-url", source).code == 0
        assert shell("worker", "flows:orders", "--until-idle", "--database-url", source).code == 0
        assert shell("submit", "flows:orders", "6", "--database-url", source).code == 0

        ran(folder / "pg_dump", "--format=custom", "--schema=redrive", "--file", str(dump), *place_of(source))
        ran(folder / "pg_restore", "--exit-on-error", "--no-owner", *place_of(target), str(dump))

        for url in (source, target):
            assert shell("worker", "flows:orders", "--until-idle", "--database-url", url).code == 0
        with connect(source) as here, connect(target) as there:
            assert here.jobs.counts() == there.jobs.counts() == {"complete": 2}
        ids = [installations(url) for url in (source, target)]
    assert len(ids[0]) == 1
    assert ids[1][:1] == ids[0]
    assert len(ids[1]) == 2


def place_of(url: str) -> tuple[str, str]:
    return "--dbname", url


def ran(program: Path, *arguments: str) -> None:
    ended = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr


def installations(url: str) -> list[object]:
    """Return the ids that a database has had, oldest first."""
    with psycopg.connect(url) as db:
        return [row[0] for row in db.execute("SELECT id FROM redrive.installations ORDER BY number")]
