# SPDX-License-Identifier: Apache-2.0
"""The order of the passes over a text, repeated until nothing changes.

Known literals go first, because nothing is known better; then blocks, tokens, URLs and command lines, which have shapes of
their own; then values next to telling names; then personal facts. A round that changes nothing is the proof that
redacting again would change nothing either: the result is a fixed point by construction, for any text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from redrive.redaction.literals.search import Literals
from redrive.redaction.placeholders import Marks, placeholder
from redrive.redaction.structure import Walk
from redrive.redaction.tracebacks import passed_over_frames

ROUNDS_MAX: Final = 8
"""A text that still changes after this many rounds was made to do so; it is replaced whole."""


def redact_text(text: str, literals: Mapping[str, str] | Literals | None = None) -> str:
    """Return `text` with every secret replaced by a placeholder.

    `literals` maps known secrets to their placeholders; pass a compiled `Literals` to search many texts. Redacting the
    result again, with the same literals, returns it unchanged.
    """
    return redact_with(text, () if literals is None else (compiled(literals),))


def redact_value(value: object, literals: Mapping[str, str] | Literals | None = None) -> object:
    """Return a structure of the same shape as `value` with every secret in it replaced; `value` is not changed."""
    known = () if literals is None else (compiled(literals),)
    return Walk(lambda text: redact_with(text, known)).value(value)


def compiled(literals: Mapping[str, str] | Literals) -> Literals:
    """Return `literals` compiled."""
    return literals if isinstance(literals, Literals) else Literals(literals)


def redact_with(text: str, known: tuple[Literals, ...]) -> str:
    """Return `text` redacted, with several sets of literals, the first one first."""
    for _ in range(ROUNDS_MAX):
        redacted = _round(text, known)
        if redacted == text:
            return text
        text = redacted
    return placeholder("unstable")


def _round(text: str, known: tuple[Literals, ...]) -> str:
    marks = Marks(text)
    work = marks.hide(text)
    for literals in known:
        work = literals.replace(work, marks)
    return passed_over_frames(work, marks)
