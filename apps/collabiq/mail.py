# SPDX-License-Identifier: Apache-2.0
"""Parse the bytes of a mail, even malformed ones.

Nothing in a mail is trusted: dates, encodings and charsets may be missing or wrong, headers may contain line breaks, parts may be
nested without end. A charset that is missing or wrong is detected. Unreadable parts are left out; a mail whose text cannot be read
fails, so that no page is empty for that reason.
"""

from __future__ import annotations

import email.header
import email.utils
import re
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.errors import MessageError
from email.feedparser import BytesFeedParser
from email.message import Message
from email.policy import Compat32
from html import unescape
from itertools import islice
from typing import Final

from charset_normalizer import from_bytes
from msgspec import Struct

from apps.collabiq.codes import MAIL_TOO_LARGE, MAIL_UNREADABLE
from apps.collabiq.mail_lines import lines_worth_parsing
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
_DAMAGED_SHARE: Final = 0.1
DETECTED_MAX: Final = 50_000
"""Bytes from which a charset is detected."""
_UNDECLARED: Final = frozenset({"us-ascii", "ascii", "unknown-8bit"})
"""Charsets that programs declare without looking at the text."""
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
        mail = _read(email_id, _message(raw))
    except Fail:
        raise
    except Exception as error:
        # The standard library's parser may raise anything, even RecursionError; the mail is the cause in any case.
        raise Fail(MAIL_UNREADABLE, f"the mail cannot be parsed ({type(error).__name__})") from error
    if not mail.text and not mail.subject:
        raise Fail(MAIL_UNREADABLE, "no part of the mail is readable")
    return mail


def _message(raw: bytes) -> Message:
    parser = BytesFeedParser(policy=_SHORT_HEADERS)
    for line in lines_worth_parsing(raw):
        parser.feed(line)
    return parser.close()


def _read(email_id: str, message: Message) -> Mail:
    parts = _parts(message)
    html = (_text_of_html(each[:TEXT_MAX]) for each in parts.html)
    text = "\n\n".join(parts.plain or html).strip()[:TEXT_MAX]
    if not text and parts.is_partly_lost:
        raise Fail(MAIL_UNREADABLE, "the text of the mail is not readable")
    return Mail(
        email_id=email_id,
        sender=_header(message, "From"),
        recipients=tuple(_header_lines(message, "To") + _header_lines(message, "Cc")),
        subject=_header(message, "Subject"),
        sent_at=_date(message),
        text=text,
        attachments=tuple(parts.names),
    )


@dataclass(slots=True)
class _Parts:
    plain: list[str] = field(default_factory=list)
    html: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    """The names of the attachments."""
    is_partly_lost: bool = False
    """True if a text cannot be read."""


def _parts(message: Message) -> _Parts:
    """Return the texts and the names of the attachments."""
    found = _Parts()
    for part in islice(message.walk(), PARTS_MAX):
        if part.is_multipart():
            continue
        name = part.get_filename()
        # What has no parts although its type has them is text with a wrong type.
        is_text = part.get_content_type() == "text/plain" or part.get_content_maintype() == "multipart"
        if name or part.get_content_disposition() == "attachment":
            found.names.append(_one_line(str(name or "unnamed")))
        elif is_text or part.get_content_type() == "text/html":
            text = _decoded(part)
            if text.strip():
                (found.plain if is_text else found.html).append(text)
            elif str(part.get_payload()).strip():
                found.is_partly_lost = True
    return found


def _decoded(part: Message) -> str:
    """Return the text of a part; empty when it is not text."""
    content = part.get_payload(decode=True)
    if not isinstance(content, bytes):
        return ""
    text = _text_of(content, part.get_content_charset())[: 4 * TEXT_MAX]
    if _illegible(text) > _ILLEGIBLE_SHARE:
        return ""
    return "".join(each for each in text if each >= " " or each in "\t\n")


def _text_of(content: bytes, declared: str | None) -> str:
    """Return bytes as text: by the declared charset or as UTF-8, and if they do not fit, by the most likely charset."""
    given = declared if declared not in _UNDECLARED else None
    for name in (given, "utf-8"):
        if (text := _by_charset(content, name, "strict")) is not None:
            return text
    text = _by_charset(content, given, "replace")
    if text is not None and _illegible(text) <= _DAMAGED_SHARE:
        return text
    # The charset is not declared, or the declaration is wrong.
    detected = _by_charset(content, _detected(content), "replace")
    return detected or text or content.decode("utf-8", "replace")


def _by_charset(content: bytes, name: str | None, errors: str) -> str | None:
    """Return bytes as text; None without a charset, with one that nobody knows, or if they do not fit."""
    with suppress(LookupError, ValueError):
        return None if name is None else content.decode(name, errors)
    return None


def _detected(content: bytes) -> str | None:
    """Return the most likely charset of bytes; None if they do not look like text."""
    found = from_bytes(content[:DETECTED_MAX])
    best = found.best()
    if best is None:
        return None
    equal = [each.encoding for each in found if (each.chaos, each.coherence) == (best.chaos, best.coherence)]
    # Several Western charsets often fit equally well; this is by far the most common of them.
    return "cp1252" if "cp1252" in equal else best.encoding


def _illegible(text: str) -> float:
    """Return the share of characters that are no text."""
    count = sum(1 for each in text if each == "\ufffd" or (each < " " and each not in "\t\r\n\f"))
    return count / max(1, len(text))


def _header_lines(message: Message, name: str) -> list[str]:
    values = [str(value) for each, value in message.raw_items() if each.lower() == name.lower()]
    # Bytes without a declared charset are not ASCII; a header is too short to detect one.
    charset = None if all(value.isascii() for value in values) else _body_charset(message)
    return [_one_line(_unfolded(value, charset)) for value in values[:PARTS_MAX]]


def _header(message: Message, name: str) -> str:
    return next(iter(_header_lines(message, name)), "")


def _unfolded(value: str, charset: str | None) -> str:
    if not value.isascii():
        raw = value.encode("utf-8", "surrogateescape")
        text = _by_charset(raw, "utf-8", "strict") or _by_charset(raw, charset, "replace")
        value = text or raw.decode("utf-8", "replace")
    try:
        return str(email.header.make_header(email.header.decode_header(value)))
    except (LookupError, ValueError, MessageError):
        return value


def _body_charset(message: Message) -> str | None:
    """Return the charset of the first text, declared or detected."""
    for part in islice(message.walk(), PARTS_MAX):
        content = part.get_payload(decode=True)
        if part.get_content_maintype() == "text" and isinstance(content, bytes):
            declared = part.get_content_charset()
            return _detected(content) if declared is None or declared in _UNDECLARED else declared
    return None


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
