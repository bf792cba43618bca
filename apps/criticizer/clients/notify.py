# SPDX-License-Identifier: Apache-2.0
"""Send a review by webhook, by mail, or to the terminal.

Every message has the idempotency key of its job, as a header (webhook) or as its Message-ID (mail), so that a receiver recognises
one that is sent again after a crash; several recipients of one job have a key each. On the terminal a review may appear twice.
"""

from __future__ import annotations

import difflib
import hashlib
import re
import smtplib
import ssl
from collections.abc import Collection
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
DROPPED_MAX: Final = 5
"""How many dropped findings are named in a text."""
PORTS: Final = {"http": 80, "https": 443}
KINDS: Final = ("terminal", "webhook", "smtp")
_MAIL: Final = re.compile(r"[^\s@,;<>]+@[^\s@,;<>]+")


def recipient_problem(recipient: str) -> str | None:
    """Return what is wrong with a recipient, without its address; None if it can be one."""
    kind, colon, address = recipient.partition(":")
    if kind == "smtp":
        is_good = _MAIL.fullmatch(address) is not None and address.isprintable()
        return None if is_good else "smtp: must be followed by a mail address, as in smtp:team@example.org"
    if kind == "webhook":
        is_good = not colon or _is_web_address(address)
        return None if is_good else "webhook: must be followed by an http or https address, or nothing"
    if recipient == "terminal":
        return None
    near = difflib.get_close_matches(kind, KINDS, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"must be terminal, webhook, webhook:URL or smtp:ADDRESS{hint}"


def _is_web_address(address: str) -> bool:
    try:
        url = httpx.URL(address)
    except httpx.InvalidURL:
        return False
    return url.scheme in {"http", "https"} and bool(url.host) and address.isprintable()


def send(review: Review, key: str, settings: Settings, http: httpx.Client) -> str:
    """Send the review to its recipients, the terminal last; return the channels, without addresses.

    All are tried; then the first failure is raised. Those that have it recognise it by its key when it is sent again.
    """
    failures: list[Exception] = []
    recipients = sorted(dict.fromkeys(review.notify), key=lambda each: each == "terminal")
    for place, recipient in enumerate(recipients):
        try:
            _send_to(recipient, review, f"{key}:{place}" if place else key, settings, http)
        except Exception as error:  # noqa: BLE001 - one recipient that fails must not keep the review from the others.
            failures.append(error)
    if failures:
        raise failures[0]
    return ",".join(dict.fromkeys(each.partition(":")[0] for each in recipients))


def _send_to(recipient: str, review: Review, key: str, settings: Settings, http: httpx.Client) -> None:
    kind, _, address = recipient.partition(":")
    if (problem := recipient_problem(recipient)) is not None:
        raise Fail(code="SCHEMA_INVALID", message=f"notify: {problem}")
    if kind == "terminal":
        typer.echo(as_text(review))
    elif kind == "smtp":
        _mail(address, review, key, settings)
    elif not address and not settings.webhook_url:
        raise Fail(code="CONFIG_INVALID", message="notifying by 'webhook' needs CRITICIZER_WEBHOOK_URL")
    elif not address or _origin_of(address) == _origin_of(settings.webhook_url):
        post(http, address or settings.webhook_url, review, key=key, token=settings.webhook_token)
    elif is_listed(httpx.URL(address), settings.webhook_hosts):
        # Whoever orders a review names this address: it gets the review, and never our token.
        post(http, address, review, key=key, token="")  # no token at all # nosec B106
    else:
        problem = "notify: the host of this webhook is not in CRITICIZER_WEBHOOK_HOSTS"
        raise Fail(code="DESTINATION_DENIED", message=problem)


def _origin_of(address: str) -> tuple[str, str, int | None]:
    url = httpx.URL(address)
    return url.scheme, url.host, url.port


def is_listed(url: httpx.URL, hosts: Collection[str]) -> bool:
    """Return whether a host is on a list, whose entries are each `host` or `host:port`."""
    if url.port is not None:
        return f"{url.host}:{url.port}" in hosts
    return url.host in hosts or f"{url.host}:{PORTS.get(url.scheme)}" in hosts


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
    lines += [f"dropped {reason}" for reason in review.dropped[:DROPPED_MAX]]
    if len(review.dropped) > DROPPED_MAX:
        lines.append(f"dropped {len(review.dropped) - DROPPED_MAX} more findings")
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
