# SPDX-License-Identifier: Apache-2.0
"""Every SQLSTATE that the drivers know has a meaning, and the ones that matter have the right one."""

from __future__ import annotations

import asyncpg.exceptions
import psycopg.errors
import pytest

from redrive.core.failure import Retryable
from redrive.engine.classifier import classify
from redrive.rules.shared.sqlstate import verdict_for

KNOWN = sorted(
    {cls.sqlstate for cls in vars(psycopg.errors).values() if isinstance(getattr(cls, "sqlstate", None), str)}
)


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ("08000", "NETWORK_RESET"), ("08006", "NETWORK_RESET"), ("08P01", "NETWORK_PROTOCOL"),
        ("22P02", "SCHEMA_INVALID"), ("23502", "SCHEMA_INVALID"), ("23503", "SCHEMA_INVALID"), ("23505", "CONFLICT"),
        ("25006", "NETWORK_UNAVAILABLE"), ("25P02", "BUG_CODE"), ("28P01", "AUTH_INVALID"), ("28000", "AUTH_INVALID"),
        ("3D000", "CONFIG_INVALID"), ("40001", "CONFLICT"), ("40P01", "CONFLICT"), ("42501", "AUTH_DENIED"),
        ("42P01", "BUG_CODE"), ("53100", "DISK_FULL"), ("53200", "OUT_OF_MEMORY"), ("53300", "RESOURCE_EXHAUSTED"),
        ("54000", "REQUEST_TOO_LARGE"), ("55P03", "CONFLICT"), ("57014", "LOCAL_TIMEOUT"), ("57P01", "NETWORK_UNAVAILABLE"),
        ("57P02", "NETWORK_UNAVAILABLE"), ("57P03", "NETWORK_UNAVAILABLE"), ("57P04", "CONFIG_INVALID"),
        ("58030", "UPSTREAM_ERROR"), ("XX000", "UPSTREAM_ERROR"), ("P0001", "REJECTED_POLICY"),
    ],
)  # fmt: skip
def test_a_state_means_the_same_whichever_driver_brings_it(state: str, code: str) -> None:
    from_psycopg = psycopg.errors.lookup(state)("text")
    from_asyncpg = asyncpg.exceptions.PostgresError.new({"C": state, "M": "text"})

    for exc in (from_psycopg, from_asyncpg):
        failure = classify(exc)
        assert (failure.code, failure.provider_code) == (code, state)


def test_every_state_that_psycopg_knows_has_a_meaning() -> None:
    assert len(KNOWN) > 200
    for state in KNOWN:
        verdict = verdict_for(state)
        assert verdict is not None
        assert verdict.provider_code == state


def test_integrity_data_and_syntax_errors_never_heal_by_themselves() -> None:
    for state in KNOWN:
        verdict = verdict_for(state)
        assert verdict is not None
        if state[:2] in {"22", "23", "28", "42"}:
            assert verdict.code.retryable is not Retryable.YES


@pytest.mark.parametrize("state", [None, "", "2350", "235055", 23505, "23'05", b"23505"])
def test_what_is_no_state_has_no_meaning(state: bytes | int | str | None) -> None:
    assert verdict_for(state) is None


def test_psycopg2_is_read_like_its_successor_by_the_name_it_gives_the_state() -> None:
    """psycopg2 is not installed here; its errors have the same names, and `pgcode` for the state."""
    root = type("Error", (Exception,), {"__module__": "psycopg2", "pgcode": None})
    operational = type("OperationalError", (root,), {"__module__": "psycopg2"})
    interface = type("InterfaceError", (root,), {"__module__": "psycopg2"})
    duplicate = type("UniqueViolation", (root,), {"__module__": "psycopg2.errors", "pgcode": "23505"})

    assert classify(operational("connection to server failed: Connection refused")).code == "NETWORK_REFUSED"
    assert classify(duplicate("duplicate key")).code == "CONFLICT"
    assert classify(interface("connection already closed")).code == "NETWORK_RESET"
    assert classify(interface("only protocol 3 supported")).code == "BUG_CODE"


def test_the_pools_errors_are_known_by_their_module_and_name() -> None:
    """psycopg_pool is not installed here; its errors are OperationalErrors of its own module."""

    def pool_error(name: str) -> BaseException:
        made: type[BaseException] = type(name, (psycopg.OperationalError,), {"__module__": "psycopg_pool"})
        return made("text")

    assert classify(pool_error("PoolTimeout")).code == "RESOURCE_EXHAUSTED"
    assert classify(pool_error("TooManyRequests")).code == "QUEUE_FULL"
    assert classify(pool_error("PoolClosed")).code == "BUG_CODE"
