# SPDX-License-Identifier: Apache-2.0
"""Values next to telling names, in whatever syntax: JSON, repr, YAML, shell, query string, XML, header, prose.

The text is searched for a few stems (`pass`, `token`, `key`, ...) with the C library's search; only around such a hit
is a pattern tried, and only forward. Values that are expressions of code, types, placeholders or plain words of a
sentence are left alone; names and punctuation always are.
"""

from __future__ import annotations

import re
from typing import Final

from redrive.core.redact.carriers import AFTER_NAME, Carrier, carrier_of
from redrive.core.redact.marks import Marks
from redrive.core.redact.names import Telling, telling
from redrive.core.redact.spans import (
    Span,
    authorization_span,
    bare_span,
    block_span,
    line_span,
    quoted_span,
    whole_span,
)
from redrive.core.redact.values import (
    is_expression,
    is_guarded,
    is_identifier,
    is_inert,
    is_prose,
    is_random,
    is_verdict,
)

NAME_MAX: Final = 64
"""A name is read this far to the left of its stem."""

_STEMS: Final = (
    "pass",
    "pwd",
    "secret",
    "token",
    "key",
    "auth",
    "cred",
    "cookie",
    "sess",
    "sig",
    "dsn",
    "jwt",
    "otp",
    "salt",
    "hmac",
    "nonce",
    "code",
    "cvv",
    "cvc",
    "mnemonic",
    "phrase",
)
_NAME_CHARACTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
_QUERY_NAMES: Final = frozenset(
    {"key", "sig", "signature", "code", "auth", "sid", "session", "pass", "hmac", "hash"}
)
_TEMPLATES: Final = ("${", "$(", "{{", "#{", "<%", "%{")
_RESOURCE: Final = re.compile(r"(?:arn|urn|crn|projects/)[\w:/.-]{0,100}:\Z")
SOURCE_LINE_MAX: Final = 400
"""How far back the start of a line, and the line before it, are looked for."""


def redact_assignments(text: str, marks: Marks) -> str:
    """Put a mark in place of every literal value whose name announces a secret."""
    hits = _hits(text)
    if not hits:
        return text
    pieces: list[str] = []
    done = 0
    looked_at = 0
    for hit in hits:
        if hit < looked_at:
            continue
        after = AFTER_NAME.match(text, hit)
        if after is None:
            continue
        looked_at = after.end("tail")
        found = _secret_at(text, max(done, hit - NAME_MAX), hit, after)
        if found is None:
            continue
        span, kind = whole_span(text, found[0]), found[1]
        pieces += (text[done : span.start], marks.redacted(kind))
        done = span.end
        looked_at = max(looked_at, done)
    if not pieces:
        return text
    pieces.append(text[done:])
    return "".join(pieces)


def _hits(text: str) -> list[int]:
    """Return where a stem occurs, in order."""
    # The dotted capital I is the one letter whose lower case is longer; indexes must stay those of the text.
    lowered = (text if text.isascii() else text.replace("\u0130", "I")).lower()
    hits: list[int] = []
    for stem in _STEMS:
        at = lowered.find(stem)
        while at >= 0:
            hits.append(at)
            at = lowered.find(stem, at + len(stem))
    hits.sort()
    return hits


def _secret_at(text: str, floor: int, hit: int, after: re.Match[str]) -> tuple[Span, str] | None:
    """Return the secret that follows the name around `hit`, with its kind."""
    left = text[floor:hit]
    start = floor + len(left.rstrip(_NAME_CHARACTERS))
    name = text[start : after.end("tail")]
    before = text[start - 1] if start > 0 else ""
    carrier = carrier_of(after, before, name)
    if carrier is None:
        return None
    said = telling(name.strip("-."))
    if before == " " and name.lower() in ("key", "keys", "code"):
        # In running text the words of a name are set apart: `API key: ...`.
        said = telling(f"{text[floor : start - 1].rpartition(' ')[2]}_{name}")
    if before in ("?", "&") and name in _QUERY_NAMES and carrier is Carrier.ASSIGNED:
        span = bare_span(text, after.end())
        return (
            (span, "secret")
            if len(text[span.start : span.end]) >= 8 and is_guarded(text[span.start : span.end])
            else None
        )
    if said is None or (before == ":" and _RESOURCE.search(text, max(0, start - 100), start)):
        return None
    return _judge(text, start, after, carrier, said)


def _judge(
    text: str, start: int, after: re.Match[str], carrier: Carrier, said: Telling
) -> tuple[Span, str] | None:
    """Find the value and decide whether it is a secret, given what the name says and how it is carried."""
    position = after.end()
    if carrier is Carrier.BLOCK:
        return block_span(text, position), said.kind
    quote = text[start - 1] if start > 0 and text[start - 1] in "\"'" and not after["close"] else ""
    span = quoted_span(text, position)
    if said.kind in ("authorization", "cookie") and carrier is not Carrier.PROSE:
        return _header(text, span, position, quote, said)
    if span is None:
        if text.startswith(_TEMPLATES, position):
            return None
        span = bare_span(text, position)
        if carrier is Carrier.ASSIGNED and said.certain:
            span = _phrase(text, start, span, after)
    value = text[span.start : span.end]
    return (span, said.kind) if _is_secret(text, start, span, value, carrier, said) else None


def _header(
    text: str, span: Span | None, position: int, quote: str, said: Telling
) -> tuple[Span, str] | None:
    """Return the credentials of an Authorization or Cookie header."""
    if span is None and text.startswith(("{", "[", "(", "<"), position):
        return None
    if said.kind == "authorization":
        span = authorization_span(text, span or Span(position, position, quoted=False), quote)
    elif span is None:
        span = line_span(text, position, quote)
    value = text[span.start : span.end]
    if is_inert(value) or is_prose(value) or (not span.quoted and is_expression(value)):
        return None
    if said.kind == "cookie" and not span.quoted and is_identifier(value):
        return None
    return span, said.kind


def _is_secret(text: str, start: int, span: Span, value: str, carrier: Carrier, said: Telling) -> bool:
    """Decide for a value that stands next to a telling name."""
    if not said.certain:
        return is_random(value)
    if is_inert(value):
        return False
    if carrier is Carrier.PROSE:
        return is_guarded(value) or (span.quoted and not is_verdict(value) and len(value) > 3)
    if span.quoted:
        if carrier is Carrier.PAIR and is_identifier(value):
            return False
        return not is_verdict(value)
    return _is_bare_secret(text, start, span, value, carrier)


def _is_bare_secret(text: str, start: int, span: Span, value: str, carrier: Carrier) -> bool:
    """Decide for an unquoted value: a literal, or a name in code, or a word of a sentence."""
    following = text[span.end : span.end + 1]
    if is_expression(value + following) or is_expression(value):
        return False
    if carrier is Carrier.FLAG:
        return not value.startswith("-")
    if "://" in value or value[0] in "{[(":
        return False
    if is_identifier(value):
        is_argument = following in (")", ",") and not value[-1].isdigit()
        return not (
            is_argument or following in ("(", "[") or _in_source(text, start) or _starts_sentence(text, span)
        )
    return is_random(value) or not (_in_source(text, start) and not any(sign.isdigit() for sign in value))


def _phrase(text: str, start: int, span: Span, after: re.Match[str]) -> Span:
    """Extend the value of a `name: several words` line to its end, unless the words are a sentence."""
    if (
        after["sep"] != ":"
        or text[span.end : span.end + 1] != " "
        or _line_head(text, start).strip(" \t-\"'")
    ):
        return span
    whole = line_span(text, span.start, "")
    value = text[whole.start : whole.end]
    is_sentence = is_prose(value) or any(sign in value for sign in "={}[]:,;#")
    return span if is_sentence else whole


def _starts_sentence(text: str, span: Span) -> bool:
    """Tell whether the word is followed by another plain word, as in a message."""
    return bool(re.compile(r" [a-z]{2,}").match(text, span.end)) and text[span.start : span.end].isalpha()


def _line_start(text: str, before: int) -> int:
    """Return where the line starts that ends at `before`; an escaped line end counts as one."""
    floor = max(0, before - SOURCE_LINE_MAX)
    return max(text.rfind("\n", floor, before) + 1, text.rfind("\\n", floor, before) + 2, floor)


def _line_head(text: str, start: int) -> str:
    return text[_line_start(text, start) : start]


def _in_source(text: str, start: int) -> bool:
    """Tell whether the line is the source line of a traceback: the line above it names a file."""
    line = _line_start(text, start)
    end = line - (1 if text[line - 1 : line] == "\n" else 2)
    return end > 0 and text[_line_start(text, end) : end].lstrip().startswith('File "')
