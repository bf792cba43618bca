# SPDX-License-Identifier: Apache-2.0
"""Compute the encodings of a known secret: percent, JSON, Python, HTML and base64, and its single lines.

This includes strings that are not valid Unicode: a file name or environment variable may contain a lone surrogate, which
represents a byte. Such a string is also searched as its bytes, and as the stores write it.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote

LINE_MIN: Final = 8
"""A line of a literal is searched by itself if it has at least this many characters that are not blank."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9_.~-]*")
_UNQUOTED: Final = re.compile(r"""[ !#-%(-;=?-\[\]-~]*""")
"""Text that JSON, Python and HTML do not escape."""
_ESCAPED: Final = re.compile(r"%(?:[A-F][0-9A-Fa-f]|[0-9a-f][A-F])|\\u(?=[0-9a-f]{0,3}[A-F])[0-9A-Fa-f]{4}")
_MARKUP: Final = re.compile("[&<>\"']")
_TITLES: Final = frozenset(
    {
        "Traceback (most recent call last):",
        "During handling of the above exception, another exception occurred:",
        "The above exception was the direct cause of the following exception:",
    }
)
"""Lines that Python writes in every stack; they are not secret even if a payload contains a stack."""
_json_as_it_is: Final = json.JSONEncoder(ensure_ascii=False).encode


def encodings_of(literal: str) -> Iterator[str]:
    """Yield the encodings of a literal other than base64, possibly with duplicates and the literal itself."""
    if _PLAIN.fullmatch(literal):
        return
    raws = _raws(literal)
    for raw in raws:
        quoted = quote(raw, safe="")
        for form in (quoted, quoted.replace("%2F", "/"), quoted.replace("%20", "+")):
            yield form
            yield lower_escapes(form)
    if _UNQUOTED.fullmatch(literal):
        return
    yield from _in_json(literal)
    yield repr(literal)[1:-1]
    if _MARKUP.search(literal):
        yield html.escape(literal)
    if not literal.isascii():
        yield ascii(literal)[1:-1]
        yield from (repr(raw)[2:-1] for raw in raws)
    if len(raws) > 1:
        yield from _repaired(literal, raws)
    if "\n" in literal or "\r" in literal:
        joined = literal.replace("\r\n", "\n")
        yield joined
        yield joined.replace("\n", "\r\n")
        yield from lines_of(literal)


def base64_cores(literal: str) -> Iterator[str]:
    """Yield the characters of base64 that depend on the literal alone, for each of the three alignments."""
    for raw in _raws(literal):
        for shift in range(3):
            encoded = base64.b64encode(bytes(shift) + raw).decode("ascii")
            core = encoded[-(-shift * 8 // 6) : (shift + len(raw)) * 8 // 6]
            yield core
            if "+" in core or "/" in core:
                yield core.replace("+", "-").replace("/", "_")


def lower_escapes(text: str) -> str:
    """Return a text with the hexadecimal digits of its percent and JSON escapes in lower case, of the same length."""
    return _ESCAPED.sub(lambda found: found[0].lower(), text) if "%" in text or "\\u" in text else text


def lines_of(literal: str) -> Iterator[str]:
    """Yield the lines of a multi-line literal that are searched by themselves.

    With a margin, as Python prints the members of a group, or quoted line by line, only the single lines match. A line counts from
    the same length as a whole value. The price is small: a line such as an import may be hidden where it is not secret. Blanks do
    not count, so that an indented bracket is short.
    """
    for line in map(str.strip, literal.splitlines()):
        if len(line) >= LINE_MIN and line not in _TITLES:
            signs = "".join(line.split())
            # Rows of dashes and single brackets occur in every text.
            if len(signs) >= LINE_MIN and len(set(signs)) >= 4:
                yield line


def _raws(literal: str) -> tuple[bytes, ...]:
    """Return the bytes of a literal; all possible ones if it is not valid Unicode."""
    try:
        return (literal.encode(),)
    except UnicodeEncodeError:
        whole = literal.encode("utf-8", "surrogatepass")
    try:
        return whole, literal.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return whole, literal.encode("utf-8", "replace")


def _in_json(literal: str) -> Iterator[str]:
    """Yield a literal as JSON, and as JSON within JSON."""
    escaped = json.dumps(literal)[1:-1]
    yield escaped
    yield json.dumps(escaped)[1:-1]
    if not literal.isascii():
        yield _json_as_it_is(literal)[1:-1]


def _repaired(literal: str, raws: Iterable[bytes]) -> Iterator[str]:
    """Yield a literal that is not valid Unicode as writers that need Unicode change it."""
    yield literal.encode("utf-8", "backslashreplace").decode()
    yield literal.encode("utf-8", "replace").decode()
    for raw in raws:
        yield raw.decode("latin-1")
        yield raw.decode("utf-8", "replace")
