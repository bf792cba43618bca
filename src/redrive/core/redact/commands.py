# SPDX-License-Identifier: Apache-2.0
"""Passwords on command lines whose flag does not name them: `curl -u user:x`, `mysql -px`, `sshpass -p x`.

Flags that do name them (`--password x`) belong to `assignments.py`. A command is read once, as far as its line goes
and no further than `COMMAND_MAX` characters, and only when its name is in the text.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Final

from redrive.core.redact.marks import Marks
from redrive.core.redact.values import is_inert

COMMAND_MAX: Final = 600
"""Flags further than this from their command are not looked at."""

_WORD: Final = r"""(?:'[^'\n]{1,256}+'?|"[^"\n]{1,256}+"?|[^\s'"]{1,256}+)"""
_LINE: Final = rf"(?>(?:[^\n]|(?<=\\)\n){{0,{COMMAND_MAX}}})"
_USER: Final = (
    r"(?<![\w-])(?:-u|-U|--user|--proxy-user|--auth|-a)['\"]?(?:[ =,]{1,2}|(?=[\w'\"]))"
    r"['\"]?[^\s:'\"@/]{1,64}:([^\s'\"]{1,256}+)"
)
_FLAG_P: Final = rf"(?<=\s)-p[ =]?({_WORD})"

# A needle, the command that it announces, and where the password stands on the rest of its line.
_RULES: Final[tuple[tuple[str, re.Pattern[str], re.Pattern[str]], ...]] = tuple(
    (needle, re.compile(command + _LINE), re.compile(flag))
    for needle, command, flag in (
        ("curl", r"\bcurl\b", _USER),
        ("wget", r"\bwget\b", _USER),
        (" -a ", r"\b(?:https?|xh)(?= )", _USER),
        ("mysql", r"\bmysql\w*+(?=[ \t])", rf"(?<=\s)-p({_WORD})"),
        ("mariadb", r"\bmariadb[\w-]*+(?=[ \t])", rf"(?<=\s)-p({_WORD})"),
        ("jdbc:oracle", r"\bjdbc:oracle:", r":[\w.$-]{1,64}/([^\s@/'\"]{1,128})@"),
        ("sqlplus", r"\bsqlplus\b", r"(?<=[\s'\"])[\w.$-]{1,64}/([^\s@/'\"]{1,128})@"),
        ("sshpass", r"\bsshpass\b", _FLAG_P),
        ("redis-cli", r"\bredis-cli\b", rf"(?<=\s)(?:-a|--pass)[ =]({_WORD})"),
        (" login ", r"\b(?:docker|podman|helm|az|oc|nerdctl|crane|skopeo)\b(?=[^\n]{0,40} login )", _FLAG_P),
        ("mongo", r"\bmongo\w*+(?=[ \t])", _FLAG_P),
        ("ldap", r"\bldap\w++(?=[ \t])", rf"(?<=\s)-w ?({_WORD})"),
        ("IDENTIFIED", r"\bIDENTIFIED\b", rf"\b(?:BY|AS)[ \t]+({_WORD})"),
        ("identified by", r"\bidentified by", r"\bby[ \t]+('[^'\n]{1,256}+')"),
        ("machine ", r"\bmachine \S{1,128}\s+login\b", rf"\bpassword\s+({_WORD})"),
    )
)


def redact_commands(text: str, marks: Marks) -> str:
    """Put a mark in place of the passwords that well-known commands take in flags."""
    for needle, command, flag in _RULES:
        if needle in text:
            text = command.sub(partial(_without_secrets, flag, marks), text)
    return text


def _without_secrets(flag: re.Pattern[str], marks: Marks, line: re.Match[str]) -> str:
    return flag.sub(partial(_without_secret, marks), line[0])


def _without_secret(marks: Marks, found: re.Match[str]) -> str:
    secret = found[1]
    bare = secret.strip("'\"")
    if is_inert(bare) or bare.isdigit():
        return found[0]
    shown = secret.replace(bare, marks.redacted("password"), 1)
    return found[0][: found.start(1) - found.start()] + shown
