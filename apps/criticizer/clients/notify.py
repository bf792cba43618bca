# SPDX-License-Identifier: Apache-2.0
"""Send a review by webhook, by mail, or to the terminal.

Every message has the idempotency key of its job, as a header (webhook) or as its Message-ID (mail), so that a receiver recognises
one that is sent again after a crash. On the terminal a review may appear twice.
"""

from __future__ import annotations

import hashlib
import smtplib
import ssl
from email.message import EmailMessage
from typing import Final
from urllib.parse import unquote, urlsplit

import httpx
import msgspec
import typer

from apps.criticizer.review import Review
from apps.criticizer.settings import Settings
from redrive import Fail

KEY_HEADER: Final = "Idempotency-Key"


def send(review: Review, key: str, settings: Settings, http: httpx.Client) -> str:
    """Send the review to its recipient; return the channel, without the address."""
    kind, _, address = review.notify.partition(":")
    if kind == "terminal":
        typer.echo(as_text(review))
    elif kind == "webhook" and (address or settings.webhook_url):
        post(http, address or settings.webhook_url, review, key=key, token=settings.webhook_token)
    elif kind == "smtp" and "@" in address and address.isprintable():
        _mail(address, review, key, settings)
    else:
        problem = f"notifying by {kind!r} is not configured"
        raise Fail(code="CONFIG_INVALID", message=problem)
    return kind


def post(http: httpx.Client, url: str, body: object, *, key: str, token: str) -> None:
    """Post a body as JSON, once; the client follows no redirects, because they could lead anywhere."""
    headers = {"Content-Type": "application/json", KEY_HEADER: key}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    http.post(url, content=msgspec.json.encode(body), headers=headers).raise_for_status()


def as_text(review: Review) -> str:
    """Return the review as text, without control characters for a terminal."""
    count = len(review.findings)
    lines = [f"{review.title}: {count} finding{'' if count == 1 else 's'} ({review.reviewer})"]
    lines += [
        f"{each.file}:{each.line}: {each.severity} [{each.category}] {each.message}"
        for each in review.findings
    ]
    if review.dropped:
        lines.append(f"{len(review.dropped)} more were dropped because they are not about the change")
    return "\n".join("".join(c if c.isprintable() else " " for c in line) for line in lines)


def _mail(address: str, review: Review, key: str, settings: Settings) -> None:
    text = as_text(review)
    message = EmailMessage()
    message["From"], message["To"] = settings.mail_from, address
    message["Subject"] = text.partition("\n")[0]
    message["Message-ID"] = f"<{hashlib.sha256(key.encode()).hexdigest()[:32]}@criticizer>"
    message[KEY_HEADER] = key
    message.set_content(text)
    where = urlsplit(settings.smtp_url)
    timeout, host, port = settings.timeout_seconds, where.hostname or "", where.port or 0
    tls = ssl.create_default_context()
    with (
        smtplib.SMTP_SSL(host, port, timeout=timeout, context=tls)
        if where.scheme == "smtps"
        else smtplib.SMTP(host, port, timeout=timeout)
    ) as server:
        if where.scheme == "smtp+starttls":
            server.starttls(context=tls)
        if where.username:
            server.login(unquote(where.username), unquote(where.password or ""))
        server.send_message(message)
