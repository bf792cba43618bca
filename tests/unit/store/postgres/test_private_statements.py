# SPDX-License-Identifier: Apache-2.0
"""Claim, settle and submit pass rows by position, for speed: what they pass and get is what the server takes and gives."""

from __future__ import annotations

import typing
from collections.abc import Generator
from types import NoneType
from typing import Any, cast

import msgspec
import psycopg
import pytest

from redrive.core.lifecycle import JobState
from redrive.store.plan import NOTHING, Continuation
from redrive.store.postgres.claim import LeasedJob
from redrive.store.postgres.connection import Server, address_of
from redrive.store.postgres.session import Session
from redrive.store.postgres.submit import Submission
from redrive.store.records import ClaimedJob, ClaimRequest, JobId, LaneId, NewJob, Row, RunId
from redrive.store.settlement_rows import facts_row, full_attempt, letter_row, plain_attempt, update_of
from redrive.store.statements.text import statements_of
from redrive.testing.conformance.build import LETTER, burial, cancellation, retry, settlement, skip
from tests.databases import Schemas

NAMES: dict[type, set[str]] = {
    int: {"int2", "int4", "int8"},
    float: {"float8"},
    str: {"text"},
    bytes: {"bytea"},
    bytearray: {"bytea"},
}
"""What PostgreSQL calls the types of values."""
LANE = LaneId(1)
ONE = ClaimedJob(
    JobId(1), 7, 1, LANE, 1, 1, 0, 0, 0, 0, 0, expires_at=None, codes=None, input=b"1", payload=None
)
FAILED = {"exception": "E", "http_status": 500, "config": "c", "notes": "{}", "codes": b"{}"}
JOB = NewJob(
    lane=LANE,
    payload=b"1",
    run_at=1.0,
    key="k",
    owner="o",
    run=RunId(1),
    ordinal=1,
    parent=JobId(1),
    expires_at=1.0,
)


def rows() -> dict[str, tuple[Row, Row]]:
    """Return a row without gaps for each statement over rows, and what is the same for all rows."""
    here = Continuation(ClaimRequest((LANE,), 1), (), token=7, now=1.0)
    nowhere = Continuation(NOTHING, (), token=7, now=1.0)
    next_stage = settlement(ONE, status=JobState.QUEUED)
    ends = [
        settlement(ONE),
        settlement(ONE, value=b"1" * 5_000),
        next_stage,
        retry(ONE, at=1.0, **FAILED),
        burial(ONE, **FAILED),
        cancellation(ONE),
        skip(ONE),
    ]
    made: dict[str, tuple[Row, Row]] = {}
    for one in ends:
        name, row = update_of(one, nowhere)
        made[name] = (row, ())
    name, row = update_of(next_stage, here)
    made[name] = (row, here.terms)
    dead = burial(ONE, **FAILED)
    known = {LANE: "shop"}
    return made | {
        "insert_good_attempt": (plain_attempt(msgspec.structs.replace(settlement(ONE), config="c")), ("w",)),
        "insert_attempt": (full_attempt(dead), ("w",)),
        "insert_letters": (letter_row(dead, LETTER), ()),
        "insert_facts": ((1, *facts_row(LETTER)), ()),
        "insert_jobs": (Submission(cast("Session", None), known)._row_of(JOB), (1.0,)),
    }


@pytest.fixture(scope="module")
def server(schemas: Schemas) -> Generator[psycopg.Connection]:
    with Server(address_of(schemas.address("jobs"))).connect() as link:
        yield link


def prepared(server: psycopg.Connection, name: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the types of a statement's parameters, and the names and types of its columns."""
    made = server.pgconn.prepare(b"", statements_of("postgres")[name].encode())
    assert made.status == psycopg.pq.ExecStatus.COMMAND_OK, made.error_message.decode()
    found, types = server.pgconn.describe_prepared(b""), server.adapters.types
    given: list[str] = []
    for place in range(found.nparams):
        kind = types[found.param_type(place)]
        is_array = found.param_type(place) == kind.array_oid
        given.append(f"{kind.name}[]" if is_array else kind.name)
    columns = [
        ((found.fname(place) or b"").decode(), types[found.ftype(place)].name)
        for place in range(found.nfields)
    ]
    return given, columns


@pytest.mark.parametrize("name", ["claim", "claim_of_key", "claim_job", "claimed"])
def test_a_claimed_row_is_what_the_server_returns(server: psycopg.Connection, name: str) -> None:
    hints: dict[str, Any] = typing.get_type_hints(LeasedJob)

    _, columns = prepared(server, name)

    assert [column for column, _ in columns] == list(hints)
    for column, kind in columns:
        declared = [each for each in typing.get_args(hints[column]) if each is not NoneType]
        plain = declared[0] if declared else hints[column]
        assert kind in NAMES[getattr(plain, "__supertype__", plain)], column


@pytest.mark.parametrize("name", sorted(rows()))
def test_what_is_settled_and_submitted_is_what_the_server_takes(
    server: psycopg.Connection, name: str
) -> None:
    row, terms = rows()[name]

    takes, _ = prepared(server, name)

    wanted = [NAMES[type(value)] for value in terms] + [
        {f"{kind}[]" for kind in NAMES[type(value)]} for value in row
    ]
    assert [kind in names for kind, names in zip(takes, wanted, strict=True)] == [True] * len(takes)
