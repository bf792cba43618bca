# SPDX-License-Identifier: Apache-2.0
"""Compute the fingerprint of a failure, so that dead letters with the same cause form one group.

    fingerprint = version : hash(stage, code, error classes, place, normalised message)

The classes are those of the exception and of the inner exception that a rule classified. The place is in the user's own code:
module and function of each own frame, and the line within the innermost function; recursion counts once, however deep. Library
frames are left out, so that a new version of a library does not change the fingerprint. Without any own frame, the functions of
the libraries are used, without lines; this includes an application installed as a wheel, which looks like a library by its path.
`core.normalise` removes from the message what differs between occurrences. The version comes first, so that a new algorithm
never regroups old letters.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from msgspec import Struct

from redrive.core.failure import Failure
from redrive.core.normalise import normalise

VERSION: Final = "v1"
FRAMES_MAX: Final = 50
_OUTERMOST_MAX: Final = 10
_PERIOD_MAX: Final = 4
"""How many functions may call each other in a cycle and still count as one recursion."""
_PLACES_MAX: Final = 256
"""Size of the cache of places; frames contain only names of the program, never values."""
_LIBRARY: Final = re.compile(
    r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib(?:64)?[/\\](?:python|pypy)\d|[/\\]python\d+\.zip[/\\]|\\Lib\\|^<frozen "
)
_OWN_PACKAGE: Final = "redrive."
_ROOT: Final = "BaseException"
_QUOTING_NAMES: Final = frozenset({"AttributeError", "ImportError", "KeyError", "NameError", "TypeError"})
"""Types whose messages quote names from the program rather than values."""


class Frame(Struct, frozen=True):
    """One frame of a stack, reduced to what stays the same between occurrences."""

    module: str
    function: str
    line: int
    """Counted from the start of the function, so that edits above it do not matter."""
    is_own: bool
    """True for the user's code, False for libraries, the standard library and redrive itself."""


def frames_of(exc: BaseException) -> tuple[Frame, ...]:
    """Return the frames of an exception's traceback, outermost first; a very deep one loses its middle."""
    frames: list[Frame] = []
    trace = exc.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        module = trace.tb_frame.f_globals.get("__name__")
        name = module if isinstance(module, str) else code.co_filename
        is_own = not (name.startswith(_OWN_PACKAGE) or _is_library(code.co_filename))
        frames.append(Frame(name, code.co_qualname, trace.tb_lineno - code.co_firstlineno, is_own))
        trace = trace.tb_next
    if len(frames) > FRAMES_MAX:
        frames[_OUTERMOST_MAX : _OUTERMOST_MAX - FRAMES_MAX] = []
    return tuple(frames)


def fingerprint(failure: Failure, stage: str, frames: Sequence[Frame] = ()) -> str:
    """Return the fingerprint of a failure in a stage, such as `v1:3f2a90c1d4e5b687`."""
    raised, known = _classes(failure.lineage)
    quotes_names = failure.exception in _QUOTING_NAMES or not _QUOTING_NAMES.isdisjoint(raised)
    parts = [
        stage,
        failure.code,
        failure.exception,
        raised[0] if raised else "",
        known,
        failure.provider_code or "",
        str(failure.http_status or ""),
    ]
    parts += _place(tuple(frames))
    parts.append(normalise(failure.message, quotes_names=quotes_names))
    digest = hashlib.blake2b("\x1f".join(parts).encode("utf-8", "surrogatepass"), digest_size=8)
    return f"{VERSION}:{digest.hexdigest()}"


@lru_cache(maxsize=2_048)
def _is_library(filename: str) -> bool:
    return _LIBRARY.search(filename) is not None


def _classes(lineage: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """Split a lineage into the exception's own and the class of the inner exception that a rule classified, if any.

    An exception's own lineage ends with BaseException; the lineage of the inner one (of a group: the worst member's) follows.
    """
    if _ROOT not in lineage:
        return lineage, ""
    end = lineage.index(_ROOT) + 1
    return lineage[:end], lineage[end] if end < len(lineage) else ""


@lru_cache(maxsize=_PLACES_MAX)
def _place(frames: tuple[Frame, ...]) -> tuple[str, ...]:
    own = [frame for frame in frames if frame.is_own]
    if not own:
        return tuple(_unrepeated([f"{frame.module}.{frame.function}" for frame in frames]))
    return (*_unrepeated([f"{frame.module}.{frame.function}" for frame in own]), str(own[-1].line))


def _unrepeated(names: list[str]) -> list[str]:
    """Return the names with repeated sequences reduced to one, so that a deeper recursion is the same place."""
    kept: list[str] = []
    for name in names:
        # A repeated sequence ends in the same name as the sequence before it.
        recent = kept[-_PERIOD_MAX:]
        kept.append(name)
        if name not in recent:
            continue
        for period in range(1, len(recent) + 1):
            if recent[-period] == name and kept[-period:] == kept[-2 * period : -period]:
                del kept[-period:]
                break
    return kept
