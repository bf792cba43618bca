# SPDX-License-Identifier: Apache-2.0
"""Find secrets between delimiters: private key blocks, and credentials inside URLs.

A block is PEM, OpenSSH or PGP, over many lines or with escaped line ends, complete or cut off; public certificates and public keys
stay. Every character is read a bounded number of times: a block ends at the next row of dashes.

A URL is `scheme://user:password@host`, `scheme://:password@host` or `scheme://token@host`; scheme, user name, host and path stay.
`assignments.py` handles secret query parameters, `shapes.py` webhook addresses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from redrive.redaction.named.values import is_guarded, is_inert, is_random
from redrive.redaction.placeholders import FIRST_SENTINEL, Sentinels

_LABEL: Final = r"(?:[A-Z0-9]{1,12} ){0,4}(?:PRIVATE KEY(?: BLOCK)?|OpenVPN Static key V1)"
_KEY_BLOCK: Final = re.compile(
    # The body is anything but five dashes; a block without an end takes the lines that look like a key.
    rf"-{{4,5}} ?BEGIN {_LABEL} ?-{{4,5}}"
    rf"((?>[^-]*+(?:-{{1,3}}(?!-)[^-]++)*)-{{4,5}} ?END {_LABEL} ?-{{4,5}}"
    r"|(?>(?:\s++|\\++[nrt]|[A-Za-z-]{3,20}: [^\n\\]{1,80}+|[A-Za-z0-9+/=]++)*))"
)
_ROW: Final = re.compile("[A-Za-z0-9+/=]{10}")
_END: Final = re.compile(rf"-{{4,5}} ?END {_LABEL} ?-{{4,5}}")
# The rows before an END whose BEGIN was cut off, read backwards so that each is read once.
_ROWS_BACKWARDS: Final = re.compile(
    r"(?:\s|[nr]\\+){1,8}[A-Za-z0-9+/=]{1,80}(?:(?:\s|[nr]\\+){1,8}[A-Za-z0-9+/=]{16,80})*"
)


def redact_private_keys(text: str, sentinels: Sentinels) -> str:
    """Replace every private key block."""
    if "PRIVATE KEY" not in text and "Static key V1" not in text:
        return text
    hidden = sentinels.redacted("private-key")
    # A marker without a key after it, as in source code, is not a block.
    text = _KEY_BLOCK.sub(lambda block: hidden if _ROW.search(block[1]) else block[0], text)
    return sentinels.replace(text, _tails(text)) if "END " in text else text


def _tails(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the lines of keys whose beginning was cut off."""
    done = 0
    for end in _END.finditer(text):
        rows = _ROWS_BACKWARDS.match(text[max(done, end.start() - 8192) : end.start()][::-1])
        if rows:
            yield end.start() - rows.end(), end.end(), "private-key"
            done = end.end()


USERINFO_MAX: Final = 1024
"""The longest user information of a URL, in characters."""

_USERINFO: Final = re.compile(rf"[^\s/?#\"'<>`\\]{{1,{USERINFO_MAX}}}@")
# A password of a database URL may contain an unescaped slash, question mark or hash; a port before a path is not a password.
_LOOSE_USERINFO: Final = re.compile(
    r"[^\s/?#\"'<>`\\@:]{0,128}:(?![0-9]{1,5}[/?#])[^\s\"'<>`\\@]{1,256}@(?=[\w\[.-])"
)
# A host with properties, as in `jdbc:sqlserver://host:1433;user=sa;password=p@ss`, has no user information.
_PROPERTIES: Final = re.compile(r"[\w.-]{1,128}+(?:[\\:][\w]{1,32})?;[A-Za-z]{1,32} ?=")
_WEB_SCHEME: Final = re.compile(r"(?:https?|wss?|file|s3|gs|git|ssh)\Z", re.IGNORECASE)
_HOST_AND_PORT: Final = re.compile(r"@(?=[A-Za-z0-9.-]{1,100}:[0-9]{2,5}(?![\w.:]))")
_NUMBERS: Final = re.compile("[0-9a-f]{8,}:[0-9a-f]{8,}")
_VERSION: Final = re.compile(r"v?[0-9]+\.[0-9]")
_LAST_WORD: Final = re.compile(r"\A[^\s/@\"'`<>(){}\[\]]+")


def redact_urls(text: str, sentinels: Sentinels) -> str:
    """Replace the password, or the token without a user name, of every URL."""
    if "@" not in text:
        return text
    text = sentinels.replace(text, _schemeless(text))
    return sentinels.replace(text, _credentials(text)) if "://" in text else text


def _credentials(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the secrets of URLs."""
    seen: dict[str, int | None] = {}
    at = text.find("://")
    while at >= 0:
        start = at + 3
        end = _userinfo_end(text, start)
        if end is not None:
            userinfo = text[start:end]
            if userinfo not in seen:
                seen[userinfo] = _secret_in(userinfo)
            secret = seen[userinfo]
            if secret is not None:
                yield start + secret, end, "url-credentials"
                start = end
        at = text.find("://", start)


def _schemeless(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the passwords in addresses without a scheme: `user:password@host:5432/name`."""
    seen: dict[str, bool] = {}
    done = 0
    for found in _HOST_AND_PORT.finditer(text):
        at = found.start()
        if text[at - 1 : at] >= FIRST_SENTINEL:
            continue  # Replaced before.
        word = _LAST_WORD.search(text[max(done, at - 128) : at][::-1])
        user, colon, password = word[0][::-1].partition(":") if word else ("", "", "")
        if not user or not colon:
            continue
        if password not in seen:
            seen[password] = is_guarded(password) and not _VERSION.match(password)
        if seen[password]:
            yield at - len(password), at, "url-credentials"
            done = at


def _userinfo_end(text: str, start: int) -> int | None:
    """Return the end of the user information at `start`; None when there is none."""
    limit = start + USERINFO_MAX
    at = text.find("@", start, limit)
    if at < 0 or (text.find(";", start, at) >= 0 and _PROPERTIES.match(text, start, limit)):
        return None
    found = _USERINFO.match(text, start, limit)
    if found is None and not _WEB_SCHEME.search(text[max(0, start - 16) : start - 3]):
        found = _LOOSE_USERINFO.match(text, start, limit)
    if found is None:
        return None
    end = found.end() - 1
    if text[end - 1] >= FIRST_SENTINEL and text[end - 2] == ":":
        return None  # Replaced in an earlier round.
    return end


def _secret_in(userinfo: str) -> int | None:
    """Return the start of the secret in user information; None when there is none."""
    user, colon, password = userinfo.partition(":")
    if colon:
        # A random user name, as in older Sentry addresses, is part of the secret, and so is half of two numbers.
        is_part = is_random(user) or _NUMBERS.fullmatch(userinfo)
        secret = 0 if is_part else len(user) + 1
        return None if is_inert(password) else secret
    # A long user name without a password is a token.
    is_token = len(user) >= 20 or is_random(user)
    return 0 if is_token and not is_inert(user) else None
