# SPDX-License-Identifier: Apache-2.0
"""Find passwords on command lines whose flag does not name them: `curl -u user:x`, `mysql -px`, `echo x | docker login`.

`command_lines.py` lists the commands; `assignments.py` handles flags that name the password (`--password x`). A command is read
once, to the end of its line and at most `COMMAND_MAX` characters. One search for dashes lists the flags of the text first; only
commands with one of these flags are searched.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Final

from redrive.redaction.named.command_lines import FLAGS, PIPES, PLACES
from redrive.redaction.named.values import is_inert
from redrive.redaction.placeholders import Sentinels

COMMAND_MAX: Final = 600
"""How far a flag may be from its command."""

# A command ends with its line, unless a backslash continues the line, and where another command follows.
_LINE: Final = rf"(?>(?:[^\n|&;]|(?<=\\)\n|[|&;](?![|&]?[ ])|(?<! )[|&;](?!\Z)){{0,{COMMAND_MAX}}})"
# The dash comes first, so that the search for it runs in C.
_FLAG: Final = re.compile(r"-(?:(?<=[\s\"'(]-)|(?<=[\s\"'(]--))([A-Za-z])")
# The end of a longer word is not a command.
_INSIDE: Final = re.compile(r"[\w-]")

_BY_FLAG: Final = tuple(
    # No condition precedes the names, so that the search can skip by their first letters.
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


def redact_commands(text: str, sentinels: Sentinels) -> str:
    """Replace the passwords that well-known commands take without naming them."""
    # A dash inside a word, as in most logs, does not start a flag.
    if " -" in text or "'-" in text or '"-' in text:
        letters = frozenset(_FLAG.findall(text))
        for flags, needles, command, flag in _BY_FLAG if letters else ():
            if not flags.isdisjoint(letters) and any(map(text.__contains__, needles)):
                text = command.sub(partial(_without_secrets, flag, sentinels, {}), text)
    for needle, command, place in _BY_NEEDLE:
        if needle in text:
            text = command.sub(partial(_without_secrets, place, sentinels, {}), text)
    if "|" in text or "<<<" in text:
        for needle, pipe in _BY_PIPE:
            if needle in text:
                text = pipe.sub(partial(_without_piped_secret, sentinels, {}), text)
    return text


def _without_secrets(
    flag: re.Pattern[str], sentinels: Sentinels, seen: dict[str, str], line: re.Match[str]
) -> str:
    """Return the line of a command without its passwords; an identical line is processed once."""
    whole = line[0]
    if _INSIDE.match(line.string, max(0, line.start() - 1), line.start()):
        return whole
    if whole not in seen:
        seen[whole] = flag.sub(partial(_without_secret, sentinels), whole)
    return seen[whole]


def _without_piped_secret(sentinels: Sentinels, seen: dict[str, str], found: re.Match[str]) -> str:
    whole = found[0]
    if whole not in seen:
        seen[whole] = _without_secret(sentinels, found)
    return seen[whole]


def _without_secret(sentinels: Sentinels, found: re.Match[str]) -> str:
    secret = found[1]
    bare = secret.strip("'\"")
    if is_inert(bare) or bare.isdigit() or bare.startswith("-"):
        return found[0]
    shown = secret.replace(bare, sentinels.redacted("password"), 1)
    return found[0][: found.start(1) - found.start()] + shown + found[0][found.end(1) - found.start() :]
