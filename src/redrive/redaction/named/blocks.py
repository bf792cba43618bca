# SPDX-License-Identifier: Apache-2.0
"""Find secrets whose name is elsewhere: the children of a `secrets:` block, lines of `.pgpass` and of a cookie file.

The names of the children mean nothing, so only values that look like passwords are hidden; names, hosts and files stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Final

from redrive.redaction.named.names import words_of
from redrive.redaction.named.values import is_expression, is_guarded, is_inert, is_random
from redrive.redaction.named.vocabulary import BLOCK_FACTS, HARMLESS_TAILS
from redrive.redaction.placeholders import Sentinels

_BLOCK_NAMES: Final = r"(?:[Ss]ecrets|[Cc]redentials|[Pp]asswords)"
_YAML: Final = re.compile(
    rf"^([ \t]{{0,40}})[\"']?[\w.-]{{0,40}}{_BLOCK_NAMES}[\"']?:[ \t]{{0,8}}\r?\n((?>(?:\1[ \t]{{1,40}}\S[^\n]*+(?:\n|\Z))+))",
    re.MULTILINE,
)
_YAML_CHILD: Final = re.compile(
    r"^[ \t-]+[\"']?([\w.-]{1,64})[\"']?:[ \t]+[\"']?([^\s\"']{6,256})[\"']?[ \t]*$", re.MULTILINE
)
_JSON: Final = re.compile(
    rf"[\"'][\w.-]{{0,40}}{_BLOCK_NAMES}[\"']\s{{0,8}}:\s{{0,8}}\{{([^{{}}]{{1,4096}}+)\}}"
)
_JSON_CHILD: Final = re.compile(r"[\"']([\w.-]{1,64})[\"']\s{0,8}:\s{0,8}[\"']([^\s\"']{6,256})[\"']")
# Names of hosts, zones and objects are words and numbers in lower case, joined by single separators.
_JOINED: Final = re.compile(r"[a-z0-9]+(?:[-./:@][a-z0-9]+)+|/.*|\W*")

# Host, port, database, user and password; an asterisk means any.
_PGPASS: Final = re.compile(
    r"(?:^|(?<=[\"']))(?=[^\s:]{1,128}:(?:[0-9]{2,5}|\*):)[\w.*-]{1,128}:(?:[0-9]{2,5}|\*):[\w.*-]{1,64}:[\w.*@-]{1,64}:"
    r"((?:[^\s:\"'\\]|\\.){1,128})(?=[ \t]*$|[\"'])",
    re.MULTILINE,
)

# The cookie file of browsers and curl: domain, subdomains, path, secure, expiry, name and value, separated by tabs.
_COOKIES: Final = re.compile(
    r"\t(?:TRUE|FALSE)\t/[^\t\n]{0,256}\t(?:TRUE|FALSE)\t[0-9]{1,20}\t[^\t\n]{1,128}\t([^\t\n]{1,4096}+)"
)


def redact_blocks(text: str, sentinels: Sentinels) -> str:
    """Replace the secrets in a block or file of secrets."""
    if "ecrets" in text or "redentials" in text or "asswords" in text:
        text = _YAML.sub(partial(_without_children, _YAML_CHILD, sentinels, {}), text)
        text = _JSON.sub(partial(_without_children, _JSON_CHILD, sentinels, {}), text)
    if "\tTRUE\t" in text or "\tFALSE\t" in text:
        text = _COOKIES.sub(partial(_without_cookie, sentinels), text)
    is_pgpass = ".pgpass" in text
    if is_pgpass or ":5432:" in text or ":*:" in text:
        is_secret = partial(_is_password, is_pgpass=is_pgpass)
        text = _PGPASS.sub(partial(_without_password, sentinels, {}, is_secret), text)
    return text


def _without_children(
    child: re.Pattern[str], sentinels: Sentinels, seen: dict[str, str], block: re.Match[str]
) -> str:
    """Return a block without its secrets; an identical block is processed once."""
    whole = block[0]
    if whole not in seen:
        seen[whole] = child.sub(partial(_without_child, sentinels), whole)
    return seen[whole]


def _without_child(sentinels: Sentinels, child: re.Match[str]) -> str:
    parts = words_of(child[1])
    is_fact = bool(parts) and (parts[-1] in HARMLESS_TAILS or parts[-1] in BLOCK_FACTS)
    return (
        child[0] if is_fact or not _is_secret(child[2]) else _marked(sentinels.redacted("secret"), child, 2)
    )


def _is_secret(value: str) -> bool:
    if is_inert(value) or _JOINED.fullmatch(value) or is_expression(value):
        return False
    return is_random(value) or is_guarded(value)


def _is_password(password: str, *, is_pgpass: bool) -> bool:
    return not is_inert(password) if is_pgpass else is_guarded(password)


def _without_password(
    sentinels: Sentinels, seen: dict[str, bool], is_secret: Callable[[str], bool], line: re.Match[str]
) -> str:
    password = line[1]
    if password not in seen:
        seen[password] = is_secret(password)
    return _marked(sentinels.redacted("password"), line, 1) if seen[password] else line[0]


def _without_cookie(sentinels: Sentinels, line: re.Match[str]) -> str:
    return line[0] if is_inert(line[1]) else _marked(sentinels.redacted("cookie"), line, 1)


def _marked(sentinel: str, found: re.Match[str], group: int) -> str:
    """Return the match with the sentinel in place of a group."""
    start, end = found.start(group) - found.start(), found.end(group) - found.start()
    return found[0][:start] + sentinel + found[0][end:]
