# SPDX-License-Identifier: Apache-2.0
"""Telling people: a webhook, a mail, or the terminal.

Every message carries the idempotency key of its job, as a header (webhook) or as its Message-ID (mail), so that one that is sent
again after a crash can be recognised. The terminal cannot recognise anything: there it may be seen twice.
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
    """Tell whom the review names; return how, without the address."""
    kind, _, address = review.notify.partition(":")
    if kind == "terminal":
        typer.echo(as_text(review))
    elif kind == "webhook" and (address or settings.webhook_url):
        post(http, address or settings.webhook_url, review, key=key, token=settings.webhook_token)
    elif kind == "smtp" and "@" in address and address.isprintable():
        _mail(address, review, key, settings)
    else:
        problem = f"there is no way to notify by {kind!r} with what is set up"
        raise Fail(code="CONFIG_INVALID", message=problem)
    return kind


def post(http: httpx.Client, url: str, told: object, *, key: str, token: str) -> None:
    """Post something as JSON, once; the client follows no redirects, because they could lead anywhere."""
    headers = {"Content-Type": "application/json", KEY_HEADER: key}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    http.post(url, content=msgspec.json.encode(told), headers=headers).raise_for_status()


def as_text(review: Review) -> str:
    """Return the review for people, without anything that could steer a terminal."""
    count = len(review.findings)
    lines = [f"{review.title}: {count} finding{'' if count == 1 else 's'} ({review.reviewer})"]
    lines += [
        f"{each.file}:{each.line}: {each.severity} [{each.category}] {each.message}"
        for each in review.findings
    ]
    if review.dropped:
        lines.append(f"{len(review.dropped)} more were dropped because they do not fit the change")
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
