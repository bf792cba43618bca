# SPDX-License-Identifier: Apache-2.0
"""The passes, in their order.

Blocks, tokens, URLs and command lines go first, which have shapes of their own; then values next to telling names; then personal
facts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from redrive.core.redact.assignments import redact_assignments
from redrive.core.redact.blocks import redact_blocks
from redrive.core.redact.commands import redact_commands
from redrive.core.redact.marks import Marks
from redrive.core.redact.pem import redact_private_keys
from redrive.core.redact.personal import redact_personal
from redrive.core.redact.runs import redact_tokens
from redrive.core.redact.urls import redact_urls

_PASSES: Final[tuple[Callable[[str, Marks], str], ...]] = (
    redact_private_keys,
    redact_tokens,
    redact_urls,
    redact_commands,
    redact_assignments,
    redact_blocks,
    redact_personal,
)


def passed(text: str, marks: Marks) -> str:
    """Return the text after every pass, with a mark in place of whatever one of them found."""
    for redact in _PASSES:
        text = redact(text, marks)
    return text
