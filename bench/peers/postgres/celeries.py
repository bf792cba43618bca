# SPDX-License-Identifier: Apache-2.0
"""Celery on Redis: one thread runs the tasks of a worker process, and takes `batch` at a time; each is acknowledged after it ended."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery

from bench.peers.postgres import redises
from bench.peers.postgres.contest import PAYLOAD, Contest, Gate, Seen


def _app(contest: Contest, seen: Seen) -> tuple[Celery, Any]:
    app = Celery("bench", broker=os.environ[redises.ADDRESS])
    app.conf.update(
        task_ignore_result=True,
        task_acks_late=True,
        worker_prefetch_multiplier=contest.batch,
        worker_hijack_root_logger=False,
    )

    @app.task(bind=True, name="bench", max_retries=1)
    def nothing(task: Any, payload: dict[str, Any]) -> None:
        if contest.fails_once and task.request.retries == 0:
            raise task.retry(exc=ConnectionError("refused"), countdown=0)
        seen(payload)

    return app, nothing


def prepare(contest: Contest) -> None:
    """Start the broker, and fill the queue."""
    redises.start()
    app, task = _app(contest, len)
    with app.producer_pool.acquire(block=True) as producer:
        for _ in range(contest.jobs):
            task.apply_async((PAYLOAD,), producer=producer)


def is_done(_: Contest) -> bool:
    """Return whether nothing is queued, and nothing taken and not acknowledged."""
    server = redises.connected()
    return not server.llen("celery") and not server.hlen("unacked")


def work(contest: Contest, gate: Gate, seen: Seen) -> None:
    """Work until killed."""
    app, _ = _app(contest, seen)
    gate()
    app.Worker(pool="solo", loglevel="CRITICAL", without_gossip=True, without_mingle=True, quiet=True).start()
