# SPDX-License-Identifier: Apache-2.0
"""The frames of a Python traceback, read once for all the letters that they come with.

The frames of a stack are the same in every letter of a group; what differs is the message, and it stands behind them. Frames in
which the passes find nothing are kept, and when they come again only the text around them is read, together with the frames next to
it. That is the same as reading it all, because no search gets past a line that names a file:

- A search looks back at most two lines, or `MARGIN` characters, and that much of the frames is read again.
- A search looks ahead to the end of its line, or over white space to the next one. The few that go on from line to line, or that a
  word far away sets off, need one of `_FAR`; with one of those anywhere the whole text is read.
- Whatever a cheap test looks for before a search is part of what that search finds, so a test that passes elsewhere in the text
  finds nothing more here.

Where a mark was put into the frames next to it, the whole text is read as well. Texts of other forms are always read whole.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from redrive.redaction.passes import passed
from redrive.redaction.placeholders import Marks

TEXT_MAX: Final = 16_384
"""Longer texts are read whole; one of this size cannot hold so many names that the rest of it would be hidden."""

FRAMES_MIN: Final = 512
"""Fewer frames than this many characters cost no more to read than to look up."""

MARGIN: Final = 200
"""So much of the frames is read again with what stands next to them: more than a search looks back beyond its line."""

PART_MAX: Final = 2_048
"""What stands next to the frames is kept up to this length."""

KEPT_MAX: Final = 256
"""So many stacks are kept, and so many parts next to them; then they are forgotten, and judged anew."""

_TITLE: Final = "Traceback (most recent call last):\n"
_NEXT_FRAME: Final = '\n  File "'
_FRAMES: Final = re.compile(
    re.escape(_TITLE) + r'(?>(?:  File "[^"\n]*+", line [0-9]++, in [^\n]++\n'
    r"(?:  (?:\[Previous line|  [ ]*+[^\s])[^\n]*+\n)*)+)"
)
_HOLDERS: Final = tuple(
    holder + end for holder in ("ecrets", "redentials", "asswords") for end in (":", "'", '"')
)
_FAR: Final = (
    *("PRIVATE KEY", "Private-Lines: ", "<<", "\\\n", *_HOLDERS),
    *(".pgpass", ":5432:", ":*:", "%40", "%3A%2F%2F", "%3a%2f%2f", "elegram", "sudo -S", "-U"),
    *("2A", "2B", " 2a ", " 2b "),
)
"""Without one of these nothing spans several lines, and nothing is looked for only because of a word elsewhere."""


class _Frames(NamedTuple):
    """Where known frames stand, and the parts at both ends that are read again."""

    start: int
    end: int
    head: int
    """Where the part ends that is read again with what stands before the frames."""
    tail: int
    """Where the part starts that is read again with what stands behind them."""


# Frames are found by their hash, and kept as text only where that is clean: of frames with a secret nothing else is known.
_frames: dict[int, str | None] = {}
# What stands next to frames and is clean as well: messages that are always the same, and those in which a secret was hidden before.
_parts: set[str] = set()


def passed_over_frames(text: str, marks: Marks) -> str:
    """Return the text after every pass, with its placeholders shown, without reading known frames again."""
    known = _known(text) if FRAMES_MIN < len(text) <= TEXT_MAX else ()
    if not known:
        return marks.show(passed(text, marks))
    pieces: list[str] = []
    done = tail = 0
    for frames in (*known, _Frames(len(text), len(text), len(text), len(text))):
        if frames.head > done:
            part = text[tail : frames.head]
            clean = _passed(part, marks)
            before, after = text[tail:done], text[frames.start : frames.head]
            if clean is None or not (clean.startswith(before) and clean.endswith(after)):
                return marks.show(passed(text, marks))
            # Frames hold no marks, so that only what stands between them has any to show.
            pieces.append(marks.show(clean[len(before) : len(clean) - len(after)]))
        pieces.append(text[frames.start : frames.end])
        done, tail = frames.end, frames.tail
    return "".join(pieces)


def _passed(part: str, marks: Marks) -> str | None:
    """Return a part of a text after every pass; None when it cannot be read apart."""
    if part in _parts:
        return part
    if _is_far(part):
        return None
    clean = passed(part, marks)
    if clean == part and len(part) <= PART_MAX:
        if len(_parts) >= KEPT_MAX:
            _parts.clear()
        _parts.add(part)
    return clean


def _known(text: str) -> list[_Frames]:
    """Return the frames of every traceback in the text that are known to be clean, without the innermost one of each.

    That one often shows the line which put the message together.
    """
    known: list[_Frames] = []
    start = text.find(_TITLE)
    while start >= 0:
        following = text.find(_TITLE, start + 1)
        end = text.rfind(_NEXT_FRAME, start, None if following < 0 else following) + 1
        is_line = start == 0 or text[start - 1] == "\n"
        if is_line and end - start >= FRAMES_MIN and _is_clean(text[start:end]):
            # Frames that a text starts with have nothing before them to be read with.
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
        and passed(frames, Marks(frames)) == frames
    )
    if len(_frames) >= KEPT_MAX:
        _frames.clear()
    _frames[key] = frames if is_clean else None
    return is_clean


def _is_far(text: str) -> bool:
    return any(map(text.__contains__, _FAR))
