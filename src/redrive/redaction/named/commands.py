# SPDX-License-Identifier: Apache-2.0
"""Passwords on command lines whose flag does not name them: `curl -u user:x`, `mysql -px`, `echo x | docker login`.

Which commands take a password where is in `command_lines.py`; flags that do name it (`--password x`) belong to
`assignments.py`. A command is read once, as far as its line goes and no further than `COMMAND_MAX` characters. The flags
of the text are listed first, in one search for dashes; only commands that know one of them are looked for.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Final

from redrive.redaction.named.command_lines import FLAGS, PIPES, PLACES
from redrive.redaction.named.values import is_inert
from redrive.redaction.placeholders import Marks

COMMAND_MAX: Final = 600
"""Flags further than this from their command are not looked at."""

# A command ends with its line, unless the line goes on after a backslash, and where another command follows it.
_LINE: Final = rf"(?>(?:[^\n|&;]|(?<=\\)\n|[|&;](?![|&]?[ ])|(?<! )[|&;](?!\Z)){{0,{COMMAND_MAX}}})"
# The dash stands first, so that the search for it runs in C.
_FLAG: Final = re.compile(r"-(?:(?<=[\s\"'(]-)|(?<=[\s\"'(]--))([A-Za-z])")
# The end of a longer word is no command.
_INSIDE: Final = re.compile(r"[\w-]")

_BY_FLAG: Final = tuple(
    # No condition stands before the names, so that the search can skip by their first letters.
    (
        frozenset(letters),
        tuple(needles.split()),
        re.compile(rf"(?:{commands})(?=[ \t\"']){_LINE}"),
        re.compile(flag),
    )
    for letters, needles, commands, flag in FLAGS
)
_BY_NEEDLE: Final = tuple(
    (needle, re.compile(command + _LINE), re.compile(place)) for needle, command, place in PLACES
)
_BY_PIPE: Final = tuple((needle, re.compile(pattern)) for needle, pattern in PIPES)


def redact_commands(text: str, marks: Marks) -> str:
    """Put a mark in place of the passwords that well-known commands take without naming them."""
    # A dash inside a word, as in most logs, starts no flag.
    if " -" in text or "'-" in text or '"-' in text:
        letters = frozenset(_FLAG.findall(text))
        for flags, needles, command, flag in _BY_FLAG if letters else ():
            if not flags.isdisjoint(letters) and any(map(text.__contains__, needles)):
                text = command.sub(partial(_without_secrets, flag, marks, {}), text)
    for needle, command, place in _BY_NEEDLE:
        if needle in text:
            text = command.sub(partial(_without_secrets, place, marks, {}), text)
    if "|" in text or "<<<" in text:
        for needle, pipe in _BY_PIPE:
            if needle in text:
                text = pipe.sub(partial(_without_said, marks, {}), text)
    return text


def _without_secrets(flag: re.Pattern[str], marks: Marks, seen: dict[str, str], line: re.Match[str]) -> str:
    """Return the line of a command without its passwords; the same line is read once."""
    whole = line[0]
    if _INSIDE.match(line.string, max(0, line.start() - 1), line.start()):
        return whole
    if whole not in seen:
        seen[whole] = flag.sub(partial(_without_secret, marks), whole)
    return seen[whole]


def _without_said(marks: Marks, seen: dict[str, str], found: re.Match[str]) -> str:
    whole = found[0]
    if whole not in seen:
        seen[whole] = _without_secret(marks, found)
    return seen[whole]


def _without_secret(marks: Marks, found: re.Match[str]) -> str:
    secret = found[1]
    bare = secret.strip("'\"")
    if is_inert(bare) or bare.isdigit() or bare.startswith("-"):
        return found[0]
    shown = secret.replace(bare, marks.redacted("password"), 1)
    return found[0][: found.start(1) - found.start()] + shown + found[0][found.end(1) - found.start() :]
