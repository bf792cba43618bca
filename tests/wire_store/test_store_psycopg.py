# SPDX-License-Identifier: Apache-2.0
"""psycopg against a real PostgreSQL: connecting, statements, and two transactions in each other's way."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from redrive.engine.classifier import classify
from tests.wire_store.catching import failure_of, raised_by
from tests.wire_store.servers import Postgres
from tests.wire_store.sockets import listening, saying, securing


def connect(port: int, **options: Any) -> psycopg.Connection:
    known: dict[str, Any] = {
        "host": "127.0.0.1",
        "user": "postgres",
        "dbname": "postgres",
        "connect_timeout": 5,
        "autocommit": True,
    }
    return psycopg.connect(port=port, **{**known, **options})


@pytest.fixture(scope="module")
def database(postgres: Postgres) -> Postgres:
    with connect(postgres.port) as admin:
        admin.execute("drop table if exists item")
        admin.execute("create table item (id int primary key, amount int not null, check (amount < 100))")
        admin.execute("drop role if exists bob")
        admin.execute("create role bob login password 'right'")
        admin.execute("drop role if exists barred")
        admin.execute("create role barred login")
    return postgres


@pytest.fixture
def db(database: Postgres) -> Iterator[psycopg.Connection]:
    with connect(database.port) as connection:
        connection.execute("truncate item")
        connection.execute("insert into item values (1, 10), (2, 20)")
        yield connection


@pytest.mark.req("CR-1.1")
def test_no_server_on_the_port_is_a_refused_connection(closed_port: int) -> None:
    failure = failure_of(connect, closed_port)

    assert (failure.code, failure.retryable, failure.is_reachability) == ("NETWORK_REFUSED", True, True)


@pytest.mark.req("CR-1.1")
def test_a_name_that_does_not_resolve_is_a_dns_failure() -> None:
    failure = failure_of(connect, 5432, host="nohost.invalid")

    assert (failure.code, failure.retryable) == ("NETWORK_DNS", True)


@pytest.mark.req("CR-1.1")
def test_a_server_that_never_answers_is_a_network_timeout(silent_port: int) -> None:
    # libpq rounds anything shorter up to two seconds.
    failure = failure_of(connect, silent_port, connect_timeout=2)

    assert (failure.code, failure.retryable) == ("NETWORK_TIMEOUT", True)


def test_a_server_that_resets_or_hangs_up_is_a_reset(resetting_port: int, closing_port: int) -> None:
    assert failure_of(connect, resetting_port).code == "NETWORK_RESET"
    assert failure_of(connect, closing_port).code == "NETWORK_RESET"


def test_a_server_that_speaks_another_protocol_is_a_protocol_failure() -> None:
    with listening(saying(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as port:
        failure = failure_of(connect, port)

    assert (failure.code, failure.retryable) == ("NETWORK_PROTOCOL", True)


def test_a_server_without_tls_is_wrong_configuration_where_tls_is_required() -> None:
    with listening(saying(b"N")) as port:
        failure = failure_of(connect, port, sslmode="require")

    assert (failure.code, failure.retryable) == ("CONFIG_INVALID", False)


def test_a_certificate_of_an_unknown_authority_is_not_retried(
    server_tls: ssl.SSLContext, stranger_pem: Path
) -> None:
    with listening(securing(server_tls, consent=b"S")) as port:
        failure = failure_of(connect, port, sslmode="verify-full", sslrootcert=str(stranger_pem))

    assert (failure.code, failure.retryable) == ("TLS_CERTIFICATE", False)


@pytest.mark.req("CR-1.6")
@pytest.mark.parametrize(
    "credentials",
    [
        pytest.param({"user": "bob", "password": "wrong"}, id="wrong password"),
        pytest.param({"user": "bob"}, id="no password"),
        pytest.param({"user": "nobody", "password": "x"}, id="unknown user"),
        pytest.param({"user": "barred"}, id="barred by pg_hba.conf"),
    ],
)
def test_credentials_that_are_not_accepted_are_not_retried(
    database: Postgres, credentials: dict[str, str]
) -> None:
    failure = failure_of(connect, database.port, **credentials)

    assert (failure.code, failure.retryable) == ("AUTH_INVALID", False)


def test_an_unknown_database_is_wrong_configuration(database: Postgres) -> None:
    failure = failure_of(connect, database.port, dbname="nowhere")

    assert (failure.code, failure.retryable) == ("CONFIG_INVALID", False)


def test_an_unknown_connection_option_is_a_bug(database: Postgres) -> None:
    assert failure_of(connect, database.port, no_such_option="1").code == "BUG_CODE"


def test_too_many_connections_heal(database: Postgres) -> None:
    with ExitStack() as open_connections:

        def open_all() -> None:
            for _ in range(20):
                open_connections.enter_context(connect(database.port, user="bob", password="right"))

        failure = failure_of(open_all)

    assert (failure.code, failure.retryable) == ("RESOURCE_EXHAUSTED", True)


@pytest.mark.req("CR-1.4")
def test_a_duplicate_key_is_retried_only_by_an_idempotent_stage(db: psycopg.Connection) -> None:
    exc = raised_by(db.execute, "insert into item values (1, 1)")

    assert classify(exc).code == "CONFLICT"
    assert classify(exc).provider_code == "23505"
    assert not classify(exc).retryable
    assert classify(exc, idempotent=True).retryable


@pytest.mark.req("CR-1.5")
@pytest.mark.parametrize(
    ("statement", "state"),
    [
        ("insert into item values (3, null)", "23502"),
        ("insert into item values (3, 100)", "23514"),
        ("select 'x'::int", "22P02"),
        ("select '2024-02-31'::date", "22008"),
    ],
)
def test_values_that_do_not_fit_are_validation_failures(
    db: psycopg.Connection, statement: str, state: str
) -> None:
    failure = failure_of(db.execute, statement)

    assert (failure.code, failure.retryable, failure.provider_code) == ("SCHEMA_INVALID", False, state)


def test_a_text_that_postgresql_cannot_store_is_a_validation_failure(db: psycopg.Connection) -> None:
    assert failure_of(db.execute, "select %s", ("a\0b",)).code == "SCHEMA_INVALID"


@pytest.mark.parametrize("statement", ["selec 1", "select * from nowhere", "select nothing from item"])
def test_wrong_sql_is_a_bug(db: psycopg.Connection, statement: str) -> None:
    failure = failure_of(db.execute, statement)

    assert (failure.code, failure.retryable) == ("BUG_CODE", False)


def test_wrong_use_of_the_driver_is_a_bug(db: psycopg.Connection) -> None:
    assert failure_of(db.execute, "select %s", ()).code == "BUG_CODE"
    assert failure_of(db.execute, "select %s", (object(),)).code == "BUG_CODE"
    assert failure_of(db.execute("set application_name = 'x'").fetchone).code == "BUG_CODE"


@pytest.mark.req("CR-1.6")
def test_a_missing_privilege_is_denied(database: Postgres) -> None:
    with connect(database.port, user="bob", password="right") as bob:
        failure = failure_of(bob.execute, "select * from item")

    assert (failure.code, failure.retryable, failure.provider_code) == ("AUTH_DENIED", False, "42501")


def test_a_statement_timeout_is_a_timeout(db: psycopg.Connection) -> None:
    db.execute("set statement_timeout = 20")

    failure = failure_of(db.execute, "select pg_sleep(5)")

    assert (failure.code, failure.retryable, failure.provider_code) == ("LOCAL_TIMEOUT", True, "57014")


def test_an_exception_raised_in_the_database_is_a_business_rule(db: psycopg.Connection) -> None:
    failure = failure_of(db.execute, "do $$ begin raise exception 'not on sundays'; end $$")

    assert (failure.code, failure.retryable) == ("REJECTED_POLICY", False)


def test_writing_in_a_read_only_session_heals_as_after_a_failover(db: psycopg.Connection) -> None:
    db.execute("set default_transaction_read_only = on")

    failure = failure_of(db.execute, "insert into item values (9, 9)")

    assert (failure.code, failure.retryable) == ("NETWORK_UNAVAILABLE", True)


def test_going_on_after_an_error_inside_a_transaction_is_a_bug(db: psycopg.Connection) -> None:
    db.autocommit = False
    failure_of(db.execute, "selec 1")

    assert failure_of(db.execute, "select 1").code == "BUG_CODE"
    db.rollback()


@pytest.mark.req("CR-1.4")
def test_a_serialization_failure_between_two_transactions_is_a_conflict(
    db: psycopg.Connection, database: Postgres
) -> None:
    with (
        connect(database.port, autocommit=False) as first,
        connect(database.port, autocommit=False) as second,
    ):
        for connection in (first, second):
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.execute("select * from item")
        first.execute("update item set amount = 11 where id = 1")
        first.commit()

        exc = raised_by(second.execute, "update item set amount = 12 where id = 1")
        second.rollback()

    assert (classify(exc).code, classify(exc).provider_code) == ("CONFLICT", "40001")
    assert not classify(exc).retryable
    assert classify(exc, idempotent=True).retryable


def test_a_deadlock_is_a_conflict(db: psycopg.Connection, database: Postgres) -> None:
    with (
        connect(database.port, autocommit=False) as first,
        connect(database.port, autocommit=False) as second,
    ):
        first.execute("update item set amount = 1 where id = 1")
        second.execute("update item set amount = 1 where id = 2")
        ended: list[BaseException | None] = []

        def cross(connection: psycopg.Connection, row: int) -> None:
            try:
                connection.execute("update item set amount = 2 where id = %s", (row,))
                ended.append(None)
            except psycopg.Error as exc:
                ended.append(exc)
            connection.rollback()

        threads = [threading.Thread(target=cross, args=args) for args in ((first, 2), (second, 1))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    (victim,) = (exc for exc in ended if exc is not None)
    assert (classify(victim).code, classify(victim).provider_code) == ("CONFLICT", "40P01")


def test_a_lock_that_is_not_to_be_had_is_a_conflict(db: psycopg.Connection, database: Postgres) -> None:
    with connect(database.port, autocommit=False) as holder:
        holder.execute("select * from item where id = 1 for update")

        failure = failure_of(db.execute, "select * from item where id = 1 for update nowait")
        holder.rollback()

    assert (failure.code, failure.provider_code) == ("CONFLICT", "55P03")


def test_a_backend_that_is_terminated_heals_and_so_does_the_lost_connection(database: Postgres) -> None:
    with connect(database.port) as victim:
        ended = failure_of(victim.execute, "select pg_terminate_backend(pg_backend_pid())")
        afterwards = failure_of(victim.execute, "select 1")

    assert (ended.code, ended.retryable, ended.provider_code) == ("NETWORK_UNAVAILABLE", True, "57P01")
    assert (afterwards.code, afterwards.retryable) == ("NETWORK_RESET", True)


def test_a_server_that_stops_mid_connection_heals() -> None:
    own = Postgres()
    with closing(own), connect(own.port) as survivor:
        own.stop()
        broken = failure_of(survivor.execute, "select 1")
        gone = failure_of(connect, own.port)

    # An immediate stop may still send its farewell before the connection breaks.
    assert broken.code in {"NETWORK_RESET", "NETWORK_UNAVAILABLE"}
    assert broken.retryable
    assert gone.code == "NETWORK_REFUSED"


def test_a_real_driver_error_inside_a_users_exception_keeps_its_meaning(closed_port: int) -> None:
    class ImportFailedError(Exception):
        pass

    def load() -> None:
        try:
            connect(closed_port)
        except psycopg.Error as exc:
            raise ImportFailedError from exc

    failure = failure_of(load)

    assert failure.code == "NETWORK_REFUSED"
    assert failure.exception.endswith("ImportFailedError")
