# SPDX-License-Identifier: Apache-2.0
"""The pipeline: fetch a change, let a reviewer look at it, tell people.

All failure handling is in the declarations: five attempts for each stage, waits of one second, doubling up to a minute, with full
jitter, and a told delay respected up to five minutes. The stages only call and raise.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import httpx

from apps.criticizer.change import Change, Order
from apps.criticizer.clients.fetch import fetch_change
from apps.criticizer.clients.llm import ModelReviewer, silence_clients
from apps.criticizer.clients.local import LocalReviewer
from apps.criticizer.clients.notify import post, send
from apps.criticizer.codes import CODES
from apps.criticizer.review import Review
from apps.criticizer.settings import Settings
from redrive import Backoff, Category, Context, Event, Jitter, Pipeline, RetryPolicy, stage

logger = logging.getLogger("criticizer")

POLICY: Final = RetryPolicy(
    5, Backoff.exponential(1, factor=2, cap=60, jitter=Jitter.full()), retry_after_cap=300
)


@dataclass(frozen=True, slots=True)
class Desk:
    """What the stages of one worker share."""

    settings: Settings
    http: httpx.Client
    reviewer: ModelReviewer | LocalReviewer


@contextmanager
def open_desk(settings: Settings | None = None) -> Generator[Desk]:
    """Open what the stages need, as the environment says; without a key the built-in reviewer serves."""
    known = settings or Settings.read()
    silence_clients()
    reviewer = ModelReviewer(known) if known.llm_key else LocalReviewer()
    with (
        httpx.Client(timeout=known.timeout_seconds, follow_redirects=False) as http,
        contextlib.closing(reviewer),
    ):
        yield Desk(known, http, reviewer)


@stage(retry=POLICY, idempotent=True)
def fetch(order: Order, desk: Desk) -> Change:
    """Get the change; nothing is written anywhere, so it may run any number of times."""
    return fetch_change(order, desk.settings, desk.http)


@stage(retry=POLICY, idempotent=True, concurrency=8)
def llm(change: Change, desk: Desk, ctx: Context) -> Review:
    """Let the reviewer look at it."""
    return desk.reviewer.review(change, ctx)


@stage(retry=POLICY, idempotent=True)
def notify(review: Review, desk: Desk, ctx: Context) -> Review:
    """Tell people; whoever is told knows by the key whether they were told before."""
    ctx.note("notified_by", send(review, ctx.idempotency_key, desk.settings, desk.http))
    return review


def on_dead(event: Event) -> None:
    """Say who has to look at a dead letter: our own mistakes page somebody, refusals wait for an operator's review."""
    category = CODES.category_of(event.code)
    if category is Category.BUG:
        logger.critical("page: job %s died in %s of %s", event.job_id, event.stage, event.code)
        settings = Settings.read()
        if settings.pager_url:
            told = {"job": event.job_id, "stage": event.stage, "code": event.code}
            key = f"{event.pipeline}:{event.job_id}:{event.round}:dead"
            with httpx.Client(timeout=settings.timeout_seconds) as http:
                post(http, settings.pager_url, told, key=key, token="")
    elif category is Category.REJECTED:
        logger.warning("for review: job %s was refused in %s (%s)", event.job_id, event.stage, event.code)


flow = Pipeline("criticizer", [fetch, llm, notify], resources=[open_desk], on_dead=on_dead, codes=CODES)
