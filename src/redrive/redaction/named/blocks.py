# SPDX-License-Identifier: Apache-2.0
"""Secrets whose name stands elsewhere: the children of a `secrets:` block, lines of `.pgpass` and of a file of cookies.

What the children are called says nothing, so their values must look like passwords, and names, hosts and files stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Final

from redrive.redaction.named.names import words_of
from redrive.redaction.named.values import is_expression, is_guarded, is_inert, is_random
from redrive.redaction.named.vocabulary import BLOCK_FACTS, HARMLESS_TAILS
from redrive.redaction.placeholders import Marks

_HOLDERS: Final = r"(?:[Ss]ecrets|[Cc]redentials|[Pp]asswords)"
_YAML: Final = re.compile(
    rf"^([ \t]{{0,40}})[\"']?[\w.-]{{0,40}}{_HOLDERS}[\"']?:[ \t]{{0,8}}\r?\n((?>(?:\1[ \t]{{1,40}}\S[^\n]*+(?:\n|\Z))+))",
    re.MULTILINE,
)
_YAML_CHILD: Final = re.compile(
    r"^[ \t-]+[\"']?([\w.-]{1,64})[\"']?:[ \t]+[\"']?([^\s\"']{6,256})[\"']?[ \t]*$", re.MULTILINE
)
_JSON: Final = re.compile(rf"[\"'][\w.-]{{0,40}}{_HOLDERS}[\"']\s{{0,8}}:\s{{0,8}}\{{([^{{}}]{{1,4096}}+)\}}")
_JSON_CHILD: Final = re.compile(r"[\"']([\w.-]{1,64})[\"']\s{0,8}:\s{0,8}[\"']([^\s\"']{6,256})[\"']")
# Names of hosts, zones and objects are words and numbers in lower case, joined by one sign after another.
_JOINED: Final = re.compile(r"[a-z0-9]+(?:[-./:@][a-z0-9]+)+|/.*|\W*")

# Host, port, database, user and password, with an asterisk for any.
_PGPASS: Final = re.compile(
    r"(?:^|(?<=[\"']))(?=[^\s:]{1,128}:(?:[0-9]{2,5}|\*):)[\w.*-]{1,128}:(?:[0-9]{2,5}|\*):[\w.*-]{1,64}:[\w.*@-]{1,64}:"
    r"((?:[^\s:\"'\\]|\\.){1,128})(?=[ \t]*$|[\"'])",
    re.MULTILINE,
)

# What browsers and curl keep: domain, subdomains, path, secure, expiry, name and value, set apart by tabs.
_COOKIES: Final = re.compile(
    r"\t(?:TRUE|FALSE)\t/[^\t\n]{0,256}\t(?:TRUE|FALSE)\t[0-9]{1,20}\t[^\t\n]{1,128}\t([^\t\n]{1,4096}+)"
)


def redact_blocks(text: str, marks: Marks) -> str:
    """Put a mark in place of the secrets that a block or a file of secrets holds."""
    if "ecrets" in text or "redentials" in text or "asswords" in text:
        text = _YAML.sub(partial(_without_children, _YAML_CHILD, marks, {}), text)
        text = _JSON.sub(partial(_without_children, _JSON_CHILD, marks, {}), text)
    if "\tTRUE\t" in text or "\tFALSE\t" in text:
        text = _COOKIES.sub(partial(_without_cookie, marks), text)
    is_told = ".pgpass" in text
    if is_told or ":5432:" in text or ":*:" in text:
        is_secret = partial(_is_password, is_told=is_told)
        text = _PGPASS.sub(partial(_without_password, marks, {}, is_secret), text)
    return text


def _without_children(
    child: re.Pattern[str], marks: Marks, seen: dict[str, str], block: re.Match[str]
) -> str:
    """Return a block without its secrets; the same block is read once."""
    whole = block[0]
    if whole not in seen:
        seen[whole] = child.sub(partial(_without_child, marks), whole)
    return seen[whole]


def _without_child(marks: Marks, child: re.Match[str]) -> str:
    parts = words_of(child[1])
    is_fact = bool(parts) and (parts[-1] in HARMLESS_TAILS or parts[-1] in BLOCK_FACTS)
    return child[0] if is_fact or not _is_secret(child[2]) else _marked(marks.redacted("secret"), child, 2)


def _is_secret(value: str) -> bool:
    if is_inert(value) or _JOINED.fullmatch(value) or is_expression(value):
        return False
    return is_random(value) or is_guarded(value)


def _is_password(password: str, *, is_told: bool) -> bool:
    return not is_inert(password) if is_told else is_guarded(password)


def _without_password(
    marks: Marks, seen: dict[str, bool], is_secret: Callable[[str], bool], line: re.Match[str]
) -> str:
    password = line[1]
    if password not in seen:
        seen[password] = is_secret(password)
    return _marked(marks.redacted("password"), line, 1) if seen[password] else line[0]


def _without_cookie(marks: Marks, line: re.Match[str]) -> str:
    return line[0] if is_inert(line[1]) else _marked(marks.redacted("cookie"), line, 1)


def _marked(mark: str, found: re.Match[str], group: int) -> str:
    """Return the match with the mark in place of a group."""
    start, end = found.start(group) - found.start(), found.end(group) - found.start()
    return found[0][:start] + mark + found[0][end:]
