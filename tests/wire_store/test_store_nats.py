# SPDX-License-Identifier: Apache-2.0
"""nats-py against a real nats-server, JetStream included."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import nats.js.errors
import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext

from redrive.core.failure import Failure
from redrive.engine.classifier import classify
from tests.wire_store.catching import failure_awaited
from tests.wire_store.servers import Nats

seen: list[Exception] = []


async def remember(exc: Exception) -> None:
    """Take what the server complains about outside of any call."""
    seen.append(exc)


async def connect(
    url: str, user: str = "alice", password: str = "right", client: Client | None = None
) -> Client:
    client = client or Client()
    options: dict[str, Any] = {
        "allow_reconnect": False,
        "max_reconnect_attempts": 1,
        "connect_timeout": 0.2,
        "reconnect_time_wait": 0.01,
        "error_cb": remember,
    }
    await client.connect(url, user=user, password=password, **options)
    return client


@asynccontextmanager
async def connected(url: str, user: str = "alice") -> AsyncIterator[Client]:
    client = await connect(url, user)
    try:
        yield client
    finally:
        await client.close()


def connecting(url: str, **options: str) -> Failure:
    async def run() -> Failure:
        client = Client()
        failure = await failure_awaited(connect(url, client=client, **options))
        # A client whose connecting failed leaves its socket open.
        if client._transport is not None:
            client._transport.close()
        return failure

    return asyncio.run(run())


def doing(server: Nats, what: Callable[[Client], Awaitable[object]], user: str = "alice") -> Failure:
    async def run() -> Failure:
        async with connected(server.url, user) as client:
            return await failure_awaited(what(client))

    return asyncio.run(run())


@pytest.fixture(scope="module")
def jetstream(nats_server: Nats) -> Nats:
    async def prepare() -> None:
        async with connected(nats_server.url) as client:
            stream = client.jetstream()
            await stream.add_stream(name="ORDERS", subjects=["orders.>"])
            await stream.publish("orders.new", b"1")
            await stream.add_stream(
                name="SMALL", subjects=["small"], max_msgs=1, max_msg_size=8, discard="new"
            )
            await stream.publish("small", b"1")
            bucket = await stream.create_key_value(bucket="settings")
            await bucket.put("key", b"1")

    asyncio.run(prepare())
    return nats_server


@pytest.mark.req("CR-1.1")
def test_servers_that_cannot_be_reached_heal(closed_port: int, silent_port: int) -> None:
    refused = connecting(f"nats://127.0.0.1:{closed_port}")
    unknown = connecting("nats://nohost.invalid:4222")

    # The client tries every server and keeps none of the reasons.
    assert (refused.code, refused.retryable) == ("NETWORK_REFUSED", True)
    assert (unknown.code, unknown.retryable) == ("NETWORK_REFUSED", True)
    assert connecting(f"nats://127.0.0.1:{silent_port}").code == "TIMEOUT"


@pytest.mark.req("CR-1.6")
def test_wrong_credentials_are_not_retried(nats_server: Nats) -> None:
    failure = connecting(nats_server.url, password="wrong")

    assert (failure.code, failure.retryable) == ("AUTH_INVALID", False)


@pytest.mark.req("CR-1.6")
def test_a_forbidden_subject_is_denied_and_told_outside_of_the_call(nats_server: Nats) -> None:
    async def run() -> Exception:
        complaints: asyncio.Queue[Exception] = asyncio.Queue()
        async with await nats.connect(
            nats_server.url, user="bob", password="right", error_cb=complaints.put
        ) as bob:
            await bob.publish("secret.plan", b"")
            return await asyncio.wait_for(complaints.get(), 5)

    failure = classify(asyncio.run(run()))

    assert (failure.code, failure.retryable) == ("AUTH_DENIED", False)


def test_a_subject_that_nobody_serves_heals(nats_server: Nats) -> None:
    failure = doing(nats_server, lambda client: client.request("nobody", b"", timeout=2))

    assert (failure.code, failure.retryable) == ("NETWORK_UNAVAILABLE", True)


def test_a_service_that_does_not_answer_is_a_timeout(nats_server: Nats) -> None:
    async def ask(client: Client) -> None:
        await client.subscribe("slow")
        await client.request("slow", b"", timeout=0.05)

    failure = doing(nats_server, ask)

    assert (failure.code, failure.retryable) == ("NETWORK_TIMEOUT", True)


def test_a_payload_above_the_servers_limit_is_too_large(nats_server: Nats) -> None:
    failure = doing(nats_server, lambda client: client.publish("x", b"x" * 2000))

    assert (failure.code, failure.retryable) == ("REQUEST_TOO_LARGE", False)


def test_a_subject_that_is_none_is_not_retried(nats_server: Nats) -> None:
    assert doing(nats_server, lambda client: client.publish("", b"")).code == "REQUEST_INVALID"


@pytest.mark.parametrize(
    ("call", "code", "number"),
    [
        pytest.param(lambda js: js.stream_info("NOWHERE"), "NOT_FOUND", "10059", id="no such stream"),
        pytest.param(
            lambda js: js.consumer_info("ORDERS", "nobody"), "NOT_FOUND", "10014", id="no such consumer"
        ),
        pytest.param(
            lambda js: js.publish("orders.new", b"", headers={"Nats-Expected-Last-Sequence": "77"}),
            "CONFLICT",
            "10071",
            id="wrong last sequence",
        ),
        pytest.param(
            lambda js: js.publish("orders.new", b"", headers={"Nats-Expected-Last-Msg-Id": "x"}),
            "CONFLICT",
            "10070",
            id="wrong last message id",
        ),
        pytest.param(
            lambda js: js.publish("orders.new", b"", headers={"Nats-Expected-Stream": "OTHER"}),
            "CONFIG_INVALID",
            "10060",
            id="another stream",
        ),
        pytest.param(lambda js: js.publish("small", b"2"), "QUEUE_FULL", "10077", id="stream is full"),
        pytest.param(
            lambda js: js.publish("small", b"x" * 100), "REQUEST_TOO_LARGE", "10054", id="message too large"
        ),
        pytest.param(
            lambda js: js.add_stream(name="ORDERS", subjects=["o"]),
            "CONFIG_INVALID",
            "10058",
            id="name in use",
        ),
        pytest.param(
            lambda js: js.add_stream(name="T", subjects=["orders.>"]), "CONFIG_INVALID", "10065", id="overlap"
        ),
        pytest.param(
            lambda js: js.add_stream(name="R", subjects=["r"], num_replicas=3),
            "CONFIG_INVALID",
            "10074",
            id="no cluster",
        ),
        pytest.param(
            lambda js: js.add_stream(name="B", subjects=["b"], max_bytes=10**12),
            "UPSTREAM_OVERLOADED",
            "10047",
            id="no space",
        ),
    ],
)
@pytest.mark.req("CR-1.4")
def test_jetstream_is_read_by_its_own_error_number(
    jetstream: Nats, call: Callable[[JetStreamContext], Awaitable[object]], code: str, number: str
) -> None:
    failure = doing(jetstream, lambda client: call(client.jetstream()))

    assert (failure.code, failure.provider_code) == (code, number)


def test_an_account_without_jetstream_is_wrong_configuration_although_the_code_is_503(
    nats_server: Nats,
) -> None:
    failure = doing(nats_server, lambda client: client.jetstream().account_info(), user="carol")

    assert (failure.code, failure.retryable, failure.provider_code) == ("CONFIG_INVALID", False, "10039")


def test_publishing_where_no_stream_listens_heals(jetstream: Nats) -> None:
    assert (
        doing(jetstream, lambda client: client.jetstream().publish("nowhere", b"")).code
        == "NETWORK_UNAVAILABLE"
    )


def test_the_key_value_store_is_read_by_class(jetstream: Nats) -> None:
    async def create(client: Client) -> None:
        await (await client.jetstream().key_value("settings")).create("key", b"2")

    async def get(client: Client) -> None:
        await (await client.jetstream().key_value("settings")).get("nothing")

    async def put(client: Client) -> None:
        await (await client.jetstream().key_value("settings")).put("not a key", b"")

    assert doing(jetstream, create).code == "CONFLICT"
    assert doing(jetstream, get).code == "NOT_FOUND"
    assert doing(jetstream, put).code == "REQUEST_INVALID"
    assert doing(jetstream, lambda client: client.jetstream().key_value("nowhere")).code == "NOT_FOUND"


def test_fetching_from_an_empty_stream_is_a_timeout(jetstream: Nats) -> None:
    async def fetch(client: Client) -> None:
        subscription = await client.jetstream().pull_subscribe("orders.none", "reader")
        await subscription.fetch(1, timeout=0.05)

    assert doing(jetstream, fetch).code == "NETWORK_TIMEOUT"


def test_acknowledging_twice_is_a_bug(jetstream: Nats) -> None:
    async def twice(client: Client) -> None:
        subscription = await client.jetstream().pull_subscribe("orders.new", "once")
        (message,) = await subscription.fetch(1, timeout=2)
        await message.ack()
        await message.ack()

    assert doing(jetstream, twice).code == "BUG_CODE"


@pytest.mark.req("CR-1.1")
def test_a_server_that_is_killed_breaks_the_connection_and_heals(tmp_path: Path) -> None:
    async def run() -> Failure:
        server = Nats(tmp_path)
        lost = asyncio.Event()

        async def notice() -> None:
            lost.set()

        client = await nats.connect(
            server.url,
            user="alice",
            password="right",
            allow_reconnect=False,
            closed_cb=notice,
            error_cb=remember,
        )
        server.stop()
        await asyncio.wait_for(lost.wait(), 5)
        return await failure_awaited(client.publish("x", b""))

    seen.clear()
    failure = asyncio.run(run())

    assert (failure.code, failure.retryable) == ("NETWORK_RESET", True)
    assert {classify(exc).code for exc in seen} == {"NETWORK_RESET"}
