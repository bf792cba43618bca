# SPDX-License-Identifier: Apache-2.0
"""A store on a server, and other ways to its database."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing

import psycopg
import pytest

from redrive.store.postgres.store import PostgresStore
from redrive.testing.conformance.build import LEASE, NOW
from tests.databases import Schemas


@pytest.fixture
def url(schemas: Schemas) -> str:
    """The address of an empty database on a server."""
    return schemas.address("own")


@pytest.fixture
def store(url: str) -> Generator[PostgresStore]:
    """A store on a server, with two workers."""
    with closing(PostgresStore(url, clock="caller")) as made:
        made.start_worker("w1", NOW, LEASE)
        made.start_worker("w2", NOW, LEASE)
        yield made


@pytest.fixture
def db(schemas: Schemas, store: PostgresStore) -> Generator[psycopg.Connection[tuple[object, ...]]]:
    """Another connection to the same schema."""
    with psycopg.connect(schemas.server, autocommit=True) as link:
        link.execute(f"SET search_path TO {store.address.schema}")
        yield link
