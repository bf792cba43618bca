# SPDX-License-Identifier: Apache-2.0
"""The demo's pipeline: fetch an article, let a model summarise it, send a notification.

An ordinary module, as a user would write one: `redrive worker redrive.cli.demo.flow:flow` runs it. The payload carries the
upstream's address and the key, so a worker needs no settings. Every fault comes from the upstream, none from here.
"""

from __future__ import annotations

import urllib.request
from typing import Final

import msgspec

from redrive import Backoff, Breaker, Context, Jitter, Pipeline, RetryPolicy, stage

TIMEOUT_SECONDS: Final = 10.0
OPENS_AFTER: Final = 10
"""Consecutive failures that open the model's breaker."""

PATIENT: Final = RetryPolicy(4, Backoff.exponential(0.3, cap=3, jitter=Jitter.full()))
MODEL: Final = Breaker("llm", consecutive=OPENS_AFTER, open_for=1.5, ramp=3)

# Ignores the proxies of the environment: the upstream is on this machine.
_OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Article(msgspec.Struct, frozen=True):
    """What is submitted."""

    number: int
    upstream: str
    api_key: str


class Page(msgspec.Struct, frozen=True):
    """What `fetch` returns."""

    article: Article
    text: str


class Summary(msgspec.Struct, frozen=True):
    """What `llm` returns."""

    article: Article
    line: str


class _Response(msgspec.Struct, frozen=True):
    text: str


# Made once: msgspec reads a type when it is first used, and crashes when several threads do that at the same time.
_RESPONSES: Final = msgspec.json.Decoder(_Response)


@stage(retry=PATIENT)
def fetch(article: Article) -> Page:
    """Get the article's text."""
    return Page(article, _get(article, "fetch"))


@stage(retry=PATIENT, breaker=MODEL, concurrency=24)
def llm(page: Page) -> Summary:
    """Let the model summarise it."""
    return Summary(page.article, _get(page.article, "llm"))


@stage(retry=PATIENT, idempotent=True)
def notify(summary: Summary, ctx: Context) -> str:
    """Send the notification; the upstream detects a repeated one by its key."""
    return _get(summary.article, "notify", ctx.idempotency_key)


flow = Pipeline("demo", [fetch, llm, notify])


def _get(article: Article, path: str, idempotency_key: str = "") -> str:
    request = urllib.request.Request(  # noqa: S310 - always the demo's own loopback server.
        f"{article.upstream}/{path}/{article.number}",
        headers={"Authorization": f"Bearer {article.api_key}", "Idempotency-Key": idempotency_key},
    )
    with _OPENER.open(request, timeout=TIMEOUT_SECONDS) as response:
        return _RESPONSES.decode(response.read()).text
