# SPDX-License-Identifier: Apache-2.0
"""The passes over a text, in their order.

Blocks, tokens, URLs and command lines come first, because they have formats of their own; then values next to secret names; then
personal data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from redrive.redaction.formats.pem import redact_private_keys
from redrive.redaction.formats.token_search import redact_tokens
from redrive.redaction.formats.urls import redact_urls
from redrive.redaction.named.assignments import redact_assignments
from redrive.redaction.named.blocks import BLOCKS
from redrive.redaction.named.command_lines import redact_commands
from redrive.redaction.personal.search import redact_personal
from redrive.redaction.placeholders import Sentinels

_PASSES: Final[tuple[Callable[[str, Sentinels], str], ...]] = (
    redact_private_keys,
    redact_tokens,
    redact_urls,
    redact_commands,
    redact_assignments,
    BLOCKS.redact,
    redact_personal,
)


def apply_passes(text: str, sentinels: Sentinels) -> str:
    """Return the text after every pass, with a sentinel in place of whatever a pass found."""
    for redact in _PASSES:
        text = redact(text, sentinels)
    return text
