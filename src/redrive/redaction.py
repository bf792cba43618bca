# SPDX-License-Identifier: Apache-2.0
"""The redactor of this process: the pure one, plus the secrets that the process itself knows.

Those are the secret-looking environment variables, read at every call, and what `register_secret` was given. Everything
that leaves the process in a dead letter, a log line or an export goes through here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from threading import Lock
from typing import Final

from redrive.config import secret_environment
from redrive.core.redact.literals import LITERAL_MIN, Literals
from redrive.core.redact.marks import placeholder
from redrive.core.redact.structure import Walk
from redrive.core.redact.text import redact_with
from redrive.errors import ConfigurationError

__all__ = ["redact", "redact_end", "redact_mapping", "redact_start", "register_secret"]

_SECRET: Final = placeholder("secret")

SEEN_MAX: Final = 1_000
SEEN_LENGTH_MAX: Final = 2_048
FORMS_MAX: Final = 2_000
"""Of so many literals every form is looked for, percent-encoded and in base64; of further ones the plain form."""
MARGIN: Final = 4
"""No form of a literal, base64 included, is shorter than the literal by more than this; a longer one cannot stand in a text."""

PIECE: Final = 256
"""In a text that is cut, literals longer than this are looked for in pieces: the rest of one may be beyond the cut."""
SHORTENED_MAX: Final = 64
"""So many of the longest literals are looked for in all of a text that is too long to be read."""
_REPEATED: Final = re.compile(r"(<(?:payload|redacted):[^<>]*>)\1+")


class _Known:
    """The compiled secrets of the process, and what they were compiled from."""

    __slots__ = ("environment", "literals", "registered", "seen")

    def __init__(self, environment: Mapping[str, str], registered: frozenset[str]) -> None:
        self.environment = environment
        self.registered = registered
        self.literals = Literals(dict.fromkeys((*environment.values(), *registered), _SECRET))
        self.seen: dict[str, str] = {}
        """Short texts and what became of them: the same failure is told again and again."""


_lock = Lock()
_known = _Known({}, frozenset())


def redact(text: str, payload: Mapping[str, str] | None = None) -> str:
    """Return `text` without secrets and personal facts, each replaced by a placeholder such as `<redacted:jwt>`.

    `payload` maps further literals to their placeholders, for this call only. Redacting the result again changes nothing.

    Raises:
        ConfigurationError: `text` is not a string.
    """
    if not isinstance(text, str):
        raise ConfigurationError(
            field="text",
            value=type(text).__name__,
            rule="redact takes a str",
            fix="decode bytes first, or pass structures to redact_mapping",
        )
    near = _near(payload or {}, text)
    known = _now_known()
    if near or len(text) > SEEN_LENGTH_MAX:
        return redact_with(text, (known.literals, Literals(near)) if near else (known.literals,))
    if (clean := known.seen.get(text)) is None:
        clean = redact_with(text, (known.literals,))
        if len(known.seen) >= SEEN_MAX:
            known.seen.clear()
        known.seen[text] = clean
    return clean


def redact_start(
    text: str,
    payload: Mapping[str, str] | None = None,
    *,
    read: int,
    prepare: Callable[[str], str] = str,
) -> str:
    """Return a text redacted, whole if it has at most `read` characters, and of a longer one what is certain of its beginning.

    A secret across the place where a text is cut is not known for one by its first half. So it is cut at two places, `read` and
    half of that, and what both parts begin with is returned: what is across the cut of the one, the other does not reach or knows
    whole. That goes for secrets shorter than half of `read`; longer literals are looked for in pieces. `prepare` is done to each
    part before it is redacted.
    """
    if len(text) <= read:
        return redact(prepare(text), payload)
    pieces = _pieces(payload or {}, read, is_start=True)
    longer, shorter = (redact(prepare(text[:end]), pieces) for end in (read, read // 2))
    return _REPEATED.sub(r"\1", _common_start(longer, shorter))


def redact_end(text: str, payload: Mapping[str, str] | None = None, *, read: int) -> str:
    """Return a text redacted, whole if it has at most `read` characters, and of a longer one what is certain of its end.

    See `redact_start`. Long literals are taken out before: what stands before them is then read as well.
    """
    if len(text) > read:
        text = _shortened(text, payload or {})
    if len(text) <= read:
        return redact(text, payload)
    pieces = _pieces(payload or {}, read, is_start=False)
    longer, shorter = (redact(text[-length:], pieces)[::-1] for length in (read, read // 2))
    return _REPEATED.sub(r"\1", _common_start(longer, shorter)[::-1])


def _shortened(text: str, literals: Mapping[str, str]) -> str:
    """Replace the longest literals where they stand as they are."""
    for literal in sorted((each for each in literals if len(each) > PIECE), key=len, reverse=True)[
        :SHORTENED_MAX
    ]:
        text = text.replace(literal, literals[literal])
    return text


def _pieces(payload: Mapping[str, str], read: int, *, is_start: bool) -> dict[str, str]:
    """Return literals, the long ones in pieces of the part that can stand in a text of which so much is read."""
    known = _now_known()
    pieces: dict[str, str] = {}
    for literal, mark in (
        *((secret, _SECRET) for secret in (*known.environment.values(), *known.registered)),
        *payload.items(),
    ):
        if len(literal) <= PIECE:
            pieces.setdefault(literal, mark)
            continue
        # Python escapes a quote only in a text that holds both kinds; a piece of it need not hold them.
        is_escaped = "'" in literal and '"' in literal
        for piece in _cut(literal[:read] if is_start else literal[-read:], is_start=is_start):
            pieces.setdefault(piece, mark)
            if is_escaped:
                pieces.setdefault(repr(f"{piece}'\"")[1:-4], mark)
    return pieces


def _cut(text: str, *, is_start: bool) -> Iterator[str]:
    """Yield a long text in pieces, counted from the end that is read for certain.

    What is left for the last two is halved. None is longer than the others: of two values that begin alike, a longer piece of the
    one would be found first, and the rest of the other's piece not at all.
    """
    places = list(range(0, len(text), PIECE))
    places[-1] = (places[-2] + len(text)) // 2
    for start, end in zip(places, [*places[1:], len(text)], strict=True):
        yield text[start:end] if is_start else text[len(text) - end : len(text) - start]


def _common_start(one: str, other: str) -> str:
    """Return what two texts have in common at their beginnings."""
    pairs = zip(one, other, strict=False)
    differs = next((place for place, (mine, theirs) in enumerate(pairs) if mine != theirs), None)
    return min(one, other, key=len) if differs is None else one[:differs]


def _near(payload: Mapping[str, str], text: str) -> dict[str, str]:
    """Return the literals that can stand in a text; of very many, those of the later ones that stand in it as they are."""
    near: dict[str, str] = {}
    for place, (literal, mark) in enumerate(payload.items()):
        if len(literal) <= len(text) + MARGIN and (place < FORMS_MAX or literal in text):
            near[literal] = mark
    return near


def redact_mapping(value: object, payload: Mapping[str, str] | None = None) -> object:
    """Return a structure of the same shape as `value` without secrets; `value` itself is not changed."""
    if not payload:
        literals = (_now_known().literals,)
        return Walk(lambda text: redact_with(text, literals)).value(value)
    return Walk(lambda text: redact(text, payload)).value(value)


def register_secret(value: str) -> None:
    """Hide `value` in every text from now on, also percent-encoded, JSON-escaped or in base64. Safe from any thread.

    Raises:
        ConfigurationError: `value` is not a string of at least four characters; the message does not show it.
    """
    if not isinstance(value, str) or len(value) < LITERAL_MIN:
        size = f"{len(value)} characters" if isinstance(value, str) else type(value).__name__
        raise ConfigurationError(
            field="value",
            value=size,
            rule=f"a secret is a str of at least {LITERAL_MIN} characters",
            fix="register the whole secret; shorter ones would hide ordinary words",
        )
    global _known  # noqa: PLW0603 - replaced whole under the lock; readers see the old set or the new one.
    with _lock:
        if value not in _known.registered:
            _known = _Known(_known.environment, _known.registered | {value})


def _now_known() -> _Known:
    """Return the compiled secrets of this moment."""
    global _known  # noqa: PLW0603 - see register_secret.
    environment = secret_environment()
    known = _known
    if known.environment is not environment:
        with _lock:
            known = _Known(environment, _known.registered)
            _known = known
    return known
