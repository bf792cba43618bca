# SPDX-License-Identifier: Apache-2.0
"""Find provider tokens with one pattern over all prefixes of `tokens.py`.

A token is long and unbroken, ordinary words are short. The text is translated so that every token character is the same byte;
one search in C then finds the next long run. Only inside such a run is the pattern tried, so text without long runs costs two
passes in C. An equals sign pads base64 or is a part of a token, but also separates names from values; so it does not make a run
longer, but the pattern reads across it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from typing import Final, NamedTuple

from redrive.redaction.formats.shapes import FAR_NEEDLES, LONG_SHAPES, SHAPES, SHAPES_IN_RUNS
from redrive.redaction.formats.tokens import ALPHABETS, CHECKS, PREFIXES
from redrive.redaction.named.values import count_shifts
from redrive.redaction.placeholders import Sentinels
from redrive.redaction.places import Place, Places

LONG_RUN_MIN: Final = 23
"""The shortest run that can contain a token without a fixed prefix."""

SHIFTS_PER: Final = 4
"""A token of an unknown issuer changes between letters, digits and cases once in so many characters."""

SHIFTS_PER_SINGLE: Final = 6
"""The same for a token whose letters are all of one case, which a name in camel case is not."""

_TOKEN_BYTES: Final = frozenset(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_.-+/~:$")
_SHAPE: Final = bytes(120 if byte in _TOKEN_BYTES else 32 for byte in range(256))
# The shortest run that can contain a token.
_RUN: Final = b"x" * 16
_REST: Final = re.compile(r"[\w.+/~:$=-]*+", re.ASCII)
# `self.client.send`, `handle_order_100`, `app.errors.NotFound:`, `/srv/app/orders/100`, `db.local:5432/orders`,
# `2026-11-15T12:00:00Z`: no token is a name of words, a hash, a path with a small number or two, or a time.
_NO_TOKEN: Final = re.compile(
    r"[a-z._]++(?:[0-9]{0,9}|(?:[A-Z][a-z]{2,}+)++:?)\Z|(?<!\|)[0-9a-f]++\Z|[0-9TZ:.+-]++\Z"
    r"|(?=[a-z.:-]{0,40}/|[a-z.-]{1,40}:[0-9]{2,4}/)[a-z.:/-]++(?:[0-9]{1,9}[a-z.:/-]*+){0,2}\Z"
)
_PART: Final = re.compile(rf"({'|'.join(ALPHABETS)})(\{{[0-9,]+\}})|uuid|[^{{]")
_PIECES: Final = re.compile("[A-Za-z0-9]+")
_BOTH_CASES: Final = re.compile("[A-Z].*[a-z]|[a-z].*[A-Z]")
_UUID_START: Final = re.compile("[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){2}")
_UUID: Final = r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"


class TokenEntry(NamedTuple):
    """A prefix of the table, with its row."""

    provider: str
    prefix: str
    body: str
    checks: tuple[str, ...]


def formats() -> Iterator[TokenEntry]:
    """Yield every prefix of the table."""
    for row in PREFIXES.splitlines()[2:]:
        provider, body, checks, *prefixes = row.split()
        for prefix in prefixes:
            yield TokenEntry(provider, prefix, body, () if checks == "-" else tuple(checks.split(",")))


def _body_pattern(body: str) -> str:
    """Return the pattern of a body such as `alnum{24}.hex{30,}`; one of a fixed length must not continue."""
    parts: list[str] = []
    for part in _PART.finditer(body):
        if part[1]:
            parts.append(f"[{ALPHABETS[part[1]]}]{part[2]}")
        else:
            parts.append(_UUID if part[0] == "uuid" else re.escape(part[0]))
    if body.endswith(",}"):
        # A dot after a token ends a sentence, unless another random part of the token follows.
        parts.append(r"+(?:\.[\w-]{24,}+)*+" if "." not in parts[-1] else r"(?<!\.)")
    else:
        parts.append("(?![A-Za-z0-9])")
    return "".join(parts)


def _row_pattern(row: TokenEntry, rests: list[str]) -> str:
    """Return the pattern of a row after the first character of its prefixes, given the rests of them."""
    apart = r"(?:(?<![\w.-].)|(?<=\\[nrt].))" if "apart" in row.checks else ""
    checks = "".join(CHECKS[check] for check in row.checks if check != "apart")
    return f"{apart}(?:{'|'.join(rests)}){checks}{_body_pattern(row.body)}()"


def _grouped() -> dict[TokenEntry, list[str]]:
    """Return the rows, with only the first character of their prefixes, and the rests of these; long prefixes come first."""
    rows: dict[TokenEntry, list[str]] = {}
    for row in sorted(formats(), key=lambda row: (row.prefix[0], -len(row.prefix))):
        rows.setdefault(row._replace(prefix=row.prefix[0]), []).append(re.escape(row.prefix[1:]))
    return rows


_BOUNDARY: Final = "(?<![A-Za-z0-9])"
# In escaped text a token may also start after an escaped line end or a percent-encoded character.
_ESCAPES: Final = r"(?<=\\[nrtbf])|(?<=%[0-9A-Fa-f]{2})|(?<=\\u00[0-9a-f]{2})|(?<=\\x[0-9a-f]{2})"
# By their first character, so that the engine skips most of them at once; an empty group marks the row that matched.
_ROWS: Final = _grouped()
_PROVIDERS: Final = tuple(row.provider for row in _ROWS)
_UNMARKED: Final = tuple((kind, pattern) for kind, needle, pattern in LONG_SHAPES if not needle)
_LONG_PROVIDERS: Final = tuple(kind for kind, _ in _UNMARKED)
_MARKED: Final = tuple(
    (kind, needle, f"(?:{_BOUNDARY}|{_ESCAPES}){pattern}") for kind, needle, pattern in LONG_SHAPES if needle
)
_IN_RUNS: Final = (*SHAPES_IN_RUNS, *_MARKED)
# A third of the needles have a capital A, and most texts have none.
_LONG_TABLES: Final = [[row for row in _IN_RUNS if ("A" in row[1]) is has_a] for has_a in (False, True)]
_SHAPES, _LONG_PLACES, _LONG_PLACES_WITH_A = (
    Places(
        Place(needle, kind, re.compile(pattern), is_far=needle in FAR_NEEDLES)
        for kind, needle, pattern in table
    )
    for table in (SHAPES, *_LONG_TABLES)
)


@cache
def _patterns(*, is_escaped: bool) -> tuple[tuple[re.Pattern[str], tuple[str, ...]], ...]:
    """Return the patterns of all prefixes and of all long shapes, each with the providers of its rows.

    Compiled when the first text needs them, because that takes some milliseconds.
    """
    rows = "|".join(
        f"{re.escape(first)}(?:{'|'.join(_row_pattern(row, _ROWS[row]) for row in group)})"
        for first, group in groupby(_ROWS, key=lambda row: row.prefix[0])
    )
    shapes = "|".join(f"{pattern}()" for _, pattern in _UNMARKED)
    boundary = f"(?:{_BOUNDARY}|{_ESCAPES})" if is_escaped else _BOUNDARY
    # The parts of a path are short.
    long = f"{boundary}(?=[\\w.+~:=-]{{{LONG_RUN_MIN}}})(?:{shapes})"
    return (re.compile(f"{boundary}(?:{rows})"), _PROVIDERS), (re.compile(long), _LONG_PROVIDERS)


def redact_tokens(text: str, sentinels: Sentinels) -> str:
    """Replace every provider token."""
    text = _SHAPES.redact(text, sentinels)
    runs = _runs(text)
    if any(end - start >= LONG_RUN_MIN for start, end in runs):
        clean = _LONG_PLACES.redact(text, sentinels)
        clean = _LONG_PLACES_WITH_A.redact(clean, sentinels) if "A" in clean else clean
        runs = runs if clean is text else _runs(clean)
        text = clean
    return sentinels.replace(text, _found(text, runs)) if runs else text


def _is_issued(token: str) -> bool:
    """Return whether a token of an unknown issuer is random: neither a name in camel case nor an id with a UUID."""
    if _UUID_START.search(token):
        return False
    _, *pieces = _PIECES.findall(token)
    per = SHIFTS_PER if _BOTH_CASES.search(token) else SHIFTS_PER_SINGLE
    return sum(map(count_shifts, pieces)) * per >= sum(map(len, pieces))


def _runs(text: str) -> list[tuple[int, int]]:
    """Return the long runs of token characters that may contain a token."""
    # One byte for each character, the same for all token characters.
    shape = text.encode("latin-1", "replace").translate(_SHAPE)
    runs: list[tuple[int, int]] = []
    run = shape.find(_RUN)
    while run >= 0:
        end = shape.find(b" ", run)
        end = len(text) if end < 0 else end
        if not _NO_TOKEN.match(text, run, end):
            runs.append((run, end))
        run = shape.find(_RUN, end)
    return runs


def _across_equals(text: str, floor: int, start: int, end: int) -> tuple[int, int]:
    """Return a run with what an equals sign joins to it on either side."""
    if text[start - 1 : start] == "=":
        before = _REST.match(text[max(floor, start - 80) : start][::-1])
        start -= before.end() if before else 0
    rest = _REST.match(text, end)
    return start, rest.end() if rest else end


def _found(text: str, runs: list[tuple[int, int]]) -> Iterator[tuple[int, int, str]]:
    """Yield the tokens in the long runs of a text."""
    patterns = _patterns(is_escaped="\\" in text or "%" in text)
    has_equals = "=" in text
    done = 0
    for span in runs:
        if span[0] < done:
            continue
        run, end = span
        if has_equals and (text.startswith("=", end) or text[run - 1] == "="):
            run, end = _across_equals(text, done, run, end)
        for pattern, providers in patterns if end - run >= LONG_RUN_MIN else patterns[:1]:
            for found in pattern.finditer(text, run, end):
                kind = providers[(found.lastindex or 1) - 1]
                if kind != "token" or _is_issued(found[0]):
                    yield *found.span(), kind
                    run = found.end()
        done = end
