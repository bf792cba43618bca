# SPDX-License-Identifier: Apache-2.0
"""Decide whether a name is a secret name: `db_password`, `X-Api-Key`, `clientSecret`, but not `token_count` or `primary_key`.

A name is split into its words, in any case style; its last words decide. A *certain* name makes any literal value a secret; an
uncertain one (`key`, `auth`, `signature`) only a value that also looks random. The words are in `vocabulary.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from redrive.redaction.named import vocabulary as words

NAME_MAX: Final = 128
"""Of longer names only the last characters count."""

NAME_CHARACTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
"""The characters of a name."""

_WORD: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
_UNACCENTED: Final = str.maketrans("ñłöóőşžăáéã", "nloooszaaea")

Kept = Literal["nothing", "uuid", "hash"]
"""Random values that are no secrets: none, UUIDs, or these and hashes."""


@dataclass(frozen=True, slots=True)
class NameMeaning:
    """What a secret name means for its value."""

    kind: str
    """The kind of secret: the slug in the placeholder."""
    certain: bool
    """True if any literal value is a secret, False if only one that looks random is."""
    kept: Kept = "uuid"
    """What is no secret after an uncertain name, even if it is random."""


_UNCERTAIN: Final = NameMeaning("secret", certain=False)
_UNCERTAIN_KEY: Final = NameMeaning("secret", certain=False, kept="nothing")
_HASHED_KEY: Final = NameMeaning("secret", certain=False, kept="hash")
_SECRET: Final = NameMeaning("secret", certain=True)
_KEY: Final = NameMeaning("secret", certain=True, kept="nothing")
_IDS: Final = {**dict.fromkeys(("session", "sess", "api"), _UNCERTAIN), "secret": _UNCERTAIN_KEY}
_PASSWORD: Final = NameMeaning("password", certain=True)
_BY_WORD: Final[tuple[tuple[frozenset[str], tuple[str, ...], NameMeaning], ...]] = (
    (words.PASSWORDS, words.PASSWORD_ENDINGS, _PASSWORD),
    (words.COOKIES, ("cookie",), NameMeaning("cookie", certain=True)),
    (frozenset({"authorization"}), (), NameMeaning("authorization", certain=True)),
    (words.SECRETS, words.SECRET_ENDINGS, _SECRET),
    (words.UNCERTAIN, (), _UNCERTAIN),
    (frozenset({"pin"}), (), NameMeaning("pin", certain=True)),
)
# The first row with a word decides about it.
_MEANINGS: Final = {word: meaning for known, _, meaning in reversed(_BY_WORD) for word in known}
_ENDINGS: Final = tuple(ending for _, endings, _ in _BY_WORD for ending in endings)
_FOREIGN_PASSWORDS: Final = tuple(phrase.rpartition(" ")[2] for phrase in words.FOREIGN_PASSWORDS)
_FOREIGN_SECRETS: Final = tuple(words.FOREIGN_SECRETS)


def words_of(name: str) -> list[str]:
    """Return the lower-case words of a name in snake, kebab, camel or upper case; digits only separate."""
    name = name[-NAME_MAX:]
    found: list[str] = _WORD.findall(name if name.isascii() else name.translate(_UNACCENTED))
    return " ".join(found).lower().split()


# More than the names in a megabyte of random ones, so that a second round finds them all in the cache.
@lru_cache(maxsize=32_768)
def meaning_of_name(name: str) -> NameMeaning | None:
    """Return the meaning of a secret name; None for an ordinary name."""
    if not name.isascii() and (foreign := _by_foreign_word(name.lower())):
        return foreign
    if name.islower() and name.isalpha() and name.isascii():
        # One plain word, as most values.
        return None if name in words.HARMLESS_TAILS else _by_last_word(name[-NAME_MAX:], "")
    parts = words_of(name)
    qualified = len(parts) > 1
    while len(parts) > 1 and parts[-1] in words.NEUTRAL_TAILS:
        parts.pop()
    if not parts:
        return None
    last = parts[-1]
    before = parts[-2] if len(parts) > 1 else ""
    if last in words.HARMLESS_TAILS:
        return _IDS.get(before) if last == "id" else None
    found = _by_last_word(last, before)
    if found is None and qualified and _is_any_known(parts):
        # An unknown word follows a secret one, as in `token_github`: only a random value is a secret.
        return None if words.HARMLESS_WORDS.intersection(parts) else _UNCERTAIN
    return found


def is_secret_name(value: str) -> bool:
    """Return whether a value is itself a secret name. Not cached: values may be secrets, and would displace the names."""
    return meaning_of_name.__wrapped__(value) is not None


def _by_foreign_word(name: str) -> NameMeaning | None:
    """Return the meaning of a name in another script by its ending, ignoring a particle."""
    parts = [part.rstrip(words.PARTICLES) for part in name.split("_")]
    if any(part.endswith(_FOREIGN_PASSWORDS) for part in parts):
        return _PASSWORD
    return _SECRET if any(part.endswith(_FOREIGN_SECRETS) for part in parts) else None


def _is_any_known(parts: list[str]) -> bool:
    """Return whether one of the words alone is a secret name."""
    return any(part in ("key", "keys", "pass", "pw") or _by_word(part) for part in parts)


def _by_last_word(last: str, before: str) -> NameMeaning | None:
    """Return the meaning of the last word of a name, given the word before it."""
    if last in ("key", "keys"):
        return _by_key(before)
    if last in ("pass", "pw"):
        return _UNCERTAIN if before in words.HARMLESS_PASSES else _PASSWORD
    if last in ("secret", "secrets") and before in words.HOLDING_SECRETS:
        return _UNCERTAIN
    if last == "sid" and before == "oracle":
        return None
    if f"{before} {last}" in words.SECRET_PAIRS:
        return _SECRET
    return _UNCERTAIN if last in words.UNCERTAIN_LAST else _by_word(last)


def _by_word(word: str) -> NameMeaning | None:
    """Return the meaning of a word by itself, or by its ending."""
    if word in _MEANINGS or not word.endswith(_ENDINGS):
        is_key = word.endswith("key") and word[:-3] in words.KEY_QUALIFIERS
        return _KEY if is_key else _MEANINGS.get(word)
    return next(meaning for _, endings, meaning in _BY_WORD if word.endswith(endings))


def _by_key(before: str) -> NameMeaning | None:
    """Return the meaning of a name that ends in `key`, given the word before it."""
    if before in words.KEY_QUALIFIERS:
        return _KEY
    if before in words.HASHED:
        return _HASHED_KEY
    if before in words.HARMLESS_KEYS:
        return None
    return _UNCERTAIN_KEY if before else _UNCERTAIN
