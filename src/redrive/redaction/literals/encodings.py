# SPDX-License-Identifier: Apache-2.0
"""How a known secret looks after others have written it: percent, JSON, Python, HTML and base64 encoding, and line by line.

Every string has forms, those too that are no Unicode: a file name or a variable of the environment may hold half of a pair, which
stands for a byte. Such a string is also looked for as its bytes, and as the stores spell it.
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
"""A line of a literal is looked for by itself if so many of its characters are not blank."""

SIGNS_MIN: Final = 4
"""And if so many of them differ: rows of dashes and lone brackets stand in every text, and tell nothing."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9_.~-]*")
_UNQUOTED: Final = re.compile(r"""[ !#-%(-;=?-\[\]-~]*""")
"""What JSON, Python and HTML write as it is."""
_ESCAPED_BYTE: Final = re.compile("%(?:[A-F][0-9A-Fa-f]|[0-9a-f][A-F])")
_ESCAPED_SIGN: Final = re.compile(r"\\u(?=[0-9a-f]{0,3}[A-F])[0-9A-Fa-f]{4}")
_MARKUP: Final = re.compile("[&<>\"']")
_TITLES: Final = frozenset(
    {
        "Traceback (most recent call last):",
        "During handling of the above exception, another exception occurred:",
        "The above exception was the direct cause of the following exception:",
    }
)
"""Lines that Python writes into every stack; a payload that holds a stack does not own them."""
_json_as_it_is: Final = json.JSONEncoder(ensure_ascii=False).encode


def forms_of(literal: str) -> Iterator[str]:
    """Yield the forms of a literal other than base64, some of them more than once; the literal itself may be among them."""
    if _PLAIN.fullmatch(literal):
        return
    raws = _raws(literal)
    for raw in raws:
        yield from _in_percent(raw)
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


def cores_of(literal: str) -> Iterator[str]:
    """Yield the characters of base64 that depend on the literal alone, for each of the three alignments."""
    for raw in _raws(literal):
        for shift in range(3):
            encoded = base64.b64encode(bytes(shift) + raw).decode("ascii")
            core = encoded[-(-shift * 8 // 6) : (shift + len(raw)) * 8 // 6]
            yield core
            if "+" in core or "/" in core:
                yield core.replace("+", "-").replace("/", "_")


def lowered(text: str) -> str:
    """Return a text with small letters in its percent and JSON escapes, as long as before: not all write them alike."""
    if "%" in text:
        text = _ESCAPED_BYTE.sub(_in_small_letters, text)
    if "\\u" in text:
        text = _ESCAPED_SIGN.sub(_in_small_letters, text)
    return text


def lines_of(literal: str) -> Iterator[str]:
    """Yield those lines of a literal of several that are looked for by themselves.

    Written again with a margin, as Python does with the members of a group, or quoted line by line, only the lines are the same. A
    line is held to be part of the value from the length on from which a whole value is: the import that stands in another text by
    chance is the price, and a small one next to a value that shows. Blanks do not count, since a bracket far to the right is short.
    """
    for line in map(str.strip, literal.splitlines()):
        if len(line) >= LINE_MIN and line not in _TITLES:
            signs = "".join(line.split())
            if len(signs) >= LINE_MIN and len(set(signs)) >= SIGNS_MIN:
                yield line


def _raws(literal: str) -> tuple[bytes, ...]:
    """Return the bytes of a literal; of one that is no Unicode all that may be meant."""
    try:
        return (literal.encode(),)
    except UnicodeEncodeError:
        whole = literal.encode("utf-8", "surrogatepass")
    try:
        return whole, literal.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return whole, literal.encode("utf-8", "replace")


def _in_percent(raw: bytes) -> Iterator[str]:
    quoted = quote(raw, safe="")
    forms = {quoted, quoted.replace("%2F", "/"), quoted.replace("%20", "+")}
    yield from forms
    yield from map(lowered, forms)


def _in_json(literal: str) -> Iterator[str]:
    """Yield a literal as JSON, and as JSON within JSON."""
    escaped = json.dumps(literal)[1:-1]
    yield escaped
    yield json.dumps(escaped)[1:-1]
    if not literal.isascii():
        yield _json_as_it_is(literal)[1:-1]


def _repaired(literal: str, raws: Iterable[bytes]) -> Iterator[str]:
    """Yield what becomes of a literal that is no Unicode where only Unicode is taken."""
    yield literal.encode("utf-8", "backslashreplace").decode()
    yield literal.encode("utf-8", "replace").decode()
    for raw in raws:
        yield raw.decode("latin-1")
        yield raw.decode("utf-8", "replace")


def _in_small_letters(found: re.Match[str]) -> str:
    return found[0].lower()
