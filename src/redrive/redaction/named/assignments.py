# SPDX-License-Identifier: Apache-2.0
"""Find values next to secret names, in any syntax: JSON, repr, YAML, shell, query string, XML, header, prose.

The text is searched in C for a few stems (`pass`, `token`, `key`, ...); only at such a hit is a pattern tried, and only forward.
`judgement.py` decides about the value; names and punctuation are never changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Final

from redrive.redaction.named.judgement import secret_of
from redrive.redaction.named.names import NAME_CHARACTERS, NameMeaning, meaning_of_name
from redrive.redaction.named.syntax import (
    AFTER_NAME,
    BARE_MAX,
    NamedValue,
    Span,
    syntax_of,
    unquoted_span,
    whole_span,
)
from redrive.redaction.named.values import is_guarded, is_random
from redrive.redaction.named.vocabulary import FOREIGN_PASSWORDS, FOREIGN_SECRETS
from redrive.redaction.placeholders import SENTINEL, Sentinels

NAME_MAX: Final = 64
"""How far a name may extend to the left of its stem."""

TAIL_MAX: Final = 48
"""How far a name may extend to the right of the start of its stem."""

DECIDED_MAX: Final = 8_192
"""A text with more different names was not written for people; its rest is hidden as a whole."""

LONG_MIN: Final = 16_384
"""In a longer text repeated names are decided once."""

AHEAD: Final = 768
"""How much of a value fits in a window; longer ones are decided in the whole text."""

# Each is found by a rare letter in it, and what is before that letter is looked up: the search skips all other letters at once.
_STEMS: Final = re.compile(
    rb"c(?:o(?:okie|de|ntrase)|r(?:ed|umb)|ertificate(?<=app.certificate)|v[cv]|htwoord(?<=wachtwoord)|e(?<=nonce)|(?<=hmac)|(?<=mnemonic)"
    rb"|cess(?<=access)(?=\\{0,3}[\"']?\]?[ ]?[=:]))|jwt|gin(?<=login)(?=\\{0,3}[\"']?\]?[ ]?[=:])"
    rb"|k(?:e(?:y|nnwort|n(?<=token)|rc(?<=dockerc))|ode(?<=gangskode))"
    rb"|p(?:ass|w|hrase|sk|arola|in[=:\"']|(?<=otp)|at(?<=_pat)|i(?<=api)(?:(?=\\{0,3}[\"']?\]?[ ]?[=:])|(?=[_-]id)))"
    rb"|s(?:e(?:cret|ss|nha|nord(?<=losenord))|ig|id=|al(?:t|asana)|lo(?:(?<=eslo)|(?<=haslo))|n(?<=dsn))|uth(?<=auth)"
)
# Names in other scripts, in lower case; most texts have none of their letters.
_FOREIGN: Final = re.compile("|".join(sorted(FOREIGN_PASSWORDS | FOREIGN_SECRETS, key=len, reverse=True)))
_QUOTES: Final = ('"', "'", "`")
_QUERY_SIGNS: Final = ("?", "&")
_QUERY_NAMES: Final = frozenset({"key", "sig", "signature", "code", "auth", "session", "pass", "hmac"})
# After an uncertain name only a random value is a secret, and most values are too short; this costs less than a full decision.
_LONG_AHEAD: Final = re.compile(
    r"(?:[bBuUrRfF]{1,2}(?=[\"']))?(?:\W|&quot;){0,20}(?:\w{1,12}=)?[\w+/.~:!@#$%^*?=-]{16}"
)
_HIDDEN: Final = re.compile(rf"\\{{0,15}}[\"'`]?[{SENTINEL}](?=[\s\"'`,;&)\]}}\\]|\Z)")
_TAIL: Final = re.compile(r"[\w\-\u0e00-\u0e7f]*+")
# Words that are secret names only after another word, or in a query string.
_SHORT_NAMES: Final = frozenset({"key", "keys", "code", "pass"})
_RESOURCE: Final = re.compile(r"(?:arn|urn|crn|projects/)[\w:/.-]{0,100}:\Z")

_Decision = tuple[int, int, tuple[Span, str] | None]
"""The end of a name, the possible start of its value, and the secret there. A plain tuple, because many are built."""


def redact_assignments(text: str, sentinels: Sentinels) -> str:
    """Replace every literal value that has a secret name."""
    hits = _hits(text, is_foreign=not sentinels.is_ascii)
    return sentinels.replace(text, _secrets(text, hits)) if hits else text


def _secrets(text: str, hits: list[int]) -> Iterator[tuple[int, int, str]]:
    """Yield the secrets after secret names, in order."""
    repeats = None if len(text) < LONG_MIN else _Repeats(text)
    decide = repeats.decide if repeats else partial(_decide, text)
    done = looked_at = 0
    for hit in hits:
        if hit < looked_at:
            continue
        looked_at, _, found = decide(max(done, hit - NAME_MAX), hit)
        if repeats and repeats.decided > DECIDED_MAX:
            yield max(done, text.rfind("\n", 0, hit) + 1), len(text), "unjudged"
            return
        if found is not None:
            span = whole_span(text, found[0])
            yield span.start, span.end, found[1]
            looked_at = done = span.end


class _Repeats:
    """Decides about the names of a long text, about identical ones only once: a text built to be slow repeats itself.

    A decision depends on a window around the name, wider than any decision looks back; where a value reaches the end of the
    window, the whole text is used instead. Most names differ in what is next to them, and need no window.
    """

    __slots__ = ("_near", "_seen", "_text", "decided")

    def __init__(self, text: str) -> None:
        self._text = text
        self._near: set[str] = set()
        self._seen: dict[tuple[str, int], _Decision] = {}
        self.decided = 0
        """How many decisions were not repeated."""

    def decide(self, floor: int, hit: int) -> _Decision:
        """Return the decision about the name around `hit`, in positions of the whole text."""
        near = self._text[hit : hit + 64]
        if near not in self._near:
            self._near.add(near)
            self.decided += 1
            return _decide(self._text, floor, hit)
        # More than a decision ever looks back: a name, and the start of its line and of the line above.
        low = max(0, hit - 512)
        key = (self._text[low : hit + AHEAD], floor - low)
        decided = self._seen.get(key)
        if decided is None:
            self.decided += 1
            decided = _decide(key[0], floor - low, hit - low)
            if hit + AHEAD < len(self._text) and _is_cut(key[0], decided):
                return _decide(self._text, floor, hit)
            self._seen[key] = decided
        looked_at, value, found = decided
        if found is not None:
            (start, end, quoted), kind = found
            found = Span(start + low, end + low, quoted), kind
        return looked_at + low, value + low, found


def _is_cut(window: str, decided: _Decision) -> bool:
    """Return whether the end of the window may have affected the decision."""
    _, value, found = decided
    if (found[0].end if found else value) > len(window) - BARE_MAX - 2:
        return True
    return (
        found is None and window[value : value + 1] in _QUOTES and window.find(window[value], value + 1) < 0
    )


def _decide(text: str, floor: int, hit: int) -> _Decision:
    """Return the name around a stem, and the secret after it."""
    after = AFTER_NAME.match(text, hit)
    if after is None:
        # In a run that is too long for a name, skip to where its end is close enough.
        tail = _TAIL.match(text, hit)
        end = tail.end() if tail else hit
        return (end if end - hit <= TAIL_MAX else end - TAIL_MAX), hit, None
    end, value = after.end("tail"), after.end()
    if not text.isascii() and _HIDDEN.match(text, value):
        # A value that is a single sentinel was replaced before.
        return end, value, None
    start = _name_start(text, floor, hit)
    name = text[start:end]
    meaning = _meaning(text, floor, start, name)
    if meaning is None and text[start - 1 : start] not in _QUERY_SIGNS:
        return end, value, None
    return end, value, _secret_at(text, start, name, meaning, after)


def _hits(text: str, *, is_foreign: bool) -> list[int]:
    """Return the positions of stems, in order; names in other scripts only if the text may have such letters."""
    # One byte per character, so that positions are those of the text.
    hits = [found.start() for found in _STEMS.finditer(text.encode("latin-1", "replace").lower())]
    if not is_foreign:
        return hits
    # The dotted capital I is the only letter whose lower case is longer.
    foreign = _FOREIGN.finditer(text.replace("\u0130", "I").lower())
    return sorted([*hits, *(found.start() + found[0].rfind(" ") + 1 for found in foreign)])


def _name_start(text: str, floor: int, hit: int) -> int:
    """Return the start of the name around a stem; a percent-encoded bracket before it is not a part of it."""
    start = floor + len(text[floor:hit].rstrip(NAME_CHARACTERS))
    return start + 2 if text.startswith(("%5B", "%5b"), start - 1) else start


def _meaning(text: str, floor: int, start: int, name: str) -> NameMeaning | None:
    """Return the meaning of the name that starts at `start`."""
    if len(name) <= 4 and text[start - 1 : start] == " " and name.lower() in _SHORT_NAMES:
        # In prose the words of a name are separated: `API key: ...`.
        word = text[floor : start - 1].rpartition(" ")[2]
        return meaning_of_name(f"{word if word.replace('-', '').isalnum() else ''}_{name}")
    # Numbers at either end of a name mean nothing; without them, more names are in the cache.
    return meaning_of_name(name.strip("0123456789_.-"))


def _secret_at(
    text: str, start: int, name: str, meaning: NameMeaning | None, after: re.Match[str]
) -> tuple[Span, str] | None:
    """Return the secret that follows the name at `start`, with its kind."""
    before = text[start - 1 : start]
    syntax = syntax_of(after, before, name)
    if syntax is None:
        return None
    if before in _QUERY_SIGNS and syntax == "assigned" and (meaning is None or name in _QUERY_NAMES):
        span = unquoted_span(text, after.end())
        value = text[span.start : span.end]
        # `wskey` and `dkey` are keys as well, if the value is random.
        is_known = name in _QUERY_NAMES and len(value) >= 8 and is_guarded(value)
        is_secret = is_known or (name.lower().endswith("key") and is_random(value))
        return (span, "secret") if is_secret else None
    if meaning is None or (before in ("{", ":") and _is_reference(text, start, before, after.end())):
        return None
    # `for key 9f8e...` is a lookup; `API key 9f8e...` is a secret.
    is_lookup = syntax == "next to" and name.lower() in _SHORT_NAMES
    if not meaning.certain and (is_lookup or not _LONG_AHEAD.match(text, after.end())):
        return None
    return secret_of(NamedValue(text, start, name, after, syntax, meaning))


def _is_reference(text: str, start: int, before: str, value: int) -> bool:
    """Return whether the name is the last part of a resource, or a shell's `${PASSWORD:?must be set}`."""
    if before == "{":
        return text.startswith(("?", "+"), value)
    return _RESOURCE.search(text, max(0, start - 100), start) is not None
