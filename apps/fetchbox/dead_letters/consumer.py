# SPDX-License-Identifier: Apache-2.0
"""An example of a consumer of `jobs.dlq`: count failures by code, and replay the tasks if asked to.

It reads the stream as a durable consumer, so what it has acknowledged is not read again. A task is replayed by retrying its job in
the database of FetchBox, which is logged with its reason; one that cannot be replayed any more is counted and left.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from google.protobuf.message import DecodeError
from nats.js.client import JetStreamContext

from apps.fetchbox.dead_letters.messages import decode
from apps.fetchbox.dead_letters.sink import STREAM, SUBJECT
from redrive import Redrive, RedriveError
from redrive.sinks.nats import connected

DURABLE: Final = "fetchbox-consumer"
BATCH: Final = 100
WAIT_SECONDS: Final = 1.0


@dataclass(slots=True)
class Consumed:
    """What a consumer has read."""

    by_code: Counter[str] = field(default_factory=Counter[str])
    unreadable: int = 0
    replayed: int = 0
    refused: int = 0
    """Tasks that could not be replayed: they run already, or are gone."""


async def consume(url: str, rd: Redrive | None = None, *, durable: str = DURABLE) -> Consumed:
    """Read everything that is in the stream now and was not acknowledged; with a database, replay each task."""
    client = await connected(url)
    found = Consumed()
    try:
        context = JetStreamContext(client)
        # Not beyond what is there now: a task that fails again comes back as a new message.
        last = (await context.stream_info(STREAM)).state.last_seq
        reading = await context.pull_subscribe(SUBJECT, durable=durable, stream=STREAM)
        place = 0
        while place < last:
            try:
                messages = await reading.fetch(BATCH, timeout=WAIT_SECONDS)
            # Of nats-py or, when a slow answer meets its deadline, the one of Python, of which that is a kind.
            except TimeoutError:
                left = await reading.consumer_info()
                if not left.num_pending and not left.num_ack_pending:
                    break
                # They are there, and the broker is slow; or another consumer has them, and may not acknowledge them.
                continue
            for message in messages:
                place = message.metadata.sequence.stream
                if place <= last:
                    await asyncio.to_thread(_take, found, message.data, rd)
                    await message.ack()
                else:
                    await message.nak()
        return found
    finally:
        await client.close()


def _take(found: Consumed, body: bytes, rd: Redrive | None) -> None:
    try:
        task = decode(body)
    except DecodeError:
        found.unreadable += 1
        return
    found.by_code[task.failure_code] += 1
    if rd is None:
        return
    try:
        rd.jobs.retry(
            int(task.metadata["redrive_job"]), actor="consumer", reason=f"replay of {task.failure_code}"
        )
    except (RedriveError, ValueError):
        found.refused += 1
    else:
        found.replayed += 1
