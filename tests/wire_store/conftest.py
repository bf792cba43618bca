# SPDX-License-Identifier: Apache-2.0
"""Fixtures: ports that misbehave, and one real server of each kind per test process."""

from __future__ import annotations

import ssl
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import trustme

from redrive import Redrive, connect
from tests.databases import Schemas
from tests.wire_store import sockets
from tests.wire_store.servers import Nats, Postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    server = Postgres()
    yield server
    server.close()


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nats]:
    server = Nats(tmp_path_factory.mktemp("nats"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="session")
def server_tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    return context


@pytest.fixture(scope="session")
def stranger_pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The certificate of an authority that signed nothing here."""
    path = tmp_path_factory.mktemp("tls") / "stranger.pem"
    trustme.CA().cert_pem.write_to_path(str(path))
    return path


@pytest.fixture
def closed_port() -> Iterator[int]:
    with sockets.closed_port() as port:
        yield port


@pytest.fixture
def silent_port() -> Iterator[int]:
    with sockets.silent_port() as port:
        yield port


@pytest.fixture
def resetting_port() -> Iterator[int]:
    with sockets.listening(sockets.reset) as port:
        yield port


@pytest.fixture
def closing_port() -> Iterator[int]:
    with sockets.listening(sockets.hang_up) as port:
        yield port


@pytest.fixture
def url(schemas: Schemas) -> str:
    """The address of an empty database on a server."""
    return schemas.address("jobs")


@pytest.fixture
def rd(url: str) -> Iterator[Redrive]:
    """A connection to it, in real time."""
    with connect(url) as opened:
        yield opened


@pytest.fixture
def effects(schemas: Schemas, url: str) -> Generator[psycopg.Connection[tuple[Any, ...]]]:
    """A schema of the application, beside the one of redrive at `url`."""
    name = f"{url.rpartition('=')[2]}_shop"
    with psycopg.connect(schemas.server, autocommit=True) as db:
        db.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE; CREATE SCHEMA {name}; SET search_path TO {name}")
        db.execute("CREATE TABLE effects (number bigint, later bigint UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        yield db
        db.execute(f"DROP SCHEMA {name} CASCADE")
