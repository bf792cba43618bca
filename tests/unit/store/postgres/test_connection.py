# SPDX-License-Identifier: Apache-2.0
"""Connections to a server that fall silent, and what they leave behind."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from redrive import Pipeline, connect, stage
from redrive.store.postgres.connection import Server, address_of
from redrive.store.postgres.store import PostgresStore
from tests.databases import Schemas


@pytest.fixture
def url(schemas: Schemas) -> str:
    return schemas.address("silent")


def test_a_silent_connection_is_lost_unless_the_server_works_on_its_statement(url: str) -> None:
    server = Server(address_of(f"{url}&tcp_user_timeout=600"))
    with server.connect() as link, server.connect() as idle:
        assert link.execute("SELECT 1 FROM pg_sleep(1.2)").fetchall() == [(1,)]
        assert link.is_lost()
        assert idle.is_lost()
        link.is_lost = lambda: True
        with pytest.raises(psycopg.OperationalError, match=r"no answer for 0\.6 s"):
            link.execute("SELECT 1 FROM pg_sleep(2)")


def test_a_silent_connection_is_lost_if_the_server_takes_no_other(url: str) -> None:
    server = Server(address_of(url))
    with server.connect() as link:
        server.address = address_of("postgresql://127.0.0.1:1/nothing")
        assert link.is_lost()


def test_what_a_lost_connection_was_doing_is_ended_when_another_takes_its_place(url: str) -> None:
    server = Server(address_of(url))
    lost = server.link()
    lost.execute("BEGIN")
    server._link = None

    server.link().execute("SELECT 1")

    with pytest.raises(psycopg.errors.AdminShutdown):
        lost.execute("SELECT 1")
    lost.close()
    server.drop()


def test_statements_that_the_server_does_not_have_are_prepared_anew(url: str) -> None:
    @stage
    def nothing(number: int) -> None:
        """Do nothing."""

    with connect(url) as rd:
        store = rd.store
        assert isinstance(store, PostgresStore)

        def submit_and_count() -> int:
            rd.submit(Pipeline("flow", [nothing]), 1)
            return rd.jobs.counts()["queued"]

        for _ in range(6):
            submit_and_count()
        server = store._server.link().pgconn
        server.exec_(b"DEALLOCATE ALL")
        assert submit_and_count() == 7
        store._server.link().pgconn.exec_(b"DEALLOCATE ALL")
        assert rd.jobs.counts() == {"queued": 7}


def test_an_address_may_leave_out_the_host_and_has_options_with_spaces() -> None:
    found = address_of("postgresql:///shop?options=-c%20work_mem%3D8MB&schema=jobs")

    assert conninfo_to_dict(found.conninfo) == {"dbname": "shop", "options": "-c work_mem=8MB"}
    assert (found.schema, found.name) == ("jobs", "postgresql:///shop?schema=jobs")
