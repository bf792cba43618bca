# SPDX-License-Identifier: Apache-2.0
"""Which dead letters are the same trouble: one fingerprint per cause.

    fingerprint = version : hash(stage, code, error class, place, normalised message)

The place is where our user's own code was: module and function of each own frame, and the line within the innermost function.
Frames of libraries are left out, so that their versions may shift lines; if there is no own frame, library functions stand in.
In the message ids, numbers, addresses, dates, quoted values and the like give way to marks. The version goes first, so that a new
algorithm never regroups old letters.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from redrive.core.failure import Failure

VERSION: Final = "v1"
FRAMES_MAX: Final = 50
_MESSAGE_MAX: Final = 2_000
_NORMAL_MAX: Final = 300
_LIBRARY: Final = re.compile(r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib(?:64)?[/\\]python\d|^<frozen ")
_OWN_PACKAGE: Final = "redrive."

_MARKS: Final = re.compile(
    r"""
      (?P<url>\b[a-z][a-z0-9+.-]{1,20}://[^\s'"<>]+)
    | (?P<email>[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+)
    | (?P<uuid>\b[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}\b)
    | (?P<time>\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?)?(?:Z|[+-]\d\d:?\d\d)?)
    | (?P<address>\b0x[0-9a-f]+\b)
    | (?P<ip>\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b)
    | (?P<path>(?<![\w.])(?:[A-Za-z]:)?(?:[/\\][\w.@%+~-]+){2,})
    | (?P<quoted>'[^'\n]{0,200}'|"[^"\n]{0,200}"|`[^`\n]{0,200}`)
    | (?P<id>\b(?=\w*\d)(?:[A-Za-z]+_)?[0-9A-Za-z]{8,}\b)
    | (?P<number>\d+(?:\.\d+)?)
    """,
    re.VERBOSE | re.IGNORECASE,
)
_IDS: Final = frozenset({"uuid", "address", "id", "number"})
"""Kinds that one place of a message may show in turn, so that they share a mark."""
_WORDLIKE: Final = re.compile(r"[A-Za-z_][A-Za-z_.]{0,40}")


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a stack, reduced to what stays the same when the same thing happens again."""

    module: str
    function: str
    line: int
    """Counted from the start of the function, so that edits above it do not matter."""
    is_own: bool
    """True for the user's code, False for libraries, the standard library and redrive itself."""


def frames_of(exc: BaseException) -> tuple[Frame, ...]:
    """Return the frames of an exception's traceback, outermost first; of a very deep one the innermost."""
    frames: list[Frame] = []
    trace = exc.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        module = trace.tb_frame.f_globals.get("__name__")
        name = module if isinstance(module, str) else code.co_filename
        is_own = not (name.startswith(_OWN_PACKAGE) or _LIBRARY.search(code.co_filename))
        frames.append(Frame(name, code.co_qualname, trace.tb_lineno - code.co_firstlineno, is_own))
        trace = trace.tb_next
    return tuple(frames[-FRAMES_MAX:])


def fingerprint(failure: Failure, stage: str, frames: Sequence[Frame] = ()) -> str:
    """Return the fingerprint of a failure in a stage, such as `v1:3f2a90c1d4e5b687`."""
    parts = [
        stage,
        failure.code,
        failure.error_class,
        failure.provider_code or "",
        str(failure.http_status or ""),
    ]
    parts += _place(frames)
    parts.append(normalise(failure.message))
    digest = hashlib.blake2b("\x1f".join(parts).encode("utf-8", "surrogatepass"), digest_size=8)
    return f"{VERSION}:{digest.hexdigest()}"


def normalise(message: str) -> str:
    """Return the message with everything that differs from one occurrence to the next replaced by marks."""
    text = _MARKS.sub(_mark, message[:_MESSAGE_MAX])
    return " ".join(text.split())[:_NORMAL_MAX]


def _place(frames: Sequence[Frame]) -> list[str]:
    own = [frame for frame in frames if frame.is_own]
    if not own:
        return [f"{frame.module}.{frame.function}" for frame in frames]
    return [f"{frame.module}.{frame.function}" for frame in own] + [str(own[-1].line)]


def _mark(match: re.Match[str]) -> str:
    kind = match.lastgroup or ""
    text = match[0]
    if kind == "quoted":
        # A quoted word is most often a name in the program ('NoneType' has no attribute 'id'); anything else is a value.
        return text if _WORDLIKE.fullmatch(text, 1, len(text) - 1) else "<value>"
    if kind == "url":
        scheme, _, rest = text.partition("://")
        host = re.split(r"[/?#:]", rest.rpartition("@")[2], maxsplit=1)[0]
        return f"{scheme}://{host}/<path>"
    return "<id>" if kind in _IDS else f"<{kind}>"
