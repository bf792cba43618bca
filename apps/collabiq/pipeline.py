# SPDX-License-Identifier: Apache-2.0
"""The pipeline: fetch a mail, extract its facts, write its page.

The stages have the names of the operations in the specification, whichever client serves them. Each has the policy and the breaker
of its service; the engine does retries, breakers, dead letters and replays.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import wraps

from msgspec import Struct

from apps.collabiq.extract import Extractor, GeminiExtractor, RuleExtractor
from apps.collabiq.files import STACKS, files_of
from apps.collabiq.mail import Mail, parse
from apps.collabiq.records import MAIL_PIPELINE
from apps.collabiq.retry_config import (
    GEMINI_RETRY_CONFIG,
    GMAIL_RETRY_CONFIG,
    NOTION_RETRY_CONFIG,
    breaker_for,
)
from apps.collabiq.secrets import Secrets, load
from apps.collabiq.settings import Settings
from apps.collabiq.sinks import LocalPages, NotionPages, Page, Pages
from apps.collabiq.sources import GmailSource, ImapSource, LocalSource, Source
from redrive import Context, Pipeline, Redrive, ReplayRules, connect, stage


class MailRef(Struct, frozen=True):
    """The payload of a job."""

    email_id: str


@dataclass(frozen=True, slots=True)
class Clients:
    """The clients of the stages."""

    source: Source
    extractor: Extractor
    pages: Pages


@stage(
    name="gmail_fetch", retry=GMAIL_RETRY_CONFIG.to_policy(), breaker=breaker_for("gmail"), idempotent=True
)
def fetch(ref: MailRef, clients: Clients, ctx: Context) -> Mail:
    """Fetch and parse one mail."""
    with STACKS.kept(ctx):
        return parse(ref.email_id, clients.source.fetch(ref.email_id))


@stage(
    name="gemini_extract",
    retry=GEMINI_RETRY_CONFIG.to_policy(),
    breaker=breaker_for("gemini"),
    idempotent=True,
)
def extract(mail: Mail, clients: Clients, ctx: Context) -> Page:
    """Extract the facts."""
    with STACKS.kept(ctx):
        found = clients.extractor.extract(mail)
    return Page(
        email_id=mail.email_id, title=mail.subject, sender=mail.sender, sent_at=mail.sent_at, found=found
    )


@stage(
    name="notion_write", retry=NOTION_RETRY_CONFIG.to_policy(), breaker=breaker_for("notion"), idempotent=True
)
def write(page: Page, clients: Clients, ctx: Context) -> str:
    """Write the page, replacing an earlier one."""
    with STACKS.kept(ctx):
        return clients.pages.write(page)


@contextmanager
def own_clients() -> Generator[Clients]:
    """Open the clients of a process that runs one mail alone, because workers died of it."""
    settings = Settings.from_environment()
    with connect(settings.database) as rd, open_clients(rd, settings) as clients:
        yield clients


def pipeline_of(settings: Settings, clients: Clients) -> Pipeline:
    """Return the pipeline for these settings, with open clients."""
    log, dlq = files_of(settings)

    @wraps(own_clients)
    def given() -> AbstractContextManager[Clients]:
        return nullcontext(clients)

    return Pipeline(
        MAIL_PIPELINE,
        [fetch, extract, write],
        resources=[given],
        on_retry=log.failed,
        on_dead=log.failed,
        sinks=[dlq],
        replay=ReplayRules(evidence="optional"),
    )


@contextmanager
def open_clients(rd: Redrive, settings: Settings) -> Generator[Clients]:
    """Get the keys, open the clients, and close them at the end."""
    keys = load(rd, settings)
    with closing(_source(settings, keys)) as source, closing(_pages(settings, keys)) as pages:
        yield Clients(source, _extractor(settings, keys), pages)


def _source(settings: Settings, keys: Secrets) -> Source:
    match settings.source:
        case "local":
            return LocalSource(settings.mailbox)
        case "imap":
            return ImapSource(settings, keys["IMAP_PASSWORD"])
        case "gmail":
            return GmailSource(settings, keys["GMAIL_TOKEN"])


def _extractor(settings: Settings, keys: Secrets) -> Extractor:
    is_builtin = settings.extractor == "builtin"
    return RuleExtractor() if is_builtin else GeminiExtractor(settings, keys["GEMINI_API_KEY"])


def _pages(settings: Settings, keys: Secrets) -> Pages:
    is_local = settings.sink == "local"
    return LocalPages(settings.root) if is_local else NotionPages(settings, keys["NOTION_TOKEN"])
