# SPDX-License-Identifier: Apache-2.0
"""Find values next to secret names, in any syntax: JSON, repr, YAML, shell, query string, XML, header, prose.

The text is searched in C for a few stems (`pass`, `token`, `key`, ...); only at such a hit is a pattern tried, and only forward.
`judgement.py` decides about the value; names and punctuation are never changed.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Final

from redrive.redaction.named.fast_path import NOTHING_PLAIN, PLAIN, decide_fast
from redrive.redaction.named.judgement import secret_of
from redrive.redaction.named.names import NAME_CHARACTERS, NameMeaning, meaning_of_name
from redrive.redaction.named.occurrence import NamedValue
from redrive.redaction.named.repeats import REPEATS_FROM, NameCache, NameDecision
from redrive.redaction.named.spans import Span, unquoted_span, whole_span
from redrive.redaction.named.syntax import AFTER_NAME, Syntax, syntax_of
from redrive.redaction.named.values import is_guarded
from redrive.redaction.named.vocabulary import FOREIGN_PASSWORDS, FOREIGN_SECRETS
from redrive.redaction.placeholders import SENTINEL, Sentinels

NAME_MAX: Final = 64
"""How far a name may extend to the left of its stem."""

TAIL_MAX: Final = 48
"""How far a name may extend to the right of the start of its stem."""

QUERY_VALUE_MIN: Final = 8
"""A query parameter such as `key` or `code` is a secret from this length on."""

DECIDED_MAX: Final = 8_192
"""A text with more different names was not written for people; its rest is hidden as a whole."""

_STEMS: Final = tuple(
    (
        b"pass pw kennwort secret token key auth cred cookie sess sig dsn jwt otp psk salt hmac nonce code cvv cvc mnemonic phrase"
        b" dockerc _pat contrase senha wachtwoord haslo eslo losenord salasana gangskode parola"
        b" sid= pin= pin: pin\" pin'"
    ).split()
)
# Names in other scripts, in lower case; most texts have none of their letters.
_FOREIGN: Final = re.compile("|".join(sorted(FOREIGN_PASSWORDS | FOREIGN_SECRETS, key=len, reverse=True)))
_QUERY_SIGNS: Final = ("?", "&")
_QUERY_NAMES: Final = frozenset({"key", "sig", "signature", "code", "auth", "session", "pass", "hmac"})
# Most uncertain names are followed by something short; this test costs less than a full decision.
_LONG_AHEAD: Final = re.compile(
    r"(?:[bBuUrRfF]{1,2}(?=[\"']))?(?:\W|&quot;){0,20}(?:\w{1,12}=)?[\w+/.~:-]{16}"
)
# A value that is only adjacent to a name must look random, which needs such a run.
_RUN_AHEAD: Final = re.compile(r"(?:[bBuUrRfF]{1,2}(?=\W))?(?:&#0?39;|&quot;|\W){0,20}[\w+/=.~:-]{16}")
_HIDDEN: Final = re.compile(rf"\\{{0,15}}[\"'`]?[{SENTINEL}](?=[\s\"'`,;&)\]}}\\]|\Z)")
# The same from the stem on, for the common syntaxes: skips most names in a second round.
_HIDDEN_NEXT: Final = re.compile(
    rf"[\w-]{{0,48}}+(?:[\"'`]?[ ]?[=:][ ]?|[\"'],[ ]?|[ ](?:(?:is|was|set to)[ ])?)\\?[\"']?[{SENTINEL}](?=[\s\"'`,;&)\]}}\\]|\Z)"
    rf"|[\w-]{{0,48}}+(?:>[{SENTINEL}]<|:[ ]?[|>][+-]?\n[ \t]{{1,40}}[{SENTINEL}](?=\Z|\n(?![ \t])))"
)
_TAIL: Final = re.compile(r"[\w\-\u0e00-\u0e7f]*+")
# Words that are secret names only after another word, or in a query string.
_SHORT_NAMES: Final = frozenset({"key", "keys", "code", "pass"})
_SHORT: Final = 4
_RESOURCE: Final = re.compile(r"(?:arn|urn|crn|projects/)[\w:/.-]{0,100}:\Z")


def redact_assignments(text: str, sentinels: Sentinels) -> str:
    """Replace every literal value that has a secret name."""
    hits = _hits(text, is_foreign=not sentinels.is_ascii)
    if not hits:
        return text
    hidden = None if text.isascii() else _HIDDEN_NEXT.match
    repeats = NameCache(text, _decide) if len(hits) >= REPEATS_FROM else None
    decide = partial(_decide, text) if repeats is None else repeats.decide
    pieces: list[str] = []
    done = 0
    looked_at = 0
    for hit in hits:
        if hit < looked_at:
            continue
        if hidden and (apply_passes := hidden(text, hit)):
            looked_at = apply_passes.end()
            continue
        if repeats is not None and repeats.decided >= DECIDED_MAX:
            cut = max(done, text.rfind("\n", 0, hit) + 1)
            return "".join((*pieces, text[done:cut], sentinels.redacted("unjudged")))
        decided = decide(max(done, hit - NAME_MAX), hit)
        looked_at = decided.looked_at
        if decided.found is None:
            continue
        span = whole_span(text, decided.found[0])
        pieces += (text[done : span.start], sentinels.redacted(decided.found[1]))
        looked_at = done = span.end
    if not pieces:
        return text
    pieces.append(text[done:])
    return "".join(pieces)


def _decide(text: str, floor: int, hit: int) -> NameDecision:
    """Return the name around a stem, and the secret after it."""
    plain = PLAIN.match(text, hit)
    if plain is None:
        tail = _TAIL.match(text, hit)
        end = tail.end() if tail else hit
        if end - hit > TAIL_MAX:
            # Skip to where the end of this run is close enough to be the end of a name.
            return NameDecision(end - TAIL_MAX, hit, None)
    else:
        end = plain.end(1)
        if plain.lastindex != NOTHING_PLAIN and (decided := decide_fast(text, floor, hit, plain)):
            return decided
    after = AFTER_NAME.match(text, hit)
    if after is None:
        return NameDecision(end, end, None)
    start = floor + len(text[floor:hit].rstrip(NAME_CHARACTERS))
    before = text[start - 1 : start]
    if before == "%" and text.startswith(("%5B", "%5b"), start - 1):
        start += 2
        before = text[start - 1]
    if before == "/" and text.startswith(">", end):
        # The end of an element.
        return NameDecision(end, end, None)
    name = text[start:end]
    meaning = _meaning(text, floor, start, name, before)
    if meaning is None and before not in _QUERY_SIGNS:
        return NameDecision(end, end, None)
    # A value that is a single sentinel was replaced before.
    is_hidden = _HIDDEN.match(text, after.end()) is not None
    found = None if is_hidden else _secret_at(text, start, name, meaning, after)
    return NameDecision(end, after.end(), found)


def _meaning(text: str, floor: int, start: int, name: str, before: str) -> NameMeaning | None:
    """Return the meaning of the name that starts at `start`."""
    if before == " " and len(name) <= _SHORT and name.lower() in _SHORT_NAMES:
        # In prose the words of a name are separated: `API key: ...`.
        word = text[floor : start - 1].rpartition(" ")[2]
        return meaning_of_name(f"{word if word.replace('-', '').isalnum() else ''}_{name}")
    return meaning_of_name(name.strip("-."))


def _hits(text: str, *, is_foreign: bool) -> list[int]:
    """Return the positions of stems, in order; names in other scripts only if the text may have such letters."""
    # One byte per character, so that indexes are those of the text; searching bytes is fastest.
    lower_escapes = text.encode("latin-1", "replace").lower()
    hits: list[int] = []
    for stem in _STEMS:
        at = lower_escapes.find(stem)
        while at >= 0:
            hits.append(at)
            at = lower_escapes.find(stem, at + len(stem))
    if is_foreign:
        # The dotted capital I is the only letter whose lower case is longer.
        foreign = _FOREIGN.finditer(text.replace("\u0130", "I").lower())
        hits += [found.start() + found[0].rfind(" ") + 1 for found in foreign]
    hits.sort()
    return hits


def _secret_at(
    text: str, start: int, name: str, meaning: NameMeaning | None, after: re.Match[str]
) -> tuple[Span, str] | None:
    """Return the secret that follows the name at `start`, with its kind."""
    before = text[start - 1 : start]
    syntax = syntax_of(after, before, name)
    if syntax is None:
        return None
    if before in _QUERY_SIGNS and name in _QUERY_NAMES and syntax is Syntax.ASSIGNED:
        return _query_value(text, after.end())
    if meaning is None or _is_reference(text, start, before, after.end()):
        return None
    if not meaning.certain and syntax is Syntax.NEXT_TO and name.lower() in _SHORT_NAMES:
        # `for key 9f8e...` is a lookup; `API key 9f8e...` is a secret.
        return None
    if _is_too_short(text, after.end(), syntax, meaning):
        return None
    return secret_of(NamedValue(text, start, name, after, syntax, meaning))


def _is_reference(text: str, start: int, before: str, value: int) -> bool:
    """Return whether the name is the last part of a resource, or a shell's `${PASSWORD:?must be set}`."""
    if before == "{":
        return text.startswith(("?", "+"), value)
    return before == ":" and _RESOURCE.search(text, max(0, start - 100), start) is not None


def _is_too_short(text: str, start: int, syntax: Syntax, meaning: NameMeaning) -> bool:
    """Return whether only a random value would be a secret here, and none can start here."""
    if not meaning.certain:
        return _LONG_AHEAD.match(text, start) is None
    return syntax is Syntax.NEXT_TO and meaning.kind == "secret" and _RUN_AHEAD.match(text, start) is None


def _query_value(text: str, start: int) -> tuple[Span, str] | None:
    """Return the value of a query parameter if it is long and mixed, and so a secret."""
    span = unquoted_span(text, start)
    is_secret = span.end - span.start >= QUERY_VALUE_MIN and is_guarded(text[span.start : span.end])
    return (span, "secret") if is_secret else None
