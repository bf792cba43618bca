# SPDX-License-Identifier: Apache-2.0
"""The redactor of this process: the pure one, plus the secrets that the process itself knows.

Those are the secret-looking environment variables, read at every call, and what `register_secret` was given. Everything
that leaves the process in a dead letter, a log line or an export goes through here.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Final

from redrive.config import secret_environment
from redrive.core.redact.literals import LITERAL_MIN, Literals
from redrive.core.redact.marks import placeholder
from redrive.core.redact.structure import Walk
from redrive.core.redact.text import redact_with
from redrive.errors import ConfigurationError

__all__ = ["redact", "redact_mapping", "register_secret"]

_SECRET: Final = placeholder("secret")

SEEN_MAX: Final = 1_000
SEEN_LENGTH_MAX: Final = 2_048
FORMS_MAX: Final = 2_000
"""Of so many literals every form is looked for, percent-encoded and in base64; of further ones the plain form."""
MARGIN: Final = 4
"""No form of a literal, base64 included, is shorter than the literal by more than this; a longer one cannot stand in a text."""


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
