# SPDX-License-Identifier: Apache-2.0
"""The traceback of an exception as text, as Python writes it, but with no margin before the members of a group.

Python puts bars before every line that a member of a group says. A value of several lines would then stand in no stack as it is,
and the redactor would not find it. Here the members follow their group under numbered headings instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from traceback import TracebackException
from typing import Final

MEMBERS_MAX: Final = 15
"""So many members of a group are told, and so deep are groups in groups: as many as Python itself shows."""
DEPTH_MAX: Final = 10

_CAUSED: Final = "\nThe above exception was the direct cause of the following exception:\n\n"
_DURING: Final = "\nDuring handling of the above exception, another exception occurred:\n\n"
_RULE: Final = "-" * 16


def stack_of(exc: BaseException) -> str:
    """Return the traceback of an exception with those of its causes and members."""
    return "".join(_chain(TracebackException(type(exc), exc, exc.__traceback__, compact=True), ()))


def _chain(last: TracebackException, places: tuple[int, ...]) -> Iterator[str]:
    """Yield an exception after those that led to it; `places` is its number in each group that it is in."""
    chain: list[tuple[str, TracebackException]] = []
    following: TracebackException | None = last
    while following is not None:
        one = following
        if one.__cause__ is not None:
            link, following = _CAUSED, one.__cause__
        elif one.__context__ is not None and not one.__suppress_context__:
            link, following = _DURING, one.__context__
        else:
            link, following = "", None
        chain.append((link, one))
    for link, one in reversed(chain):
        yield link
        yield from _alone(one, places)


def _alone(one: TracebackException, places: tuple[int, ...]) -> Iterator[str]:
    """Yield an exception, and the members of a group."""
    members = one.exceptions
    if members is not None and len(places) > DEPTH_MAX:
        yield f"... (groups are told {DEPTH_MAX} deep)\n"
        return
    if one.stack:
        yield f"{'' if members is None else 'Exception Group '}Traceback (most recent call last):\n"
        yield from one.stack.format()
    yield from one.format_exception_only()
    for place, member in enumerate((members or ())[:MEMBERS_MAX], 1):
        inner = (*places, place)
        yield f"{_RULE} {'.'.join(map(str, inner))} {_RULE}\n"
        yield from _chain(member, inner)
    if members and len(members) > MEMBERS_MAX:
        yield f"{_RULE} and {len(members) - MEMBERS_MAX} more {_RULE}\n"
    if members and not places:
        yield f"{_RULE * 2}\n"
