# SPDX-License-Identifier: Apache-2.0
"""Values next to telling names, in whatever syntax: JSON, repr, YAML, shell, query string, XML, header, prose.

The text is searched for a few stems (`pass`, `token`, `key`, ...) with the C library's search; only around such a hit
is a pattern tried, and only forward. What follows a name is judged in `judgement.py`; names and punctuation are never
touched.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Final

from redrive.redaction.named.fast_path import NOTHING_PLAIN, PLAIN, judged_plainly
from redrive.redaction.named.judgement import secret_of
from redrive.redaction.named.names import NAME_CHARACTERS, Telling, telling
from redrive.redaction.named.occurrence import Named
from redrive.redaction.named.repeats import REPEATS_FROM, Judged, Repeats
from redrive.redaction.named.spans import Span, bare_span, whole_span
from redrive.redaction.named.syntax import AFTER_NAME, Carrier, carrier_of
from redrive.redaction.named.values import is_guarded
from redrive.redaction.named.vocabulary import FOREIGN_PASSWORDS, FOREIGN_SECRETS
from redrive.redaction.placeholders import MARK, Marks

NAME_MAX: Final = 64
"""A name is read this far to the left of its stem."""

TAIL_MAX: Final = 48
"""And this far to the right of where its stem starts."""

QUERY_VALUE_MIN: Final = 8
"""A query parameter such as `key` or `code` is a secret from this length on."""

JUDGED_MAX: Final = 8_192
"""After so many different names in one text nobody wrote it for reading; the rest is hidden as a whole."""

_STEMS: Final = tuple(
    (
        b"pass pw kennwort secret token key auth cred cookie sess sig dsn jwt otp psk salt hmac nonce code cvv cvc mnemonic phrase"
        b" dockerc _pat contrase senha wachtwoord haslo eslo losenord salasana gangskode parola"
        b" sid= pin= pin: pin\" pin'"
    ).split()
)
# Names of other scripts, in lower case; most texts hold none of their letters.
_FOREIGN: Final = re.compile("|".join(sorted(FOREIGN_PASSWORDS | FOREIGN_SECRETS, key=len, reverse=True)))
_QUERY_SIGNS: Final = ("?", "&")
_QUERY_NAMES: Final = frozenset({"key", "sig", "signature", "code", "auth", "session", "pass", "hmac"})
# Most uncertain names are followed by something short; this look costs less than a judgement.
_LONG_AHEAD: Final = re.compile(
    r"(?:[bBuUrRfF]{1,2}(?=[\"']))?(?:\W|&quot;){0,20}(?:\w{1,12}=)?[\w+/.~:-]{16}"
)
# What only stands next to a name must look random, which takes such a run.
_RUN_AHEAD: Final = re.compile(r"(?:[bBuUrRfF]{1,2}(?=\W))?(?:&#0?39;|&quot;|\W){0,20}[\w+/=.~:-]{16}")
_HIDDEN: Final = re.compile(rf"\\{{0,15}}[\"'`]?[{MARK}](?=[\s\"'`,;&)\]}}\\]|\Z)")
# The same from the stem on, for the common carriers: most names of a second round are passed over by this.
_HIDDEN_NEXT: Final = re.compile(
    rf"[\w-]{{0,48}}+(?:[\"'`]?[ ]?[=:][ ]?|[\"'],[ ]?|[ ](?:(?:is|was|set to)[ ])?)\\?[\"']?[{MARK}](?=[\s\"'`,;&)\]}}\\]|\Z)"
    rf"|[\w-]{{0,48}}+(?:>[{MARK}]<|:[ ]?[|>][+-]?\n[ \t]{{1,40}}[{MARK}](?=\Z|\n(?![ \t])))"
)
_TAIL: Final = re.compile(r"[\w\-\u0e00-\u0e7f]*+")
# Words that only the word before them, or their place in a query string, makes telling.
_SHORT_NAMES: Final = frozenset({"key", "keys", "code", "pass"})
_SHORT: Final = 4
_RESOURCE: Final = re.compile(r"(?:arn|urn|crn|projects/)[\w:/.-]{0,100}:\Z")


def redact_assignments(text: str, marks: Marks) -> str:
    """Put a mark in place of every literal value whose name announces a secret."""
    hits = _hits(text, is_foreign=not marks.is_ascii)
    if not hits:
        return text
    hidden = None if text.isascii() else _HIDDEN_NEXT.match
    repeats = Repeats(text, _judge) if len(hits) >= REPEATS_FROM else None
    judge = partial(_judge, text) if repeats is None else repeats.judge
    pieces: list[str] = []
    done = 0
    looked_at = 0
    for hit in hits:
        if hit < looked_at:
            continue
        if hidden and (passed := hidden(text, hit)):
            looked_at = passed.end()
            continue
        if repeats is not None and repeats.judged >= JUDGED_MAX:
            cut = max(done, text.rfind("\n", 0, hit) + 1)
            return "".join((*pieces, text[done:cut], marks.redacted("unjudged")))
        judged = judge(max(done, hit - NAME_MAX), hit)
        looked_at = judged.looked_at
        if judged.found is None:
            continue
        span = whole_span(text, judged.found[0])
        pieces += (text[done : span.start], marks.redacted(judged.found[1]))
        looked_at = done = span.end
    if not pieces:
        return text
    pieces.append(text[done:])
    return "".join(pieces)


def _judge(text: str, floor: int, hit: int) -> Judged:
    """Say what stands around a stem."""
    plain = PLAIN.match(text, hit)
    if plain is None:
        tail = _TAIL.match(text, hit)
        end = tail.end() if tail else hit
        if end - hit > TAIL_MAX:
            # No stem is looked at until the end of this run is near enough to be the end of a name.
            return Judged(end - TAIL_MAX, hit, None)
    else:
        end = plain.end(1)
        if plain.lastindex != NOTHING_PLAIN and (judged := judged_plainly(text, floor, hit, plain)):
            return judged
    after = AFTER_NAME.match(text, hit)
    if after is None:
        return Judged(end, end, None)
    start = floor + len(text[floor:hit].rstrip(NAME_CHARACTERS))
    before = text[start - 1 : start]
    if before == "%" and text.startswith(("%5B", "%5b"), start - 1):
        start += 2
        before = text[start - 1]
    if before == "/" and text.startswith(">", end):
        # The end of an element.
        return Judged(end, end, None)
    name = text[start:end]
    said = _said(text, floor, start, name, before)
    if said is None and before not in _QUERY_SIGNS:
        return Judged(end, end, None)
    # A value that is a mark as a whole was hidden before.
    is_hidden = _HIDDEN.match(text, after.end()) is not None
    found = None if is_hidden else _secret_at(text, start, name, said, after)
    return Judged(end, after.end(), found)


def _said(text: str, floor: int, start: int, name: str, before: str) -> Telling | None:
    """Return what the name that starts at `start` says about its value."""
    if before == " " and len(name) <= _SHORT and name.lower() in _SHORT_NAMES:
        # In running text the words of a name are set apart: `API key: ...`.
        word = text[floor : start - 1].rpartition(" ")[2]
        return telling(f"{word if word.replace('-', '').isalnum() else ''}_{name}")
    return telling(name.strip("-."))


def _hits(text: str, *, is_foreign: bool) -> list[int]:
    """Return where a stem occurs, in order; names of other scripts are looked for where such letters may be."""
    # One byte for each character, so that indexes are those of the text; the search in bytes is the fastest one.
    lowered = text.encode("latin-1", "replace").lower()
    hits: list[int] = []
    for stem in _STEMS:
        at = lowered.find(stem)
        while at >= 0:
            hits.append(at)
            at = lowered.find(stem, at + len(stem))
    if is_foreign:
        # The dotted capital I is the one letter whose lower case is longer.
        foreign = _FOREIGN.finditer(text.replace("\u0130", "I").lower())
        hits += [found.start() + found[0].rfind(" ") + 1 for found in foreign]
    hits.sort()
    return hits


def _secret_at(
    text: str, start: int, name: str, said: Telling | None, after: re.Match[str]
) -> tuple[Span, str] | None:
    """Return the secret that follows the name at `start`, with its kind."""
    before = text[start - 1 : start]
    carrier = carrier_of(after, before, name)
    if carrier is None:
        return None
    if before in _QUERY_SIGNS and name in _QUERY_NAMES and carrier is Carrier.ASSIGNED:
        return _query_value(text, after.end())
    if said is None or _is_reference(text, start, before, after.end()):
        return None
    if not said.certain and carrier is Carrier.NEXT_TO and name.lower().endswith("key"):
        # `for key 9f8e...` looks something up; `API key 9f8e...` shows one.
        return None
    if _is_too_short(text, after.end(), carrier, said):
        return None
    return secret_of(Named(text, start, name, after, carrier, said))


def _is_reference(text: str, start: int, before: str, value: int) -> bool:
    """Tell whether the name is the last part of a resource, or `${PASSWORD:?must be set}` of a shell."""
    if before == "{":
        return text.startswith(("?", "+"), value)
    return before == ":" and _RESOURCE.search(text, max(0, start - 100), start) is not None


def _is_too_short(text: str, start: int, carrier: Carrier, said: Telling) -> bool:
    """Tell at a glance that no random value starts here, where only such a one would be a secret."""
    if not said.certain:
        return _LONG_AHEAD.match(text, start) is None
    return carrier is Carrier.NEXT_TO and said.kind == "secret" and _RUN_AHEAD.match(text, start) is None


def _query_value(text: str, start: int) -> tuple[Span, str] | None:
    """Return the value of a query parameter that is a secret when it is long and mixed."""
    span = bare_span(text, start)
    is_secret = span.end - span.start >= QUERY_VALUE_MIN and is_guarded(text[span.start : span.end])
    return (span, "secret") if is_secret else None
