# SPDX-License-Identifier: Apache-2.0
"""The demo's pipeline: fetch an article, let a model summarise it, notify somebody.

An ordinary module, as a user would write one: `redrive worker redrive.cli.demo.flow:flow` works on it. Where the upstream listens
and which key to use comes with the payload, so that a worker needs no settings. All trouble is made by the upstream, none here.
"""

from __future__ import annotations

import urllib.request
from typing import Final

import msgspec

from redrive import Backoff, Breaker, Context, Jitter, Pipeline, RetryPolicy, stage

TIMEOUT_SECONDS: Final = 10.0
OPENS_AFTER: Final = 10
"""So many failures in a row open the model's breaker."""

PATIENT: Final = RetryPolicy(4, Backoff.exponential(0.3, cap=3, jitter=Jitter.full()))
MODEL: Final = Breaker("llm", consecutive=OPENS_AFTER, open_for=1.5, ramp=3)

# Without the proxies that the environment may name: the upstream is on this machine.
_OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Article(msgspec.Struct, frozen=True):
    """What is submitted."""

    number: int
    upstream: str
    api_key: str


class Page(msgspec.Struct, frozen=True):
    """What `fetch` brings."""

    article: Article
    text: str


class Summary(msgspec.Struct, frozen=True):
    """What the model makes of it."""

    article: Article
    line: str


class _Answer(msgspec.Struct, frozen=True):
    text: str


@stage(retry=PATIENT)
def fetch(article: Article) -> Page:
    """Get the article's text."""
    return Page(article, _ask(article, "fetch"))


@stage(retry=PATIENT, breaker=MODEL, concurrency=24)
def llm(page: Page) -> Summary:
    """Let the model summarise it."""
    return Summary(page.article, _ask(page.article, "llm"))


@stage(retry=PATIENT, idempotent=True)
def notify(summary: Summary, ctx: Context) -> str:
    """Tell somebody; the upstream knows by the key whether it was told before."""
    return _ask(summary.article, "notify", ctx.idempotency_key)


flow = Pipeline("demo", [fetch, llm, notify])


def _ask(article: Article, path: str, idempotency_key: str = "") -> str:
    request = urllib.request.Request(  # noqa: S310 - always the demo's own loopback server.
        f"{article.upstream}/{path}/{article.number}",
        headers={"Authorization": f"Bearer {article.api_key}", "Idempotency-Key": idempotency_key},
    )
    with _OPENER.open(request, timeout=TIMEOUT_SECONDS) as answer:
        return msgspec.json.decode(answer.read(), type=_Answer).text
