# SPDX-License-Identifier: Apache-2.0
"""The pipeline: fetch a change, review it, notify people.

All failure handling is declared: five attempts for each stage, delays from one second, doubling up to a minute, with full jitter,
and Retry-After respected up to five minutes. The stages only call and raise.
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
from apps.criticizer.clients.llm import ModelReviewer, silence_client_logs
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
class Clients:
    """The clients that the stages of one worker share."""

    settings: Settings
    http: httpx.Client
    reviewer: ModelReviewer | LocalReviewer


@contextmanager
def open_clients(settings: Settings | None = None) -> Generator[Clients]:
    """Open the clients for the settings in the environment; without a key, use the built-in reviewer."""
    known = settings or Settings.read()
    silence_client_logs()
    reviewer = ModelReviewer(known) if known.llm_key else LocalReviewer()
    with (
        httpx.Client(timeout=known.timeout_seconds, follow_redirects=False) as http,
        contextlib.closing(reviewer),
    ):
        yield Clients(known, http, reviewer)


@stage(retry=POLICY, idempotent=True)
def fetch(order: Order, clients: Clients) -> Change:
    """Fetch the change; it writes nothing, so it may run any number of times."""
    return fetch_change(order, clients.settings, clients.http)


@stage(retry=POLICY, idempotent=True, concurrency=8)
def llm(change: Change, clients: Clients, ctx: Context) -> Review:
    """Review the change."""
    return clients.reviewer.review(change, ctx)


@stage(retry=POLICY, idempotent=True)
def notify(review: Review, clients: Clients, ctx: Context) -> Review:
    """Send the review; the receiver recognises a repeated message by its key."""
    ctx.note("notified_by", send(review, ctx.idempotency_key, clients.settings, clients.http))
    return review


def on_dead(event: Event) -> None:
    """Report a dead letter: page someone about bugs and wrong settings, log refusals for review."""
    category = CODES.category_of(event.code)
    if category is Category.BUG:
        logger.critical("page: job %s failed in %s with %s", event.job_id, event.stage, event.code)
        settings = Settings.read()
        if settings.pager_url:
            body = {"job": event.job_id, "stage": event.stage, "code": event.code}
            key = f"{event.pipeline}:{event.job_id}:{event.round}:dead"
            with httpx.Client(timeout=settings.timeout_seconds) as http:
                post(http, settings.pager_url, body, key=key, token="")  # no token at all # nosec B106
    elif category is Category.REJECTED:
        logger.warning("for review: job %s was refused in %s (%s)", event.job_id, event.stage, event.code)


flow = Pipeline("criticizer", [fetch, llm, notify], resources=[open_clients], on_dead=on_dead, codes=CODES)
