# SPDX-License-Identifier: Apache-2.0
"""The redactor of this process: the pure redactor plus the secrets that the process knows.

Those are the secrets in the environment, that is values of variables with a secret name and passwords in URLs, read at every call,
and the values passed to `register_secret`. Everything that leaves the process in a dead letter, a log line or an export goes
through here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Lock
from types import MappingProxyType
from typing import Final, cast, overload
from urllib.parse import unquote

from redrive.errors import ConfigurationError
from redrive.redaction.literals.prefilter import LiteralIndex
from redrive.redaction.literals.search import LITERAL_MIN, Literals
from redrive.redaction.literals.truncation import PIECE, certain, closed_from, common_start, pieces_of
from redrive.redaction.named.names import meaning_of_name, words_of
from redrive.redaction.named.values import is_guarded, is_inert, is_random
from redrive.redaction.placeholders import placeholder
from redrive.redaction.structure import StructureRedactor
from redrive.redaction.text import redact_text

SECRET_MIN: Final = 8
"""Shorter values of variables with a secret name, unless mixed, are not hidden: that would hide ordinary words everywhere."""

# A URL without user information; one with it is a secret if the name is.
_PLAIN_URL: Final = re.compile(r"[A-Za-z][\w+.-]{1,30}://[^\s@;]*")
_URL_PASSWORD: Final = re.compile(
    r"[a-z][a-z0-9+.-]{1,30}://[^\s/?#@:]{0,128}:([^\s]{1,512})@[^\s@/]", re.IGNORECASE
)
_PATH: Final = re.compile(r"(?:[A-Za-z]:[\\/]|~?/|\.{1,2}/)[\w.@ \\/:-]*")
_NUMBER: Final = re.compile(r"[+-]?[0-9][0-9_.,:]*")
_COMMON_WORDS: Final = frozenset(
    "postgres password postgresql rabbitmq localhost development production staging disabled required username default"
    " internal external anonymous bearer testing example optional database".split()
)

_last_snapshot: tuple[Mapping[object, object], Mapping[str, str]] = ({}, MappingProxyType({}))
"""The content of the environment, and the secrets found in it."""


def secret_environment() -> Mapping[str, str]:
    """Return the secrets in the environment now, by the name of their variable.

    A secret is the value of a variable with a secret name, or the password inside a URL; not a boolean, number, path, common
    word or short value. Returns the same mapping as long as nothing has changed.
    """
    global _last_snapshot  # noqa: PLW0603 - replaced as a whole, so a thread sees the old snapshot or the new one, never a mixture.
    # Comparing the raw dictionary behind os.environ needs no decoding.
    raw = cast("Mapping[object, object]", getattr(os.environ, "_data", os.environ))
    seen, known = _last_snapshot
    if seen == raw:
        return known
    before = dict(raw)
    found = {name: _secret_in(name, value) for name, value in os.environ.items()}
    known = MappingProxyType({name: secret for name, secret in found.items() if secret is not None})
    _last_snapshot = (before, known)
    return known


def _secret_in(name: str, value: str) -> str | None:
    """Return the secret in a variable's value; None when there is none."""
    if len(value) < (6 if is_guarded(value) else SECRET_MIN):
        return None
    url = _URL_PASSWORD.search(value)
    if url:
        password = unquote(url[1])
        return password if len(password) >= SECRET_MIN and not _is_harmless(password) else None
    meaning = meaning_of_name(name)
    if meaning is None or _PLAIN_URL.fullmatch(value) or _is_harmless(value):
        return None
    return value if meaning.certain or is_random(value) or _is_key(name, value) else None


def _is_key(name: str, value: str) -> bool:
    """Return whether a variable with an uncertain name contains a document or, as in `MY_KEY`, one long or mixed word."""
    if value.startswith('{"'):
        return True
    is_named = words_of(name)[-1] in ("key", "keys", "auth")
    is_word = len(value) >= SECRET_MIN and not re.search(r"\s", value)
    return is_named and is_word and (len(value) >= 12 or is_guarded(value))


def _is_harmless(value: str) -> bool:
    # Braces around plain text are a template; around quotes they are a document.
    if value.lower() in _COMMON_WORDS or (is_inert(value) and not value.startswith('{"')):
        return True
    return bool(_NUMBER.fullmatch(value) or _PATH.fullmatch(value))


__all__ = ["redact", "redact_end", "redact_mapping", "redact_start", "register_secret"]

_SECRET: Final = placeholder("secret")

SEEN_MAX: Final = 1_000
SEEN_LENGTH_MAX: Final = 2_048
MARGIN: Final = 4
"""No encoding of a literal is shorter than the literal by more than this; a longer literal cannot occur in a text."""

_REPEATED: Final = re.compile(r"(<(?:payload|redacted):[^<>]*>)\1+")


class _Known:
    """The compiled secrets of the process, and what they were compiled from."""

    __slots__ = ("environment", "literals", "registered", "seen")

    def __init__(self, environment: Mapping[str, str], registered: frozenset[str]) -> None:
        self.environment = environment
        self.registered = registered
        self.literals = Literals(dict.fromkeys((*environment.values(), *registered), _SECRET))
        self.seen: dict[str, str] = {}
        """Short texts and their results: the same failure is redacted again and again."""


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
    return _redacted(text, _indexed(payload).candidates(text, len(text) + MARGIN) if payload else {})


def _indexed(payload: Mapping[str, str]) -> LiteralIndex:
    return payload if isinstance(payload, LiteralIndex) else LiteralIndex(payload)


def _redacted(text: str, candidates: Mapping[str, str]) -> str:
    """Return a text without its secrets and without the given literals."""
    known = _now_known()
    if candidates:
        found = candidates.compiled if isinstance(candidates, LiteralIndex) else Literals(candidates)
        return redact_text(text, known.literals, found)
    if len(text) > SEEN_LENGTH_MAX:
        return redact_text(text, known.literals)
    if (clean := known.seen.get(text)) is None:
        clean = redact_text(text, known.literals)
        if len(known.seen) >= SEEN_MAX:
            known.seen.clear()
        known.seen[text] = clean
    return clean


def redact_start(
    text: str, payload: Mapping[str, str] | None = None, *, read: int, prepare: Callable[[str], str] = str
) -> str:
    """Redact a text of at most `read` characters as a whole; of a longer one, return the redacted beginning that is certain.

    Half a secret at a cut is not recognised. So the text is cut at two places, `read` and half of that, and the common beginning
    of both redacted parts is returned: a secret across one cut is either whole in the other part or beyond its end. That works
    for secrets shorter than half of `read`; longer literals are searched in pieces. `prepare` is applied to each part first.
    """
    if len(text) <= read:
        return redact(prepare(text), payload)
    longer, shorter = _in_parts(payload or {}, read, is_start=True)
    start = common_start(longer(prepare(text[:read])), shorter(prepare(text[: read // 2])))
    return _REPEATED.sub(r"\1", start)


def redact_end(text: str, payload: Mapping[str, str] | None = None, *, read: int) -> str:
    """Redact a text of at most `read` characters as a whole; of a longer one, return the redacted end that is certain.

    See `redact_start`. Long literals are replaced first, so that the text before them is covered as well. A possible rest of a
    secret that began before both cuts is skipped.
    """
    if len(text) > read:
        text = _shortened(text, payload or {})
    if len(text) <= read:
        return redact(text, payload)
    longer, shorter = _in_parts(payload or {}, read, is_start=False)
    since, cut = len(text) - read, len(text) - read // 2
    start = closed_from(text, since, cut, redact)
    rest = shorter(text[start:]) if start == cut else longer(text[start:])
    result = _REPEATED.sub(r"\1", common_start(longer(text[since:])[::-1], rest[::-1])[::-1])
    return result if start == cut else f"{placeholder('unjudged')}{result}"


def _shortened(text: str, literals: Mapping[str, str]) -> str:
    """Replace the 64 longest literals where they occur unencoded."""
    long = _indexed(literals).divided[1]
    for literal in sorted(long, key=len, reverse=True)[:64]:
        text = text.replace(literal, long[literal])
    return text


def _in_parts(
    payload: Mapping[str, str], read: int, *, is_start: bool
) -> tuple[Callable[[str], str], Callable[[str], str]]:
    """Return the functions that redact the longer and the shorter part of a text, searching long literals in pieces."""
    known, sought = _now_known(), _indexed(payload)
    short, long = sought.divided
    secrets = (each for each in (*known.environment.values(), *known.registered) if len(each) > PIECE)
    cut = (*((secret, _SECRET) for secret in secrets), *long.items())
    pieces = LiteralIndex(pieces_of(cut, read, is_start=is_start))

    def redacted(part: str) -> str:
        longest = len(part) + MARGIN
        whole = short.candidates(part, longest) | sought.line_candidates(part)
        return _redacted(part, pieces.candidates(part, longest) | whole)

    return redacted, lambda part: certain(redacted(part), is_start=is_start) if cut else redacted(part)


@overload
def redact_mapping(
    value: Mapping[str, object], payload: Mapping[str, str] | None = None
) -> dict[str, object]: ...
@overload
def redact_mapping(value: object, payload: Mapping[str, str] | None = None) -> object: ...
def redact_mapping(value: object, payload: Mapping[str, str] | None = None) -> object:
    """Return a structure of the same shape as `value` without secrets; `value` is not changed."""
    if not payload:
        # Not by `redact`: the values of a structure would fill the cache of messages.
        literals = _now_known().literals
        return StructureRedactor(lambda text: redact_text(text, literals)).value(value)
    sought = _indexed(payload)
    return StructureRedactor(lambda text: redact(text, sought)).value(value)


def register_secret(value: str) -> None:
    """Hide `value` in every text from now on, also percent-encoded, JSON-escaped or in base64. Thread-safe.

    Raises:
        ConfigurationError: `value` is not a string of at least four characters, or cannot be encoded; the message does not
            contain it.
    """
    if not isinstance(value, str) or len(value) < LITERAL_MIN:
        size = f"{len(value)} characters" if isinstance(value, str) else type(value).__name__
        raise ConfigurationError(
            field="value",
            value=size,
            rule=f"a secret is a str of at least {LITERAL_MIN} characters",
            fix="register the whole secret; shorter ones would hide ordinary words",
        )
    global _known  # noqa: PLW0603 - replaced as a whole under the lock; readers see the old set or the new one.
    with _lock:
        is_taken = value in _known.registered
        with suppress(UnicodeError):
            _known = _known if is_taken else _Known(_known.environment, _known.registered | {value})
            is_taken = True
    if not is_taken:
        # Raised outside the handler: the codec's error contains the value.
        raise ConfigurationError(
            field="value",
            value=f"{len(value)} characters",
            rule="a secret is text that can be encoded",
            fix="decode it with the encoding that it was written in, and register that",
        )


def _now_known() -> _Known:
    """Return the compiled secrets as of now."""
    global _known  # noqa: PLW0603 - see register_secret.
    environment = secret_environment()
    known = _known
    if known.environment is not environment:
        with _lock:
            known = _Known(environment, _known.registered)
            _known = known
    return known
