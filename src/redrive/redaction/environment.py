# SPDX-License-Identifier: Apache-2.0
"""Find the secrets in this process's environment: values of variables with a secret name, and passwords in URLs.

Nothing is read at import; every call sees the current values.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, cast
from urllib.parse import unquote

from redrive.redaction.named.names import meaning_of_name, words_of
from redrive.redaction.named.values import is_guarded, is_inert, is_random

SECRET_MIN: Final = 8
"""Shorter values of variables with a secret name, unless mixed, are not hidden: that would hide ordinary words everywhere."""

# A URL without user information; one with it is a secret if the name is.
_PLAIN_URL: Final = re.compile(r"[A-Za-z][\w+.-]{1,30}://[^\s@;]*")
_URL_PASSWORD: Final = re.compile(
    r"[a-z][a-z0-9+.-]{1,30}://[^\s/?#@:]{0,128}:([^\s]{1,512})@[^\s@/]", re.IGNORECASE
)
_PATH: Final = re.compile(r"(?:[A-Za-z]:[\\/]|~?/|\.{1,2}/)[\w.@ \\/:-]*")
_NUMBER: Final = re.compile(r"[+-]?[0-9][0-9_.,:]*")
_COMMON_WORDS: Final = frozenset(
    "postgres password postgresql rabbitmq localhost development production staging disabled required username default"
    " internal external anonymous bearer testing example optional database".split()
)

_last_snapshot: tuple[Mapping[object, object], Mapping[str, str]] = ({}, MappingProxyType({}))
"""The content of the environment, and the secrets found in it."""


def secret_environment() -> Mapping[str, str]:
    """Return the secrets in the environment now, by the name of their variable.

    A secret is the value of a variable with a secret name, or the password inside a URL; not a boolean, number, path, common
    word or short value. Returns the same mapping as long as nothing has changed.
    """
    global _last_snapshot  # noqa: PLW0603 - replaced as a whole, so a thread sees the old snapshot or the new one, never a mixture.
    # Comparing the raw dictionary behind os.environ needs no decoding.
    raw = cast("Mapping[object, object]", getattr(os.environ, "_data", os.environ))
    seen, known = _last_snapshot
    if seen == raw:
        return known
    before = dict(raw)
    found = {name: _secret_in(name, value) for name, value in os.environ.items()}
    known = MappingProxyType({name: secret for name, secret in found.items() if secret is not None})
    _last_snapshot = (before, known)
    return known


def _secret_in(name: str, value: str) -> str | None:
    """Return the secret in a variable's value; None when there is none."""
    if len(value) < (6 if is_guarded(value) else SECRET_MIN):
        return None
    url = _URL_PASSWORD.search(value)
    if url:
        password = unquote(url[1])
        return password if len(password) >= SECRET_MIN and not _is_harmless(password) else None
    meaning = meaning_of_name(name)
    if meaning is None or _PLAIN_URL.fullmatch(value) or _is_harmless(value):
        return None
    return value if meaning.certain or is_random(value) or _is_key(name, value) else None


def _is_key(name: str, value: str) -> bool:
    """Return whether a variable with an uncertain name contains a document or, as in `MY_KEY`, one long or mixed word."""
    if value.startswith('{"'):
        return True
    is_named = words_of(name)[-1] in ("key", "keys", "auth")
    is_word = len(value) >= SECRET_MIN and not re.search(r"\s", value)
    return is_named and is_word and (len(value) >= 12 or is_guarded(value))


def _is_harmless(value: str) -> bool:
    # Braces around plain text are a template; around quotes they are a document.
    if value.lower() in _COMMON_WORDS or (is_inert(value) and not value.startswith('{"')):
        return True
    return bool(_NUMBER.fullmatch(value) or _PATH.fullmatch(value))
