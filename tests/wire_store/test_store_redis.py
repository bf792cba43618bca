# SPDX-License-Identifier: Apache-2.0
"""The real redis client against a server on a real socket that answers in Redis' own words.

Most answers were seen from a Redis 6.2; those that take a whole cluster in trouble to provoke (LOADING, CLUSTERDOWN, NOREPLICAS,
TRYAGAIN, MOVED, MISCONF and the like) follow its documentation. The server here only repeats them.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from redrive.engine.classifier import classify
from tests.wire_store.catching import failure_awaited, failure_of, raised_by
from tests.wire_store.sockets import Talk, listening, saying


def commands(connection: socket.socket) -> Iterator[list[bytes]]:
    """Read commands as a client sends them: arrays of strings, each with its length."""
    with connection.makefile("rb") as lines:
        while header := lines.readline():
            words = []
            for _ in range(int(header[1:])):
                length = int(lines.readline()[1:])
                words.append(lines.read(length + 2)[:-2])
            yield words


def answering(answer: bytes, **others: bytes) -> Talk:
    """Build a server with one answer for everything; `others` are answers to commands by name."""

    def talk(connection: socket.socket) -> None:
        for words in commands(connection):
            name = words[0].decode().lower()
            introducing_itself = name in {"client", "select"}
            connection.sendall(others.get(name, b"+OK\r\n" if introducing_itself else answer))

    return talk


def client(port: int, **options: Any) -> redis.Redis:
    known: dict[str, Any] = {
        "host": "127.0.0.1",
        "protocol": 2,
        "socket_timeout": 5,
        "retry": Retry(NoBackoff(), 0),
    }
    return redis.Redis(port=port, **{**known, **options})


@pytest.mark.parametrize(
    ("answer", "code", "retryable"),
    [
        ("LOADING Redis is loading the dataset in memory", "NETWORK_UNAVAILABLE", True),
        ("READONLY You can't write against a read only replica.", "NETWORK_UNAVAILABLE", True),
        (
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            "NETWORK_UNAVAILABLE",
            True,
        ),
        ("CLUSTERDOWN Hash slot not served", "NETWORK_UNAVAILABLE", True),
        ("NOREPLICAS Not enough good replicas to write.", "NETWORK_UNAVAILABLE", True),
        ("TRYAGAIN Multiple keys request during rehashing of slot", "UPSTREAM_NOT_READY", True),
        ("MOVED 3999 127.0.0.1:6381", "UPSTREAM_NOT_READY", True),
        ("OOM command not allowed when used memory > 'maxmemory'.", "UPSTREAM_OVERLOADED", True),
        (
            "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
            "UPSTREAM_OVERLOADED",
            True,
        ),
        (
            "MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk.",
            "UPSTREAM_ERROR",
            True,
        ),
        ("ERR max number of clients reached", "RESOURCE_EXHAUSTED", True),
        ("NOAUTH Authentication required.", "AUTH_INVALID", False),
        ("WRONGPASS invalid username-password pair or user is disabled.", "AUTH_INVALID", False),
        ("NOPERM this user has no permissions to run the 'set' command", "AUTH_DENIED", False),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", "BUG_CODE", False),
        ("CROSSSLOT Keys in request don't hash to the same slot", "BUG_CODE", False),
        ("NOSCRIPT No matching script. Please use EVAL.", "NOT_FOUND", False),
        ("BUSYGROUP Consumer Group name already exists", "CONFLICT", False),
        ("ERR value is not an integer or out of range", "REQUEST_INVALID", False),
        ("ERR unknown command `FOO`, with args beginning with: ", "REQUEST_INVALID", False),
        ("an answer that starts with no word of the protocol", "REQUEST_INVALID", False),
    ],
)
@pytest.mark.req("CR-1.6")
def test_an_answer_is_read_by_its_class_or_by_its_first_word(answer: str, code: str, retryable: bool) -> None:
    with listening(answering(f"-{answer}\r\n".encode())) as port, client(port) as db:
        failure = failure_of(db.set, "key", "value")

    assert (failure.code, failure.retryable) == (code, retryable)


@pytest.mark.req("CR-1.1")
def test_connections_that_cannot_be_made_or_break_heal(
    closed_port: int, silent_port: int, resetting_port: int, closing_port: int
) -> None:
    cases: dict[str, dict[str, Any]] = {
        "NETWORK_REFUSED": {"port": closed_port},
        "NETWORK_TIMEOUT": {"port": silent_port, "socket_timeout": 0.1},
        "NETWORK_DNS": {"port": 6379, "host": "nohost.invalid"},
    }
    for code, options in cases.items():
        failure = failure_of(client(**options).ping)
        assert (failure.code, failure.retryable, failure.is_reachability) == (code, True, True)
    for port in (resetting_port, closing_port):
        assert failure_of(client(port).ping).code == "NETWORK_RESET"


def test_the_asynchronous_client_is_read_alike(closed_port: int, silent_port: int) -> None:
    async def ping(port: int) -> str:
        options: dict[str, Any] = {"socket_timeout": 0.1, "retry": redis.asyncio.retry.Retry(NoBackoff(), 0)}
        async with redis.asyncio.Redis(host="127.0.0.1", port=port, protocol=2, **options) as db:
            return (await failure_awaited(db.ping())).code

    assert asyncio.run(ping(closed_port)) == "NETWORK_REFUSED"
    assert asyncio.run(ping(silent_port)) == "NETWORK_TIMEOUT"


def test_an_unrelated_failure_before_it_does_not_colour_a_lost_connection(closing_port: int) -> None:
    def work() -> None:
        try:
            open("/no/such/file")  # noqa: PTH123, SIM115 - it fails, which is the point.
        except FileNotFoundError:
            client(closing_port).ping()

    assert failure_of(work).code == "NETWORK_RESET"


def test_a_server_that_speaks_another_protocol_is_a_protocol_failure() -> None:
    with listening(saying(b"HTTP/1.1 400 Bad Request\r\n")) as port:
        assert failure_of(client(port).ping).code == "NETWORK_PROTOCOL"


def test_tls_trouble_is_told_from_a_broken_connection() -> None:
    with listening(saying(b"-ERR no TLS here\r\n")) as port:
        assert failure_of(client(port, ssl=True).ping).code == "NETWORK_TLS"


@pytest.mark.req("CR-1.4")
def test_a_watched_key_that_changed_is_a_conflict() -> None:
    with (
        listening(answering(b"+QUEUED\r\n", watch=b"+OK\r\n", multi=b"+OK\r\n", exec=b"*-1\r\n")) as port,
        client(port) as db,
    ):
        pipe = db.pipeline()
        pipe.watch("key")
        pipe.multi()
        pipe.set("key", "value")
        exc = raised_by(pipe.execute)

    assert classify(exc).code == "CONFLICT"
    assert classify(exc, idempotent=True).retryable


def test_a_lock_that_somebody_else_holds_is_a_conflict() -> None:
    with listening(answering(b"$-1\r\n")) as port, client(port) as db:
        lock = db.lock("name", blocking_timeout=0.01, sleep=0.005)
        assert failure_of(lock.__enter__).code == "CONFLICT"


def test_pools_without_a_free_connection_heal() -> None:
    with listening(answering(b"+PONG\r\n")) as port:
        options: dict[str, Any] = {"host": "127.0.0.1", "port": port, "protocol": 2, "max_connections": 1}
        for pool in (redis.ConnectionPool(**options), redis.BlockingConnectionPool(**options, timeout=0.01)):
            taken = pool.get_connection()
            failure = failure_of(redis.Redis(connection_pool=pool, retry=Retry(NoBackoff(), 0)).ping)
            assert (failure.code, failure.retryable) == ("RESOURCE_EXHAUSTED", True)
            pool.release(taken)
            pool.disconnect()


def test_a_value_that_cannot_be_sent_is_a_bug() -> None:
    with listening(answering(b"+OK\r\n")) as port, client(port) as db:
        assert failure_of(db.set, "key", object()).code == "BUG_CODE"
