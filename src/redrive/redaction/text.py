# SPDX-License-Identifier: Apache-2.0
"""Redact a text in rounds of passes until nothing changes.

Each round replaces the known literals first, because they are certain, then applies the passes: blocks, tokens, URLs and command
lines, because they have formats of their own; then values next to secret names; then personal data. The last round changes
nothing, so redacting the result again changes nothing either: it is a fixed point by construction, for any text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from redrive.redaction.formats.delimited import redact_private_keys, redact_urls
from redrive.redaction.formats.token_search import redact_tokens
from redrive.redaction.literals.search import Literals
from redrive.redaction.named.assignments import redact_assignments
from redrive.redaction.named.surroundings import BLOCKS, redact_commands
from redrive.redaction.personal.search import redact_personal
from redrive.redaction.placeholders import Sentinels, placeholder
from redrive.redaction.structure import StructureRedactor

ROUNDS_MAX: Final = 8
"""A text that still changes after this many rounds was built to do so; it is replaced as a whole."""


def redact_text(text: str, *known: Literals) -> str:
    """Return `text` with every secret replaced by a placeholder, the `known` ones first, in the order of their sets.

    Redacting the result again, with the same literals, returns it unchanged.
    """
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


def redact_value(value: object) -> object:
    """Return a structure of the same shape as `value` with every secret in it replaced; `value` is not changed."""
    return StructureRedactor(redact_text).value(value)


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


TEXT_MAX: Final = 16_384
"""Longer texts are redacted as a whole; one of this size cannot reach the limit on names (`DECIDED_MAX`)."""

FRAMES_MIN: Final = 512
"""Frames with fewer characters cost no more to redact than to look up."""

MARGIN: Final = 200
"""How much of the frames is redacted with the text next to them: more than a search looks back beyond its line."""

PART_MAX: Final = 2_048
"""The text next to the frames is cached up to this length."""

KEPT_MAX: Final = 256
"""Size of the caches of stacks and of texts next to them; when one is full, it is cleared."""

_TITLE: Final = "Traceback (most recent call last):\n"
_NEXT_FRAME: Final = '\n  File "'
_FRAMES: Final = re.compile(
    re.escape(_TITLE) + r'(?>(?:  File "[^"\n]*+", line [0-9]++, in [^\n]++\n'
    r"(?:  (?:\[Previous line|  [ ]*+[^\s])[^\n]*+\n)*)+)"
)
_FAR: Final = (
    *(holder + end for holder in ("ecrets", "redentials", "asswords") for end in (":", "'", '"')),
    *("PRIVATE KEY", "Private-Lines: ", "$ANSIBLE_VAULT;", "<<", "\\\n"),
    *(".pgpass", ":5432:", ":*:", "%40", "%3A%2F%2F", "%3a%2f%2f", "elegram", "sudo -S", "-U"),
    *("2A", "2B", " 2a ", " 2b "),
)
"""Without one of these, no match spans several lines, and no search depends on a word elsewhere."""


class _Frames(NamedTuple):
    """The position of known frames, and of the parts at both ends that are redacted again."""

    start: int
    end: int
    head: int
    """The end of the part that is redacted with the text before the frames."""
    tail: int
    """The start of the part that is redacted with the text after the frames."""


# Frames by their hash; the text is kept only if it is clean, never for frames with a secret.
_frames: dict[int, str | None] = {}
# Clean texts next to frames: constant messages, and messages that were redacted before.
_parts: set[str] = set()


def apply_passes_around_frames(text: str, sentinels: Sentinels) -> str:
    """Return the text after every pass, with placeholders restored, without redacting known frames again.

    The frames of a stack are the same in every letter of a group; only the message after them differs. Frames without any secret
    are cached; when they occur again, only the text around them is redacted, together with the adjacent frames. The result is the
    same as for the whole text, because no search crosses a line that names a file:

    - A search looks back at most two lines, or `MARGIN` characters; that much of the frames is included.
    - A search looks ahead to the end of its line, or over white space to the next one. The few that span more lines, or depend on a
      word elsewhere, need one of `_FAR`; if the text contains one, all of it is redacted.
    - What a cheap test looks for before a search is part of what that search finds, so a match elsewhere in the text adds nothing.

    If a pass replaced something in the adjacent frames, or the text has another form, all of it is redacted.
    """
    known = _known(text) if FRAMES_MIN < len(text) <= TEXT_MAX else ()
    if not known:
        return sentinels.show(apply_passes(text, sentinels))
    pieces: list[str] = []
    done = tail = 0
    for frames in (*known, _Frames(len(text), len(text), len(text), len(text))):
        if frames.head > done:
            clean = _apply_passes(text[tail : frames.head], sentinels)
            before, after = text[tail:done], text[frames.start : frames.head]
            if clean is None or not (clean.startswith(before) and clean.endswith(after)):
                return sentinels.show(apply_passes(text, sentinels))
            # Frames contain no sentinels, so only the text between them has any to restore.
            pieces.append(sentinels.show(clean[len(before) : len(clean) - len(after)]))
        pieces.append(text[frames.start : frames.end])
        done, tail = frames.end, frames.tail
    return "".join(pieces)


def _apply_passes(part: str, sentinels: Sentinels) -> str | None:
    """Return a part of a text after every pass; None when it cannot be redacted on its own."""
    if part in _parts:
        return part
    if _is_far(part):
        return None
    clean = apply_passes(part, sentinels)
    if clean == part and len(part) <= PART_MAX:
        if len(_parts) >= KEPT_MAX:
            _parts.clear()
        _parts.add(part)
    return clean


def _known(text: str) -> list[_Frames]:
    """Return the known clean frames of every traceback in the text, without the innermost frame of each.

    The innermost frame often shows the line that builds the message.
    """
    known: list[_Frames] = []
    start = text.find(_TITLE)
    while start >= 0:
        following = text.find(_TITLE, start + 1)
        end = text.rfind(_NEXT_FRAME, start, None if following < 0 else following) + 1
        is_line = start == 0 or text[start - 1] == "\n"
        if is_line and end - start >= FRAMES_MIN and _is_clean(text[start:end]):
            # Frames at the start of a text have nothing before them.
            head = text.find(_NEXT_FRAME, start + MARGIN, end) + 1 or end
            tail = text.rfind(_NEXT_FRAME, start, end - MARGIN) + 1 or start
            known.append(_Frames(start, end, head if start else 0, tail))
        start = following
    return known


def _is_clean(frames: str) -> bool:
    key = hash(frames)
    kept = _frames.get(key, "")
    if kept == frames:
        return True
    if kept is None:
        return False
    is_clean = (
        frames.isascii()
        and _FRAMES.fullmatch(frames) is not None
        and not _is_far(frames)
        and apply_passes(frames, Sentinels(frames)) == frames
    )
    if len(_frames) >= KEPT_MAX:
        _frames.clear()
    _frames[key] = frames if is_clean else None
    return is_clean


def _is_far(text: str) -> bool:
    return any(map(text.__contains__, _FAR))
