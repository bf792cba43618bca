# SPDX-License-Identifier: Apache-2.0
"""What redrive reads from its surroundings; the only module, besides the clock's, that looks at the environment.

Nothing is read at import: a variable that changes between two calls is seen as it is at the call. Reading is cached by
comparison with the last look, never by time.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Final, cast
from urllib.parse import unquote

from redrive.core.redact import redact_value
from redrive.core.redact.names import Telling, telling, words_of
from redrive.core.redact.values import is_guarded, is_inert, is_random
from redrive.errors import ConfigurationError

SECRET_MIN: Final = 8
"""Shorter values of secret-looking variables, unless mixed, are not hidden: they would hide ordinary words everywhere."""

MIXED_MIN: Final = 6
"""Values that mix letters with digits or signs are hidden from this length on."""

WORD_MIN: Final = 12
"""A word of letters alone, in a variable whose name only hints at a secret, is hidden from this length on."""

# An address without user information; one with it is a secret where the name says so.
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
_CACHED_NAMES_MAX: Final = 4096

KNOWN: Final = ("database_url",)
"""What a file may say."""


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
    words and short values are none. The same mapping is returned as long as nothing has changed.
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
    if len(value) < (MIXED_MIN if is_guarded(value) else SECRET_MIN):
        return None
    url = _URL_PASSWORD.search(value)
    if url:
        password = unquote(url[1])
        return password if len(password) >= SECRET_MIN and not _is_harmless(password) else None
    said = _said_by(name)
    if said is None or _PLAIN_URL.fullmatch(value) or _is_harmless(value):
        return None
    return value if said.certain or is_random(value) or _is_key(name, value) else None


def _is_key(name: str, value: str) -> bool:
    """Tell whether a variable whose name only hints holds a document, or, as in `MY_KEY`, one long or mixed word."""
    if value.startswith('{"'):
        return True
    is_named = words_of(name)[-1] in ("key", "keys", "auth")
    is_word = len(value) >= SECRET_MIN and not re.search(r"\s", value)
    return is_named and is_word and (len(value) >= WORD_MIN or is_guarded(value))


def _is_harmless(value: str) -> bool:
    # Braces around plain text are a template, around quotes a document.
    if value.lower() in _COMMON_WORDS or (is_inert(value) and not value.startswith('{"')):
        return True
    return bool(_NUMBER.fullmatch(value) or _PATH.fullmatch(value))


def database_url() -> str | None:
    """Return where the jobs live by the environment, or else by a file of the present folder; None when neither says so.

    The files are `redrive.toml`, and the table `[tool.redrive]` of `pyproject.toml`; a path in them starts at the present folder.

    Raises:
        ConfigurationError: an address that is blank or no text, a file that is no TOML, or says something that nobody understands.
    """
    told = os.environ.get("REDRIVE_DATABASE_URL")
    return _address("REDRIVE_DATABASE_URL", told) if told else _from_files()


def _address(field: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError(
            field=field, value=redact_value(value), rule="must be an address", fix='"jobs.db", say.'
        )
    return value


def _from_files() -> str | None:
    where, said = _said_in_files()
    for name in said:
        if name not in KNOWN:
            near = get_close_matches(name, KNOWN, 1, cutoff=0.5)
            meant = f"Did you mean {near[0]}?" if near else f"There is {', '.join(KNOWN)}."
            raise ConfigurationError(field=where, value=name, rule="has a setting nobody knows", fix=meant)
    return _address(f"database_url in {where}", said["database_url"]) if "database_url" in said else None


def _said_in_files() -> tuple[str, dict[str, object]]:
    """Return what the first file says that says anything, and its name."""
    own = _table_in("redrive.toml")
    if own:
        return "redrive.toml", own
    where = "[tool.redrive] of pyproject.toml"
    tools = (_table_in("pyproject.toml") or {}).get("tool")
    table: object = cast("dict[str, object]", tools).get("redrive", {}) if isinstance(tools, dict) else {}
    if not isinstance(table, dict):
        fix = 'Write [tool.redrive] on a line of its own, and database_url = "jobs.db", say, below it.'
        raise ConfigurationError(field=where, value=redact_value(table), rule="must be a table", fix=fix)
    return where, cast("dict[str, object]", table)


def _table_in(file: str) -> dict[str, object] | None:
    """Return what a file of the present folder says; None when there is none."""
    try:
        return tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except (FileNotFoundError, IsADirectoryError):
        return None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(
            field="file", value=file, rule=f"cannot be read ({error})", fix="Mend it, or name the database."
        ) from error
