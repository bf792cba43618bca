# SPDX-License-Identifier: Apache-2.0
"""dramatiq on Redis: eight threads run the messages of a worker process; each is acknowledged after it ended."""

from __future__ import annotations

import logging
import os
import threading
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import CurrentMessage, Retries

from bench.peers.postgres import redises
from bench.peers.postgres.contest import PAYLOAD, Contest, Gate, Seen

THREADS = 8


def _actor(contest: Contest, seen: Seen) -> tuple[RedisBroker, Any]:
    broker = RedisBroker(
        url=os.environ[redises.ADDRESS], middleware=[Retries(min_backoff=1), CurrentMessage()]
    )

    @dramatiq.actor(actor_name="bench", broker=broker, max_retries=1)
    def nothing(payload: dict[str, Any]) -> None:
        message = CurrentMessage.get_current_message()
        if contest.fails_once and message is not None and not message.options.get("retries"):
            raise ConnectionError("refused")
        seen(payload)

    return broker, nothing


def prepare(contest: Contest) -> None:
    """Start the broker, and fill the queue."""
    redises.start()
    _, actor = _actor(contest, len)
    for _ in range(contest.jobs):
        actor.send(PAYLOAD)


def is_done(_: Contest) -> bool:
    """Return whether nothing is queued, delayed, or taken and not acknowledged."""
    return not any(
        key.endswith((b".msgs", b"default", b"default.DQ")) or b"__acks__" in key
        for key in redises.connected().keys("dramatiq:*")
    )


def work(contest: Contest, gate: Gate, seen: Seen) -> None:
    """Work until killed."""
    logging.disable(logging.CRITICAL)
    broker, _ = _actor(contest, seen)
    worker = dramatiq.Worker(broker, worker_threads=THREADS)
    gate()
    worker.start()
    threading.Event().wait()
