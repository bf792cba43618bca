# SPDX-License-Identifier: Apache-2.0
"""What redrive reads from its surroundings; the only module, besides the clock's, that looks at the environment.

Nothing is read at import: a variable that changes between two calls is seen as it is at the call. Reading is cached by
comparison with the last look, never by time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final, cast
from urllib.parse import unquote

from redrive.core.redact.names import Telling, telling
from redrive.core.redact.values import is_inert, is_random

SECRET_MIN: Final = 8
"""Shorter values of secret-looking variables are not hidden: they would hide ordinary words everywhere."""

_URL_PASSWORD: Final = re.compile(
    r"[a-z][a-z0-9+.-]{1,30}://[^\s/?#@:]{0,128}:([^\s]{1,512})@[^\s@/]", re.IGNORECASE
)
_PATH: Final = re.compile(r"(?:[A-Za-z]:[\\/]|~?/|\.{1,2}/)[\w.@ \\/:-]*")
_NUMBER: Final = re.compile(r"[+-]?[0-9][0-9_.,:]*")
_COMMON_WORDS: Final = frozenset(
    "postgres password postgresql rabbitmq localhost development production staging disabled required username default"
    " internal external anonymous bearer testing example optional database".split()
)
_CACHED_NAMES_MAX: Final = 4096


class _Look:
    """One look at the environment: what it held, and the secrets found in it."""

    __slots__ = ("raw", "secrets")

    def __init__(self, raw: Mapping[object, object], secrets: Mapping[str, str]) -> None:
        self.raw = raw
        self.secrets = secrets


_last_look = _Look({}, MappingProxyType({}))


def secret_environment() -> Mapping[str, str]:
    """Return the secrets in the environment, as it is now, by the name of their variable.

    A secret is the value of a variable with a telling name, or the password inside a URL. Booleans, numbers, paths, common
    words and values shorter than `SECRET_MIN` are none. The same mapping is returned as long as nothing has changed.
    """
    global _last_look  # noqa: PLW0603 - replaced whole, so a thread sees the old look or the new one, never a mixture.
    # The undecoded dictionary behind os.environ can be compared without decoding every variable again.
    raw = cast("Mapping[object, object]", getattr(os.environ, "_data", os.environ))
    look = _last_look
    if look.raw == raw:
        return look.secrets
    before = dict(raw)
    secrets = {
        name: secret for name, value in os.environ.items() if (secret := _secret_in(name, value)) is not None
    }
    look = _Look(before, MappingProxyType(secrets))
    _last_look = look
    return look.secrets


@lru_cache(maxsize=_CACHED_NAMES_MAX)
def _said_by(name: str) -> Telling | None:
    return telling(name)


def _secret_in(name: str, value: str) -> str | None:
    """Return the secret that a variable holds; None when it holds none."""
    if len(value) < SECRET_MIN:
        return None
    url = _URL_PASSWORD.search(value)
    if url:
        password = unquote(url[1])
        return password if len(password) >= SECRET_MIN and not _is_harmless(password) else None
    said = _said_by(name)
    if said is None or "://" in value or _is_harmless(value):
        return None
    return value if said.certain or is_random(value) else None


def _is_harmless(value: str) -> bool:
    if value.lower() in _COMMON_WORDS or is_inert(value):
        return True
    return bool(_NUMBER.fullmatch(value) or _PATH.fullmatch(value))
