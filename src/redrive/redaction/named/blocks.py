# SPDX-License-Identifier: Apache-2.0
"""Find secrets whose name is elsewhere: the children of a `secrets:` block, lines of `.pgpass` and of a cookie file.

The names of the children mean nothing, so only values that look like passwords are hidden; names, hosts and files stay.
"""

from __future__ import annotations

import re
from typing import Final

from redrive.redaction.named.names import words_of
from redrive.redaction.named.values import is_expression, is_guarded, is_inert, is_random
from redrive.redaction.named.vocabulary import BLOCK_FACTS, HARMLESS_TAILS
from redrive.redaction.places import Place, Places

_BLOCK_NAMES: Final = r"(?:[Ss]ecrets|[Cc]redentials|[Pp]asswords)"
_YAML: Final = (
    rf"^([ \t]{{0,40}})[\"']?[\w.-]{{0,40}}{_BLOCK_NAMES}[\"']?:[ \t]{{0,8}}\r?\n"
    r"(?>(?:\1[ \t]{1,40}\S[^\n]*+(?:\n|\Z))+)"
)
_YAML_CHILD: Final = r"^[ \t-]+[\"']?([\w.-]{1,64})[\"']?:[ \t]+[\"']?([^\s\"']{6,256})[\"']?[ \t]*$"
_JSON: Final = rf"[\"'][\w.-]{{0,40}}{_BLOCK_NAMES}[\"']\s{{0,8}}:\s{{0,8}}\{{([^{{}}]{{1,4096}}+)\}}"
_JSON_CHILD: Final = r"[\"']([\w.-]{1,64})[\"']\s{0,8}:\s{0,8}[\"']([^\s\"']{6,256})[\"']"
_BLOCK: Final = re.compile(f"{_YAML}|{_JSON}", re.MULTILINE)
_CHILD: Final = re.compile(f"{_YAML_CHILD}|{_JSON_CHILD}", re.MULTILINE)
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


def _is_child(child: re.Match[str]) -> bool:
    """Return whether the child of a block is a secret, not an ordinary fact."""
    parts, value = words_of(child[1] or child[3]), child[2] or child[4]
    if parts and (parts[-1] in HARMLESS_TAILS or parts[-1] in BLOCK_FACTS):
        return False
    if is_inert(value) or _JOINED.fullmatch(value) or is_expression(value):
        return False
    return is_random(value) or is_guarded(value)


def _is_literal(found: re.Match[str]) -> bool:
    return not is_inert(found[1])


def _is_guarded(found: re.Match[str]) -> bool:
    return is_guarded(found[1])


BLOCKS: Final = Places(
    (
        *(
            Place(holder, "secret", _CHILD, _BLOCK, _is_child, is_far=True)
            for holder in ("ecrets", "redentials", "asswords")
        ),
        *(Place(flag, "cookie", _COOKIES, None, _is_literal) for flag in ("\tTRUE\t", "\tFALSE\t")),
        Place(".pgpass", "password", _PGPASS, None, _is_literal, is_far=True),
        *(Place(port, "password", _PGPASS, None, _is_guarded) for port in (":5432:", ":*:")),
    )
)
"""Blocks and files of secrets."""
