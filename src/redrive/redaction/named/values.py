# SPDX-License-Identifier: Apache-2.0
"""Classify the look of a value: harmless, an expression of code, a word of prose, or random enough to be a key.

Nothing here depends on the context of a value; `judgement.py` combines these tests with the name and the syntax. All of them are
linear in the value and read at most `LOOKED_AT_MAX` characters of it.
"""

from __future__ import annotations

import re
from typing import Final

from redrive.redaction.named import vocabulary as words
from redrive.redaction.named.names import Kept, is_secret_name
from redrive.redaction.placeholders import SENTINEL

LOOKED_AT_MAX: Final = 256
"""Of longer values only the first characters count."""

RANDOM_MIN: Final = 16
"""A shorter value is never called random."""

SPLIT_MIN: Final = 20
"""A value of short pieces only is random from this length on."""

SHIFTS_PER: Final = 5
"""Random text changes between letters, digits and cases at least once in so many characters."""

_NOTHING: Final = re.compile(
    rf"(?>(?:[{SENTINEL}]|\{{[^{{}}]{{0,80}}\}}|\\+[nrt]|[\s*.•…#?,;:|(){{}}\[\]\"'`\\=/-]|[xX]{{3,}}+(?!\w))*)"
)
_STANDING: Final = frozenset("xXyYRCIFHp")
_STANDS_FOR: Final = re.compile(
    r"\$\{[^{}]*\}|\$\{\{[^{}]*\}\}|\$\([^()]*\)?|\$[A-Z_][A-Z0-9_]*|\$(?:[a-z_]+|[0-9]{1,2})|%\(\w*\)[sdr]|%[sdr]|\{\{[^{}]*\}\}|\{[\w.:!]*\}"
    r"|<[^<>]*>?|[Yy][Oo][Uu][Rr](?:[-_][A-Za-z]+){1,6}|(?:REPLACE|CHANGE|INSERT|FILL)_[A-Z_]{2,40}"
    r"|\[[A-Za-z _-]*\]?|%[A-Za-z_]+%|![A-Z]?[a-z]+(?:[A-Z-][a-z]+)*(?:\s.*)?|\(\w+ ?\w*\)"
    r"|(?:env|file|fd|vault|ssm|op|ref\+\w+|awssm|gcpsm|keyring|arn|secretsmanager):.*|projects/\S+/secrets/\S*|@\w+(?:\.\w+)*\(.*"
    # After `?q=password` the log line of a web server continues.
    r"|HTTP/[0-9.]{1,3}"
)
# The name of a header, such as `X-Api-Key`, and a file: a root that systems have, or an extension, and no random piece.
_HEADER_NAME: Final = re.compile(r"[A-Z][A-Za-z]*(?:-[A-Z][A-Za-z]*)+")
_FILE: Final = re.compile(
    r"(?:~|\.{1,2}|[A-Za-z]:)?(?:[\\/][\w.@-]+){1,12}[\\/][\w-]+\.[a-z][a-z0-9]{1,4}"
    r"|~?/(?:app|etc|home|mnt|opt|root|run|srv|tmp|usr|var|vault|workspace)(?:/[\w.@-]+){1,12}"
)
# Recognisable kinds: a digest, a path, an address or a file.
_LABELLED: Final = re.compile(
    r"(?i:arn|sha256|sha1|md5):|\.?/|.*(?:://"
    r"|\.(?:json|png|jpe?g|gif|svg|pdf|csv|txt|log|html?|xml|ya?ml|toml|zip|gz|parquet|py|js|ts|css|pem|crt)\Z)"
)
# A parameter of a prepared statement: `:password`, `@token`.
_BOUND: Final = re.compile(r"[:@][A-Za-z_]+")
_CALLED: Final = re.compile(r"(?:await |new |not )?[A-Za-z_$][\w$]*(?:(?:\.|->|::)[A-Za-z_][\w$]*)*[(\[]")
_DOTTED: Final = re.compile(r"[A-Za-z_]\w*(?:(?:\?\.|\.|->|::)[A-Za-z_]\w*)+")
# Variables are not numbered in hundreds; passwords often end with such a number.
_NUMBERED: Final = re.compile("[0-9]{3}")
_PIN: Final = re.compile("[0-9]{4,8}")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_]+[0-9]?")
# Words of a passphrase joined by dashes; `case-sensitive` and `out-of-date` are words of a sentence.
_DASHED_WORDS: Final = re.compile(r"[A-Za-z]{4,}(?:-[A-Za-z]{4,}){2,}")
_PIECES: Final = re.compile(r"[A-Za-z0-9]++")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
# A UUID, a ULID or a number.
_ID: Final = re.compile(rf"{_UUID.pattern}|[0-7][0-9A-HJKMNP-TV-Z]{{25}}|[0-9]{{16,}}")
_HASH: Final = re.compile(r"(?:[a-z_]{1,20}[:/.-])*[0-9a-f]{16,}")
_TOKEN_LIKE: Final = re.compile(r"[\w+/=.~:!@#$%^*?-]+")
# Only base64 ends in equals signs, even where it begins like a path.
_PADDED: Final = re.compile("[A-Za-z0-9+/]{16,}={1,2}")
_ODD: Final = re.compile(r"[!@#$%^&+=~?]")
_DIGIT: Final = re.compile("[0-9]")
_CAMEL_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SHIFTS: Final = re.compile(r"[a-z](?=[A-Z0-9])|[A-Z](?=[0-9])|[0-9](?=[A-Za-z])")


def is_inert(value: str) -> bool:
    """Return whether a value needs no hiding: empty, masked, a placeholder, a type or a word such as `required`."""
    looked_at = value[:LOOKED_AT_MAX].strip()
    if looked_at.rstrip(".,;:!)`'\"").lower() in words.INERT_WORDS:
        return True
    if looked_at.isalnum():
        # Without punctuation, only a row of x is a mask.
        return len(looked_at) >= 3 and not looked_at.strip("xX")
    # A value that begins like a word can match only the few patterns that begin with these letters.
    may_stand = not looked_at[:1].isalnum() or looked_at[0] in _STANDING or ":" in looked_at
    if may_stand and (_NOTHING.fullmatch(looked_at) or _STANDS_FOR.fullmatch(looked_at)):
        return True
    return len(looked_at) > 3 and _names_something(looked_at)


def _names_something(value: str) -> bool:
    """Return whether a value is not a secret but the name of one: a header, a bound parameter of SQL, or a file."""
    if value[:1] in ("/", ".", "~") or value[1:2] == ":":
        return bool(_FILE.fullmatch(value)) and not any(_is_mixed(piece) for piece in _PIECES.findall(value))
    if "-" not in value and value[0] not in ":@":
        return False
    is_name = _HEADER_NAME.fullmatch(value) or _BOUND.fullmatch(value)
    return bool(is_name) and is_secret_name(value)


def is_expression(value: str) -> bool:
    """Return whether an unquoted value is code that names a value: `self.token`, `get()`, `environ["X"]`."""
    looked_at = value[:LOOKED_AT_MAX]
    if not looked_at.isalnum():
        # Only a value with punctuation can be a call or a path of names.
        called = _CALLED.match(looked_at)
        if called:
            return len(called[0]) < RANDOM_MIN or not _is_mixed(called[0])
        if _DOTTED.fullmatch(looked_at):
            return looked_at.split(".", 1)[0].lower() in words.CODE_ROOTS or not re.search(r"\d", looked_at)
    # A plain name such as `password` or `new_token` on the right-hand side is a variable.
    is_name = _IDENTIFIER.fullmatch(looked_at) or (
        "_" in looked_at and looked_at.isidentifier() and not _NUMBERED.search(looked_at)
    )
    return bool(is_name) and is_secret_name(looked_at) and not is_random(looked_at)


def is_identifier(value: str) -> bool:
    """Return whether an unquoted value is one plain variable name, without digits except perhaps the last character."""
    return bool(_IDENTIFIER.fullmatch(value[:LOOKED_AT_MAX]))


def is_prose(value: str) -> bool:
    """Return whether a value of several words reads like a sentence, not like a passphrase."""
    found = _words(value)
    return len(found) > 1 and not words.PROSE_WORDS.isdisjoint(found)


def is_validation(value: str) -> bool:
    """Return whether a quoted value is a validator's message about a field: three words or more, one of them a judgement."""
    found = _words(value)
    is_sentence = len(found) >= 3 and not words.VALIDATION_WORDS.isdisjoint(found)
    return is_sentence and not any(map(is_guarded, value[:LOOKED_AT_MAX].split()))


def _words(value: str) -> list[str]:
    return [word.strip(".,;:!'\"()") for word in value[:LOOKED_AT_MAX].lower().split()]


def is_guarded(value: str) -> bool:
    """Return whether a word in prose looks like a password: six characters, letters mixed with digits or punctuation."""
    looked_at = value[:LOOKED_AT_MAX].rstrip(".,;:!?)")
    if len(looked_at) < 6 or looked_at.isdigit():
        return False
    if looked_at.lower().partition("-")[0] in words.HASH_WORDS or _UUID.fullmatch(looked_at):
        return False
    if looked_at.isalpha() or not any(map(str.isalpha, looked_at)):
        return False
    is_odd = _ODD.search(looked_at) is not None or any(map(str.isdigit, looked_at))
    return is_odd or _DASHED_WORDS.fullmatch(looked_at) is not None


def is_pin(value: str) -> bool:
    """Return whether a value is a PIN: four to eight digits."""
    return _PIN.fullmatch(value) is not None


def is_random(value: str, kept: Kept = "uuid") -> bool:
    """Return whether a value looks random: a long number, letters and digits well mixed, or letters that make no words."""
    looked_at = value[:96].strip()
    bare = looked_at.rstrip("=")
    if len(bare) < RANDOM_MIN or not _TOKEN_LIKE.fullmatch(bare):
        return False
    if _ID.fullmatch(bare):
        return kept == "nothing"
    is_varied = _DIGIT.search(bare) is not None and not (bare.islower() or bare.isupper())
    if is_varied and _PADDED.fullmatch(looked_at):
        return True
    if (kept == "hash" and _HASH.fullmatch(bare)) or _LABELLED.match(bare):
        return False
    # Signs may split a random value into short pieces; the parts of a name have no shifts inside.
    is_split = len(bare) >= SPLIT_MIN and count_shifts(bare) * SHIFTS_PER >= len(bare)
    is_short = is_varied and len(_CAMEL_WORDS.findall(bare)) * 3 >= len(bare)
    return is_split or is_short or any(map(_is_mixed, _PIECES.findall(bare))) or _is_wordless(bare.lower())


def _is_wordless(value: str) -> bool:
    """Return whether fewer than half of the pairs of letters, of twelve or more, are common in words."""
    pairs = [value[at : at + 2] for at in range(len(value) - 1)]
    pairs = [pair for pair in pairs if pair.isalpha()]
    return len(pairs) >= 12 and 2 * sum(map(words.COMMON_PAIRS.__contains__, pairs)) < len(pairs)


def count_shifts(piece: str) -> int:
    """Return how often a text changes from one kind of letter or digit to another, as words and numbers rarely do."""
    return len(_SHIFTS.findall(piece))


def _is_mixed(piece: str) -> bool:
    """Return whether ten or more letters of both cases and digits alternate as they do in random text."""
    if len(piece) < 10:
        return False
    if _DIGIT.search(piece) and count_shifts(piece) * SHIFTS_PER >= len(piece):
        return True
    # Words of a name in camel case are longer than the three characters that random capitals cut out.
    return len(piece) >= RANDOM_MIN and len(_CAMEL_WORDS.findall(piece)) * 3 >= len(piece)
