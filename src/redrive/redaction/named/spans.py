# SPDX-License-Identifier: Apache-2.0
"""Where a value starts and ends once its name and separator have been read: quoted, escaped, bare, header or block.

Says only where; whether the value is a secret is decided in `assignments.py`. Whatever is scanned is also consumed by
the caller, so that a text without a closing quote still costs linear time.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from redrive.redaction.placeholders import MARK

VALUE_MAX: Final = 16_384
"""A closing quote is looked for in this many characters; a value without one ends with its line."""

BARE_MAX: Final = 256
"""As much of an unquoted value is read before it is judged; `whole_span` then reads the rest of it."""

LINE_MAX: Final = 2048
"""As much of a header line is read before it is judged."""

HEREDOC_MAX: Final = 480
"""The end of a here document is looked for in this many characters; longer secrets have shapes of their own."""

_OPENING: Final = re.compile(r"[bBuUrRfFN@]{0,2}(\\{0,15}[\"'`]|&quot;|&\#0?39;|%22|\\+u0022)")
_BARE: Final = re.compile(
    r"(?>(?:[^\s\"'`<>&;,(){}\[\]\\|%]++"
    r"|%(?!26|2[cC]|22)"
    # A sign that usually separates belongs to the value when nothing that starts a new item follows.
    r"|[&;,|](?![\s\"'\\&;,|]|\Z|[\w.\-]{1,40}+ ?[=:])"
    r"|[(){}\[\]](?=[^\s,;:.(){}\[\]\"'\\<>&|])"
    r"|\\(?![nrt\"'\\u]))+)"
)
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9_.-]{1,30})[ \t]++(?=\S)")
_SINGLE_WORD_SCHEMES: Final = frozenset(
    "basic bearer token apikey api-key key ssws negotiate ntlm jwt dpop splunk genie-key bot klaviyo-api-key sso-key".split()
)
_CREDENTIAL: Final = re.compile(r"[^\s\"'<>,;\\)\]}]++")
_LINE_REST: Final = re.compile(rf"[^\n\r\\{MARK}]*+(?>(?:(?:\\(?![nr])|[{MARK}])[^\n\r\\{MARK}]*+)*)")
_HEREDOC: Final = re.compile(
    r"<<[-~]?[\"']?([A-Za-z_]{1,24})[\"']?[ \t]{0,8}\r?\n[ \t]{0,40}+"
    r"((?>[^\n]++(?:\n(?![ \t]{0,40}\1\b)[^\n]*+)*))\n[ \t]{0,40}\1\b"
)
_BLOCK_LINE: Final = re.compile(r"[ \t]++[^\n]*+(?:\n|\Z)")


class Span(NamedTuple):
    """Where a value stands, and whether quotes hold it; a named tuple because many are made and few are kept."""

    start: int
    end: int
    quoted: bool


@lru_cache(maxsize=64)
def _closing(delimiter: str) -> re.Pattern[str]:
    """Return the pattern of the quote that closes what `delimiter` opened."""
    if delimiter in ('"', "'", "`"):
        return re.compile(rf"(?>(?:[^{delimiter}\\\n]++|\\.)*)")
    return re.compile(rf"(?>(?:[^\n{re.escape(delimiter[0])}]++|(?!(?<!\\){re.escape(delimiter)})[^\n])*)")


def quoted_span(text: str, start: int) -> Span | None:
    """Return the content of the quoted string that opens at `start`; None when no quote does."""
    opening = _OPENING.match(text, start)
    if opening is None:
        return None
    inside = opening.end()
    content = _closing(opening[1]).match(text, inside, inside + VALUE_MAX)
    end = content.end() if content else inside
    if end == inside + VALUE_MAX:
        rest = _CREDENTIAL.match(text, end)
        end = rest.end() if rest else end
    return Span(inside, min(end, len(text)), quoted=True)


def bare_span(text: str, start: int) -> Span:
    """Return the unquoted word at `start`, without the punctuation of the sentence around it."""
    found = _BARE.match(text, start, start + BARE_MAX)
    end = found.end() if found else start
    while end > start and text[end - 1] in ".,;:!?" and (end == len(text) or text[end].isspace()):
        end -= 1
    return Span(start, end, quoted=False)


def whole_span(text: str, span: Span) -> Span:
    """Return a value that is known to be secret in full, however long it is."""
    length = span.end - span.start
    if length < BARE_MAX or text.startswith(('"', "'", "`", "\\", "&"), span.end):
        return span
    # A line that was cut while it was read goes on to its end, a word to the end of the word.
    rest = (_CREDENTIAL if length < LINE_MAX // 2 else _LINE_REST).match(text, span.end)
    return Span(span.start, rest.end() if rest else span.end, quoted=span.quoted)


def line_span(text: str, start: int, quote: str) -> Span:
    """Return the rest of the line; up to `quote` when the name itself stands inside such quotes."""
    rest = _LINE_REST.match(text, start, start + LINE_MAX)
    end = rest.end() if rest else start
    if quote:
        closing = text.find(quote, start, end)
        end = closing if closing >= 0 else end
    while end > start and text[end - 1] in " \t":
        end -= 1
    return Span(start, end, quoted=bool(quote))


def authorization_span(text: str, span: Span, quote: str) -> Span:
    """Return the credentials of an Authorization header, without the name of the scheme.

    `span` is the quoted value; when it is not quoted, only its start counts and the rest of the line is read if need be.
    """
    limit = span.end if span.quoted else span.start + LINE_MAX
    scheme = _SCHEME.match(text, span.start, limit)
    start = scheme.end() if scheme else span.start
    if span.quoted:
        return Span(start, span.end, quoted=True)
    if scheme and scheme[1].lower() not in _SINGLE_WORD_SCHEMES:
        return line_span(text, start, quote)
    word = _CREDENTIAL.match(text, start, limit)
    return Span(start, word.end() if word else start, quoted=False)


def heredoc_span(text: str, start: int) -> Span | None:
    """Return the lines between `<<EOT` at `start` and the line that closes them; None when none does soon."""
    found = _HEREDOC.match(text, start, start + HEREDOC_MAX)
    return None if found is None else Span(found.start(2), found.end(2), quoted=True)


def block_span(text: str, start: int) -> Span:
    """Return the indented lines of a YAML block scalar that starts at `start`."""
    end = start
    line = _BLOCK_LINE.match(text, end)
    while line and line.end() > end and end - start < VALUE_MAX:
        end = line.end()
        line = _BLOCK_LINE.match(text, end)
    inside = start
    while inside < end and text[inside] in " \t":
        inside += 1
    while end > inside and text[end - 1] == "\n":
        end -= 1
    return Span(inside, end, quoted=True)
