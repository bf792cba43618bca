# SPDX-License-Identifier: Apache-2.0
"""A stored stack, sorted for reading: the frames of our user's own code first, those of libraries after.

The stack is text, redacted when it was written; nothing of it is run, opened or looked up here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_FRAME: Final = re.compile(r'^[ |+-]*File "(?P<path>[^"]*)", line \d+')
_LIBRARY: Final = re.compile(
    r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib(?:64)?[/\\](?:python|pypy)\d|[/\\]python\d+\.zip[/\\]|\\Lib\\|^<frozen "
    r"|[/\\]redrive[/\\](?:core|engine|rules|store|ops|cli|testing)[/\\]"
)
"""Where frames come from that are not our user's; redrive's own are none of theirs either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """The parts of a stack, each outermost first."""

    said: Sequence[str]
    """What the exceptions said, and how one led to the other."""
    own: Sequence[str]
    """Frames of our user's code, each with its line of source."""
    library: Sequence[str]
    """Frames of libraries, the standard library and redrive."""


def stack_of(text: str) -> Stack:
    """Return a traceback in its parts; a text that is none is all said."""
    said: list[str] = []
    own: list[list[str]] = []
    library: list[list[str]] = []
    frame: list[str] | None = None
    for line in text.splitlines():
        if (found := _FRAME.match(line)) is not None:
            frame = [line]
            (library if _LIBRARY.search(found["path"]) else own).append(frame)
        elif frame is not None and line.startswith(("    ", "  |  ", "  [Previous line")):
            frame.append(line)
        else:
            frame = None
            if line.strip() and not line.startswith("Traceback (most recent call last)"):
                said.append(line)
    return Stack(
        said=said, own=["\n".join(each) for each in own], library=["\n".join(each) for each in library]
    )
