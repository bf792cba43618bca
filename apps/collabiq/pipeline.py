# SPDX-License-Identifier: Apache-2.0
"""The pipeline: fetch a mail, find out what it is about, write its page.

The stages are named for the operations of the specification, whichever client serves them. Each has the policy and the breaker of
its service; retries, breakers, dead letters and replays are the engine's.
"""

from __future__ import annotations

import functools
from collections.abc import Generator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from apps.collabiq import secrets
from apps.collabiq.extract import Extractor, GeminiExtractor, RuleExtractor
from apps.collabiq.files import ERROR_TYPE, files_of
from apps.collabiq.mail import Mail, parse
from apps.collabiq.retry_config import (
    GEMINI_RETRY_CONFIG,
    GMAIL_RETRY_CONFIG,
    NOTION_RETRY_CONFIG,
    breaker_for,
)
from apps.collabiq.settings import Settings
from apps.collabiq.sinks import LocalPages, NotionPages, Page, Pages
from apps.collabiq.sources import GmailSource, ImapSource, LocalSource, Source
from redrive import Context, Pipeline, ReplayRules, classify, stage

NAME: Final = "collabiq"


class MailRef(Struct, frozen=True):
    """What a job is submitted with."""

    email_id: str


@dataclass(frozen=True, slots=True)
class Clients:
    """What the stages work with."""

    source: Source
    extractor: Extractor
    pages: Pages


@contextmanager
def naming(ctx: Context) -> Generator[None]:
    """Note the class of what is raised inside, for the error record; the attempt itself keeps only its code."""
    try:
        yield
    except Exception as error:
        ctx.note(ERROR_TYPE, classify(error).error_class)
        raise


@stage(
    name="gmail_fetch", retry=GMAIL_RETRY_CONFIG.to_policy(), breaker=breaker_for("gmail"), idempotent=True
)
def fetch(ref: MailRef, ctx: Context, clients: Clients) -> Mail:
    """Read one mail."""
    with naming(ctx):
        return parse(ref.email_id, clients.source.fetch(ref.email_id))


@stage(
    name="gemini_extract",
    retry=GEMINI_RETRY_CONFIG.to_policy(),
    breaker=breaker_for("gemini"),
    idempotent=True,
)
def extract(mail: Mail, ctx: Context, clients: Clients) -> Page:
    """Find out what it is about."""
    with naming(ctx):
        found = clients.extractor.extract(mail)
    return Page(
        email_id=mail.email_id, title=mail.subject, sender=mail.sender, sent_at=mail.sent_at, found=found
    )


@stage(
    name="notion_write", retry=NOTION_RETRY_CONFIG.to_policy(), breaker=breaker_for("notion"), idempotent=True
)
def write(page: Page, ctx: Context, clients: Clients) -> str:
    """Write its page, in the place of an earlier one."""
    with naming(ctx):
        return clients.pages.write(page)


def pipeline_of(settings: Settings, clients: Clients | None = None) -> Pipeline:
    """Return the pipeline as these settings want it; a worker opens its clients, unless some are given that are open."""
    log, dlq = files_of(settings)
    return Pipeline(
        NAME,
        [fetch, extract, write],
        resources=[
            functools.partial(open_clients, settings) if clients is None else lambda: nullcontext(clients)
        ],
        on_retry=log.failed,
        on_dead=log.failed,
        sinks=[dlq.sink()],
        replay=ReplayRules(evidence="optional"),
    )


@contextmanager
def open_clients(settings: Settings) -> Generator[Clients]:
    """Get the keys, make the clients, and close them when the worker ends."""
    keys = secrets.load(settings)
    with closing(_source(settings, keys)) as source, closing(_pages(settings, keys)) as pages:
        yield Clients(source, _extractor(settings, keys), pages)


def _source(settings: Settings, keys: secrets.Secrets) -> Source:
    match settings.source:
        case "local":
            return LocalSource(settings.mailbox)
        case "imap":
            return ImapSource(
                settings.imap_host,
                settings.imap_port,
                user=settings.imap_user,
                password=keys["IMAP_PASSWORD"],
                folder=settings.imap_folder,
                is_tls=settings.imap_tls,
            )
        case "gmail":
            return GmailSource(settings.gmail_url, keys["GMAIL_TOKEN"], settings.gmail_query)


def _extractor(settings: Settings, keys: secrets.Secrets) -> Extractor:
    if settings.extractor == "builtin":
        return RuleExtractor()
    return GeminiExtractor(settings.gemini_url, keys["GEMINI_API_KEY"], settings.gemini_model)


def _pages(settings: Settings, keys: secrets.Secrets) -> Pages:
    if settings.sink == "local":
        return LocalPages(settings.root)
    return NotionPages(settings.notion_url, keys["NOTION_TOKEN"], settings.notion_data_source)
