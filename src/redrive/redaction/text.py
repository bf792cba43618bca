# SPDX-License-Identifier: Apache-2.0
"""Redact a text in rounds until nothing changes.

Each round replaces the known literals first, because they are certain, then applies the passes. The last round changes nothing,
so redacting the result again changes nothing either: it is a fixed point by construction, for any text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from redrive.redaction.literals.search import Literals
from redrive.redaction.placeholders import Sentinels, placeholder
from redrive.redaction.structure import StructureRedactor
from redrive.redaction.tracebacks import apply_passes_around_frames

ROUNDS_MAX: Final = 8
"""A text that still changes after this many rounds was built to do so; it is replaced as a whole."""


def redact_text(text: str, literals: Mapping[str, str] | Literals | None = None) -> str:
    """Return `text` with every secret replaced by a placeholder.

    `literals` maps known secrets to their placeholders; pass a compiled `Literals` to search many texts. Redacting the
    result again, with the same literals, returns it unchanged.
    """
    return redact_with(text, () if literals is None else (compiled(literals),))


def redact_value(value: object, literals: Mapping[str, str] | Literals | None = None) -> object:
    """Return a structure of the same shape as `value` with every secret in it replaced; `value` is not changed."""
    known = () if literals is None else (compiled(literals),)
    return StructureRedactor(lambda text: redact_with(text, known)).value(value)


def compiled(literals: Mapping[str, str] | Literals) -> Literals:
    """Return `literals` compiled."""
    return literals if isinstance(literals, Literals) else Literals(literals)


def redact_with(text: str, known: tuple[Literals, ...]) -> str:
    """Return `text` redacted, with several sets of literals, the first one first."""
    for _ in range(ROUNDS_MAX):
        sentinels = Sentinels(text)
        redacted = text
        for literals in known:
            redacted = literals.replace(redacted, sentinels)
        redacted = apply_passes_around_frames(sentinels.hide(redacted), sentinels)
        if redacted == text:
            return text
        text = redacted
    return placeholder("unstable")
