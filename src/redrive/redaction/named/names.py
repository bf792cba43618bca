# SPDX-License-Identifier: Apache-2.0
"""Which names announce a secret: `db_password`, `X-Api-Key`, `clientSecret`, but not `token_count` or `primary_key`.

A name is cut into its words, whatever its case style, and judged by its last words. A *certain* name makes any
literal value a secret; an uncertain one (`key`, `auth`, `signature`) only a value that also looks random. The
vocabulary is in `vocabulary.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from redrive.redaction.named import vocabulary as words

NAME_MAX: Final = 128
"""Names longer than this are judged by their last characters only."""

NAME_CHARACTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
"""What a name may be written with."""

_WORD: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
_UNACCENTED: Final = str.maketrans("ñłöóőşžăáéã", "nloooszaaea")
# More than a megabyte of random names holds, so that a second round over it finds them judged.
_CACHED_NAMES_MAX: Final = 32_768


@dataclass(frozen=True, slots=True)
class Telling:
    """What a name says about its value."""

    kind: str
    """The kind of secret: the slug in the placeholder."""
    certain: bool
    """Whether any literal value is a secret, or only one that looks random."""


_UNCERTAIN: Final = Telling("secret", certain=False)
_SECRET: Final = Telling("secret", certain=True)
_PIN: Final = Telling("pin", certain=True)
_PASSWORD: Final = Telling("password", certain=True)
_COOKIE: Final = Telling("cookie", certain=True)
_AUTHORIZATION: Final = Telling("authorization", certain=True)
_BY_WORD: Final[tuple[tuple[frozenset[str], tuple[str, ...], Telling], ...]] = (
    (words.PASSWORDS, words.PASSWORD_ENDINGS, _PASSWORD),
    (words.COOKIES, ("cookie",), _COOKIE),
    (frozenset({"authorization"}), (), _AUTHORIZATION),
    (words.SECRETS, words.SECRET_ENDINGS, _SECRET),
    (words.UNCERTAIN, (), _UNCERTAIN),
    (frozenset({"pin"}), (), _PIN),
)


def _by_table(word: str) -> Telling | None:
    """Return what the first row says that knows the word or its ending."""
    return next((said for known, endings, said in _BY_WORD if word in known or word.endswith(endings)), None)


# Every word that can be telling at all is one of these or ends in one of those: most words of most names are neither.
_KNOWN: Final = frozenset({"key", "keys", "pass", "pw"}).union(*(known for known, _, _ in _BY_WORD))
_BY_KNOWN: Final = {word: _by_table(word) for word in _KNOWN}
_ENDINGS: Final = tuple(ending for _, endings, _ in _BY_WORD for ending in endings)
_FOREIGN_PASSWORDS: Final = tuple(phrase.rpartition(" ")[2] for phrase in words.FOREIGN_PASSWORDS)
_FOREIGN_SECRETS: Final = tuple(words.FOREIGN_SECRETS)
_PAIRED: Final = frozenset(pair.partition(" ")[2] for pair in words.SECRET_PAIRS)


def words_of(name: str) -> list[str]:
    """Return the lower-case words of a name in snake, kebab, camel or upper case; digits only separate."""
    name = name[-NAME_MAX:]
    found: list[str] = _WORD.findall(name if name.isascii() else name.translate(_UNACCENTED))
    return " ".join(found).lower().split()


@lru_cache(maxsize=_CACHED_NAMES_MAX)
def telling(name: str) -> Telling | None:
    """Return what `name` says about its value, or None when it is an ordinary name."""
    return _said(name)


def is_telling(value: str) -> bool:
    """Tell whether a value is itself a telling name. Nothing is kept: values may be secrets, and crowd out the names."""
    return _said(value) is not None


def _said(name: str) -> Telling | None:
    if not name.isascii() and (foreign := _by_foreign_word(name.lower())):
        return foreign
    if name.islower() and name.isalpha() and name.isascii():
        # One plain word, as most values are that are tried as names.
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
        return _UNCERTAIN if last == "id" and before in words.SECRET_IDS else None
    found = _by_last_word(last, before)
    if found is None and qualified and _is_any_known(parts):
        # An unknown word follows a telling one, as in `token_github`: only a random value is a secret.
        return None if words.HARMLESS_WORDS.intersection(parts) else _UNCERTAIN
    return found


def _by_foreign_word(name: str) -> Telling | None:
    """Judge a name of another script by what it ends in, a particle of the sentence aside."""
    parts = [part.rstrip(words.PARTICLES) for part in name.split("_")]
    if any(part.endswith(_FOREIGN_PASSWORDS) for part in parts):
        return _PASSWORD
    return _SECRET if any(part.endswith(_FOREIGN_SECRETS) for part in parts) else None


def _is_any_known(parts: list[str]) -> bool:
    """Tell whether one of the words would be telling on its own."""
    return not _KNOWN.isdisjoint(parts) or any(part.endswith(_ENDINGS) for part in parts)


def _by_last_word(last: str, before: str) -> Telling | None:
    """Judge the word that a name ends in, with the word before it."""
    is_known = last in _KNOWN or last in _PAIRED or last.endswith(_ENDINGS)
    if not is_known or (last == "sid" and before == "oracle"):
        return None
    if last in ("key", "keys"):
        return _by_key(before)
    if last in ("pass", "pw"):
        return _UNCERTAIN if before in words.HARMLESS_PASSES else _PASSWORD
    if last in ("secret", "secrets") and before in words.HOLDING_SECRETS:
        return _UNCERTAIN
    if last in _PAIRED and f"{before} {last}" in words.SECRET_PAIRS:
        return _SECRET
    return _BY_KNOWN[last] if last in _BY_KNOWN else _by_table(last)


def _by_key(before: str) -> Telling | None:
    """Judge a name that ends in `key` by the word before it."""
    if before in words.KEY_QUALIFIERS:
        return _SECRET
    if before in words.HARMLESS_KEYS:
        return None
    return _UNCERTAIN
