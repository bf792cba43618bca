# SPDX-License-Identifier: Apache-2.0
"""Errors as text: one redacted line for a log, and the whole traceback for a dead letter.

A log never gets a traceback: it quotes the causes, which nobody has redacted, as they were raised. The traceback is written as
Python writes it, but without the bars that Python puts before every line of a member of a group: with them a value of several lines
would not be in the text as it is, and the redactor would not find it. Here the members follow their group under numbered headings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from traceback import TracebackException
from typing import Final

from redrive.core.classify import MESSAGE_MAX, message_of

MEMBERS_MAX: Final = 15
"""So many members of a group are written, and so deep are groups in groups: as many as Python itself shows."""
DEPTH_MAX: Final = 10

_BREAKS: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""What would begin another line of a log, or command a terminal."""
_CAUSED: Final = "\nThe above exception was the direct cause of the following exception:\n\n"
_DURING: Final = "\nDuring handling of the above exception, another exception occurred:\n\n"
_RULE: Final = "-" * 16


def error_text(error: BaseException, payload: Mapping[str, str] | None = None) -> str:
    """Return class and message of an error, redacted, for a log; `payload` maps further literals to their placeholders.

    One whose message cannot be read, or be redacted, is named by its class alone: it must not stop whoever logs it.
    """
    name = type(error).__name__
    try:
        return _BREAKS.sub(
            lambda found: f"\\x{ord(found[0]):02x}", redacted(f"{name}: {message_of(error)}", payload)
        )
    except Exception:  # noqa: BLE001 - see above.
        return name


def redacted(text: str, payload: Mapping[str, str] | None = None) -> str:
    """Return the start of a text, redacted.

    The redactor is imported here and not above: its patterns are almost half of what `from redrive import guard` would take, and a
    guard needs them when a failure is first written down. The import may fail, for example when no more files can be opened.
    """
    from redrive.redaction.process import redact_start

    return redact_start(text, payload, read=MESSAGE_MAX)


def traceback_text(exc: BaseException) -> str:
    """Return the traceback of an exception with those of its causes and members; not redacted."""
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
        yield from _single(one, places)


def _single(one: TracebackException, places: tuple[int, ...]) -> Iterator[str]:
    """Yield an exception, and the members of a group."""
    members = one.exceptions
    if members is not None and len(places) > DEPTH_MAX:
        yield f"... (groups are shown {DEPTH_MAX} deep)\n"
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
