# SPDX-License-Identifier: Apache-2.0
"""The NATS sink against a real nats-server: at least once, stored once, with a receipt; and through an outage."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from nats.errors import NoServersError
from nats.js.errors import ServiceUnavailableError

from redrive import Pipeline, RetryPolicy, connect, stage
from redrive.sinks import Nats, SunkLetter
from redrive.sinks.nats import connected
from redrive.store.statements import outbox as outbox_sql
from tests.wire_store.servers import Nats as Server

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    yield made
    made.stop()


def address(server: Server, user: str = "alice") -> str:
    return server.url.replace("nats://", f"nats://{user}:right@")


def letter(delivery: str = "db-1-1-1", *, message: str = "denied") -> SunkLetter:
    texts = dict.fromkeys("pipeline stage code category error_class exception message".split(), "x")
    more = dict.fromkeys("last_stack fingerprint reason state".split(), "x")
    times = dict.fromkeys("changed_at sent_at first_failure_at last_failure_at".split(), NOW)
    none = dict.fromkeys("key owner follows diagnosis assignee evidence replay".split())
    numbers = dict.fromkeys("letter_id job_id dispatch round attempts".split(), 1)
    flags = dict.fromkeys("is_retryable is_escalated".split(), False)
    rest = {"delivery": delivery, "event": "born", "sanitized_context": {}, "history": (), "message": message}
    return msgspec.convert({**texts, **more, **times, **none, **numbers, **flags, **rest}, SunkLetter)


async def stored(url: str, stream: str) -> list[bytes]:
    client = await connected(url)
    try:
        context = client.jetstream()
        state = (await context.stream_info(stream)).state
        raw = [await context.get_msg(stream, seq) for seq in range(state.first_seq, state.last_seq + 1)]
        return [each.data or b"" for each in raw]
    finally:
        await client.close()


def test_a_change_is_stored_once_however_often_it_is_delivered_and_the_receipt_is_its_place(
    server: Server,
) -> None:
    sink = Nats(address(server), stream="letters", subject="letters.dlq")

    async def scene() -> list[str | None]:
        receipts = [
            await sink.deliver(letter("a-1-1-1")),
            await sink.deliver(letter("a-1-1-1")),
            await sink.deliver(letter("a-1-1-2")),
        ]
        await sink.close()
        # Closed sinks open again.
        receipts.append(await sink.deliver(letter("a-1-1-1")))
        await sink.close()
        await sink.close()
        return receipts

    assert asyncio.run(scene()) == ["letters/1", "letters/1", "letters/2", "letters/1"]
    bodies = [msgspec.json.decode(each) for each in asyncio.run(stored(address(server), "letters"))]
    assert [each["delivery"] for each in bodies] == ["a-1-1-1", "a-1-1-2"]


@pytest.mark.parametrize(
    ("max_age", "age", "window"),
    [(None, 0, 1_200), (timedelta(days=90), 7_776_000, 1_200), (60, 60, 60)],
)
def test_a_stream_that_is_made_keeps_its_messages_as_long_as_it_is_told(
    server: Server, max_age: timedelta | float | None, age: float, window: float
) -> None:
    async def scene() -> tuple[float | None, float | None]:
        for each in (max_age, 5.0):
            # The second one finds the stream, and leaves it as it is.
            sink = Nats(address(server), stream="aged", subject="aged", max_age=each)
            await sink.deliver(letter())
            await sink.close()
        client = await connected(address(server))
        try:
            config = (await client.jetstream().stream_info("aged")).config
            return config.max_age, config.duplicate_window
        finally:
            await client.close()

    assert asyncio.run(scene()) == (age, window)


def test_the_body_is_made_by_a_function_which_may_leave_a_change_out(server: Server) -> None:
    def body(change: SunkLetter) -> bytes | None:
        return change.message.encode() if change.delivery.endswith("1") else None

    sink = Nats(address(server), stream="plain", subject="plain", body=body)

    async def scene() -> list[str | None]:
        receipts = [
            await sink.deliver(letter("a-1-1-1", message="one")),
            await sink.deliver(letter("a-1-1-2")),
        ]
        await sink.close()
        return receipts

    assert asyncio.run(scene()) == ["plain/1", None]
    assert asyncio.run(stored(address(server), "plain")) == [b"one"]


def test_a_server_that_refuses_or_is_not_there_is_an_error_and_nothing_stays_open(
    server: Server, closed_port: int
) -> None:
    async def raised(sink: Nats) -> type[BaseException]:
        try:
            await sink.deliver(letter())
        except Exception as error:
            return type(error)
        raise AssertionError(sink)

    away = Nats(f"nats://127.0.0.1:{closed_port}", stream="letters", subject="letters.dlq")
    # carol's account has no JetStream.
    plain = Nats(address(server, "carol"), stream="letters", subject="letters.dlq")

    assert asyncio.run(raised(away)) is NoServersError
    assert asyncio.run(raised(plain)) is ServiceUnavailableError


def test_an_outage_keeps_the_letters_and_they_arrive_with_their_receipts_once_it_is_over(
    tmp_path: Path,
) -> None:
    """The worker's own pauses are shortened by ending it: what is due is delivered by the next one."""
    folder = tmp_path / "nats"
    folder.mkdir()
    server = Server(folder)
    port = int(server.url.rpartition(":")[2])

    @stage(retry=RetryPolicy(1))
    def fail(number: int) -> int:
        return 1 // number

    def body(letter: SunkLetter) -> bytes:
        # The server takes small messages only.
        return letter.delivery.encode()

    sink = Nats(address(server), stream="letters", subject="letters.dlq", body=body)
    pipeline = Pipeline("shop", [fail], sinks=[sink])
    with connect(tmp_path / "jobs.db") as rd:
        rd.submit(pipeline, 0)
        rd.work([pipeline], until_idle=True)
        server.stop()
        rd.submit(pipeline, 0)
        rd.work([pipeline], until_idle=True)
        during = [each.receipts for each in rd.letters.list().letters]
        assert rd.store.query(outbox_sql.undelivered(before=0.0))[0][2] == 1
        again = Server(folder, port=port)
        try:
            rd.store.apply(
                outbox_sql.postpone_notice(due_at=0.0, tries=1, notice=2, tries_before=1).touching(1)
            )
            rd.work([pipeline], until_idle=True)
            after = [each.receipts for each in rd.letters.list().letters]
        finally:
            again.stop()

    assert during == [{}, {"nats": "letters/1"}]
    assert after == [{"nats": "letters/2"}, {"nats": "letters/1"}]
