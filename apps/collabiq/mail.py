# SPDX-License-Identifier: Apache-2.0
"""Parse the bytes of a mail, even malformed ones.

Nothing in a mail is trusted: dates, encodings and charsets may be missing or wrong, headers may contain line breaks, parts may be
nested without end. Unreadable parts are left out; only a mail without any readable part fails.
"""

from __future__ import annotations

import email
import email.header
import email.utils
import re
from datetime import UTC, datetime
from email.errors import MessageError
from email.message import Message
from email.policy import Compat32
from html import unescape
from typing import Final

from msgspec import Struct

from apps.collabiq.codes import MAIL_TOO_LARGE, MAIL_UNREADABLE
from redrive import Fail

RAW_MAX: Final = 50 * 2**20
"""Bytes of a mail; twice the limit of Gmail."""
TEXT_MAX: Final = 100_000
"""Characters of a text that are read."""
LINE_MAX: Final = 1_000
"""Characters of a header."""
PARTS_MAX: Final = 200
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_ILLEGIBLE_SHARE: Final = 0.3
_TAG: Final = re.compile(r"<(?P<name>!--|[/!?]?[a-z][a-z0-9]{0,20})")
_HIDDEN: Final = frozenset({"script", "style", "head", "title", "template"})
_BREAKS: Final = frozenset({"p", "br", "div", "tr", "li", "h1", "h2", "h3", "table", "blockquote"})


class _ShortHeaders(Compat32):
    """Cuts every header, also of parts: the standard library needs quadratic time for long ones."""

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        name, value = super().header_source_parse(sourcelines)
        return name, value[: 10 * LINE_MAX]


_SHORT_HEADERS: Final = _ShortHeaders()


class Mail(Struct, frozen=True, kw_only=True):
    """The readable parts of a mail."""

    email_id: str
    sender: str
    recipients: tuple[str, ...]
    subject: str
    sent_at: datetime | None
    text: str
    attachments: tuple[str, ...] = ()
    """The names of the attachments; their content is never read."""


def parse(email_id: str, raw: bytes) -> Mail:
    """Parse a mail.

    Raises:
        Fail: it is too large, or no part of it is readable.
    """
    if len(raw) > RAW_MAX:
        raise Fail(MAIL_TOO_LARGE, f"the mail has {len(raw)} bytes; {RAW_MAX} is the most")
    try:
        mail = _read(email_id, email.message_from_bytes(raw, policy=_SHORT_HEADERS))
    except Exception as error:
        # The standard library's parser may raise anything, even RecursionError; the mail is the cause in any case.
        raise Fail(MAIL_UNREADABLE, f"the mail cannot be parsed ({type(error).__name__})") from error
    if not mail.text and not mail.subject:
        raise Fail(MAIL_UNREADABLE, "no part of the mail is readable")
    return mail


def _read(email_id: str, message: Message) -> Mail:
    plain, html, names = _parts(message)
    return Mail(
        email_id=email_id,
        sender=_header(message, "From"),
        recipients=tuple(_header_lines(message, "To") + _header_lines(message, "Cc")),
        subject=_header(message, "Subject"),
        sent_at=_date(message),
        text="\n\n".join(plain or [_text_of_html(each[:TEXT_MAX]) for each in html]).strip()[:TEXT_MAX],
        attachments=tuple(names),
    )


def _parts(message: Message) -> tuple[list[str], list[str], list[str]]:
    """Return the plain texts, the HTML texts and the names of the attachments."""
    plain: list[str] = []
    html: list[str] = []
    names: list[str] = []
    for place, part in enumerate(message.walk()):
        if place >= PARTS_MAX:
            break
        if part.is_multipart():
            continue
        name = part.get_filename()
        if name or part.get_content_disposition() == "attachment":
            names.append(_one_line(str(name or "unnamed")))
        elif part.get_content_type() in {"text/plain", "text/html"}:
            text = _decoded(part)
            if text.strip():
                (plain if part.get_content_type() == "text/plain" else html).append(text)
    return plain, html, names


def _decoded(part: Message) -> str:
    """Return the text of a part; empty when it is not text."""
    content = part.get_payload(decode=True)
    if not isinstance(content, bytes):
        return ""
    try:
        text = content.decode(part.get_content_charset() or "utf-8", "replace")
    except (LookupError, ValueError):
        text = content.decode("utf-8", "replace")
    text = text[: 4 * TEXT_MAX]
    illegible = sum(1 for each in text if each == "\ufffd" or (each < " " and each not in "\t\r\n\f"))
    if illegible > _ILLEGIBLE_SHARE * len(text):
        return ""
    return "".join(each for each in text if each >= " " or each in "\t\n")


def _header_lines(message: Message, name: str) -> list[str]:
    return [_one_line(_unfolded(value)) for value in message.get_all(name, [])[:PARTS_MAX]]


def _header(message: Message, name: str) -> str:
    return next(iter(_header_lines(message, name)), "")


def _unfolded(value: object) -> str:
    try:
        return str(email.header.make_header(email.header.decode_header(str(value))))
    except (LookupError, ValueError, MessageError):
        return str(value)


def _one_line(text: str) -> str:
    """Return a text as one line: an encoded line break must not start another header."""
    text = _CONTROLS.sub(" ", text.encode("utf-8", "replace").decode())
    return " ".join(text.split())[:LINE_MAX]


def _date(message: Message) -> datetime | None:
    try:
        at = email.utils.parsedate_to_datetime(_header(message, "Date"))
        return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None


def _text_of_html(html: str) -> str:
    """Return the visible text of HTML. One pass, because the standard library's parser takes minutes for some texts."""
    lower = html.lower()
    texts: list[str] = []
    place = 0
    while (start := html.find("<", place)) >= 0:
        texts.append(html[place:start])
        tag = _TAG.match(lower, start)
        if tag is None:  # a plain "less than"
            texts.append("<")
            place = start + 1
            continue
        name = tag["name"] or ""
        end = lower.find("-->", start) + 2 if name == "!--" else lower.find(">", start)
        if name in _HIDDEN and end > start:
            end = lower.find(f"</{name}", end) - 1
        if end < start:
            break
        texts.append("\n" if name.strip("/") in _BREAKS else "")
        place = end + 1
    else:
        texts.append(html[place:])
    lines = (" ".join(line.split()) for line in unescape("".join(texts)).split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines))
