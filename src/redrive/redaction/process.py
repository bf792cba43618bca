# SPDX-License-Identifier: Apache-2.0
"""The redactor of this process: the pure one, plus the secrets that the process itself knows.

Those are the secret-looking environment variables, read at every call, and what `register_secret` was given. Everything
that leaves the process in a dead letter, a log line or an export goes through here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Lock
from typing import Final, Protocol

from redrive.errors import ConfigurationError
from redrive.redaction.environment import secret_environment
from redrive.redaction.literals.prefilter import Sought
from redrive.redaction.literals.search import LITERAL_MIN, Literals
from redrive.redaction.literals.truncation import PIECE, certain, closed_from, common_start, pieces_of
from redrive.redaction.placeholders import placeholder
from redrive.redaction.structure import Walk
from redrive.redaction.text import redact_with

__all__ = ["redact", "redact_end", "redact_mapping", "redact_start", "register_secret"]

_SECRET: Final = placeholder("secret")
_PASSED: Final = placeholder("unjudged")

SEEN_MAX: Final = 1_000
SEEN_LENGTH_MAX: Final = 2_048
MARGIN: Final = 4
"""No form of a literal, base64 included, is shorter than the literal by more than this; a longer one cannot stand in a text."""

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
    return _redacted(text, _sought(payload).near(text, len(text) + MARGIN) if payload else {})


def _sought(payload: Mapping[str, str]) -> Sought:
    return payload if isinstance(payload, Sought) else Sought(payload)


def _redacted(text: str, near: Mapping[str, str]) -> str:
    """Return a text without its secrets and without the literals that can stand in it."""
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
    redacted = _in_parts(payload or {}, read, is_start=True)
    longer, shorter = redacted(prepare(text[:read])), redacted(prepare(text[: read // 2]), is_shorter=True)
    return _REPEATED.sub(r"\1", common_start(longer, shorter))


def redact_end(text: str, payload: Mapping[str, str] | None = None, *, read: int) -> str:
    """Return a text redacted, whole if it has at most `read` characters, and of a longer one what is certain of its end.

    See `redact_start`. Long literals are taken out before: what stands before them is then read as well. What may be the rest of
    some other secret, one that began before both cuts, is passed over.
    """
    if len(text) > read:
        text = _shortened(text, payload or {})
    if len(text) <= read:
        return redact(text, payload)
    redacted = _in_parts(payload or {}, read, is_start=False)
    since, cut = len(text) - read, len(text) - read // 2
    start = closed_from(text, since, cut, redact)
    longer, shorter = redacted(text[since:]), redacted(text[start:], is_shorter=start == cut)
    told = _REPEATED.sub(r"\1", common_start(longer[::-1], shorter[::-1])[::-1])
    return told if start == cut else f"{_PASSED}{told}"


def _shortened(text: str, literals: Mapping[str, str]) -> str:
    """Replace the longest literals where they stand as they are."""
    long = _sought(literals).divided(PIECE)[1]
    for literal in sorted(long, key=len, reverse=True)[:SHORTENED_MAX]:
        text = text.replace(literal, long[literal])
    return text


class _Parts(Protocol):
    def __call__(self, part: str, *, is_shorter: bool = False) -> str: ...


def _in_parts(payload: Mapping[str, str], read: int, *, is_start: bool) -> _Parts:
    """Return what redacts the parts of a text that is cut: in them long literals are looked for in pieces."""
    known, sought = _now_known(), _sought(payload)
    short, long = sought.divided(PIECE)
    secrets = (each for each in (*known.environment.values(), *known.registered) if len(each) > PIECE)
    cut = (*((secret, _SECRET) for secret in secrets), *long.items())
    pieces = Sought(pieces_of(cut, read, is_start=is_start))

    def redacted(part: str, *, is_shorter: bool = False) -> str:
        longest = len(part) + MARGIN
        near = {**pieces.near(part, longest), **short.near(part, longest), **sought.lines_near(part)}
        told = _redacted(part, near)
        return certain(told, is_start=is_start) if is_shorter and cut else told

    return redacted


def redact_mapping(value: object, payload: Mapping[str, str] | None = None) -> object:
    """Return a structure of the same shape as `value` without secrets; `value` itself is not changed."""
    if not payload:
        literals = (_now_known().literals,)
        return Walk(lambda text: redact_with(text, literals)).value(value)
    sought = _sought(payload)
    return Walk(lambda text: redact(text, sought)).value(value)


def register_secret(value: str) -> None:
    """Hide `value` in every text from now on, also percent-encoded, JSON-escaped or in base64. Safe from any thread.

    Raises:
        ConfigurationError: `value` is not a string of at least four characters, or of no use; the message does not show it.
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
        is_taken = value in _known.registered
        with suppress(UnicodeError):
            _known = _known if is_taken else _Known(_known.environment, _known.registered | {value})
            is_taken = True
    if not is_taken:
        # Raised apart from the error that it stands for: that of a codec holds what could not be encoded.
        raise ConfigurationError(
            field="value",
            value=f"{len(value)} characters",
            rule="a secret is text that can be encoded",
            fix="decode it with the encoding that it was written in, and register that",
        )


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
