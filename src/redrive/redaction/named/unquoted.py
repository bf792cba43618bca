# SPDX-License-Identifier: Apache-2.0
"""Decide whether a value without quotes is a secret: a literal, not a name in code or a word of a sentence.

Without quotes the context matters as much as the look of the value. The answer is only the span of the secret.
"""

from __future__ import annotations

import re
from typing import Final

from redrive.redaction.named.lines import in_source, line_start
from redrive.redaction.named.occurrence import NamedValue
from redrive.redaction.named.spans import Span, line_span, unquoted_span
from redrive.redaction.named.syntax import Syntax
from redrive.redaction.named.values import (
    is_expression,
    is_guarded,
    is_identifier,
    is_inert,
    is_pin,
    is_prose,
    is_random,
)
from redrive.redaction.named.vocabulary import PASSWORDS, PROSE_WORDS

PARSED_MAX: Final = 24
"""How far before a name a word of a parser's message may be."""

_TEMPLATES: Final = ("${", "$(", "{{", "#{", "<%", "%{")
# A parser's tokens are small numbers; a card's security code has at least three digits.
_SMALL: Final = re.compile(r"[0-9]{1,2}|0x[0-9a-fA-F]{1,4}")
_AFTER_SETTING: Final = ("", " ", "\n", "\r", "&", ";")
# A parser names the kind of the token it found; a test runner counts passed tests.
_PARSED: Final = re.compile(
    r"\b(?:unexpected|expected|got|near|current|next|unknown|invalid|bad) token\Z", re.IGNORECASE
)
_TALLY: Final = re.compile(r"[0-9]{1,4}(?:[a-z]{1,2}|%|/[0-9]{1,4})?|tests?[_/.]\S{0,200}")
_ONE_TIME: Final = re.compile(r"(?:code|otp|pin|passcode|cvv|cvc)\Z", re.IGNORECASE)
_CELL_END: Final = re.compile(r"[.,;:!?]{0,4}[ \t]{0,80}(?:[|\n\r]|\Z)")
_NEXT_WORD: Final = re.compile(r" [a-z]{2,}")
# A word with a value of its own belongs to a list of settings, not to a sentence.
_NEXT_SETTING: Final = re.compile(r" [\w.-]{1,40}[=:]")


def unquoted_value(named: NamedValue) -> Span | None:
    """Return the unquoted value if it is a secret."""
    text, position = named.text, named.after.end()
    if text.startswith(_TEMPLATES, position):
        return None
    span = unquoted_span(text, position)
    if not named.meaning.certain or named.syntax is Syntax.NEXT_TO:
        # In a query string a parameter without a value may follow.
        return span if is_random(text[span.start : span.end].partition("&")[0]) else None
    if named.syntax is Syntax.ASSIGNED:
        span = _phrase(named, span)
    value = text[span.start : span.end]
    if is_inert(value) or _describes_name(named, value):
        return None
    if named.meaning.kind == "pin" or (named.syntax is Syntax.PROSE and value.isdigit()):
        return span if is_pin(value) and _ONE_TIME.search(named.name) else None
    if named.syntax is Syntax.PROSE or named.meaning.kind == "cookie" or named.after["sep"] in ("==", "==="):
        return _guarded_value(named, span, value)
    return span if _is_unquoted_secret(named, span, value) else None


def _guarded_value(named: NamedValue, span: Span, value: str) -> Span | None:
    """Return the value that follows a name without a clear assignment, if it looks like a password."""
    if "|" in (named.after["loose"] or ""):
        # In a table, a bar before the value needs one after it, or the end of the line.
        value = value.partition("|")[0]
        span = Span(span.start, span.start + len(value), quoted=False)
        if not _CELL_END.match(named.text, span.end):
            return None
    is_far = (
        named.after["loose"]
        or named.after["sep"]
        or (named.after["space"] and named.name.lower() not in PASSWORDS)
    )
    if is_far and named.meaning.kind == "password" and is_identifier(value):
        # `user_pwd column0`, `password|oauth2|apikey`, `password == expected1`.
        return None
    following = named.text[span.end : span.end + 1]
    is_code = is_expression(value) or (following == "(" and is_expression(value + following))
    return span if is_guarded(value) and not is_code else None


def _describes_name(named: NamedValue, value: str) -> bool:
    """Return whether a value describes its name: `unexpected token: done`, `pass: 12`, `пароль: неверен`."""
    if not value.isascii():
        # A word in another script is a word; passwords use ASCII letters or contain a digit.
        return value.replace(" ", "").isalpha()
    if value.isalpha():
        return bool(_PARSED.search(named.text, max(0, named.start - PARSED_MAX), named.after.end("tail")))
    return named.name in ("pass", "PASS") and _TALLY.fullmatch(value) is not None


def _is_unquoted_secret(named: NamedValue, span: Span, value: str) -> bool:
    """Return whether an unquoted value is a literal, not a name in code or a word of a sentence."""
    text = named.text
    following = text[span.end : span.end + 1]
    # The following text makes a value an expression only if it opens a call or an index.
    if is_expression(value) or (following in ("(", "[") and is_expression(value + following)):
        return _is_plain_setting(named, span, value)
    if named.syntax is Syntax.FLAG:
        # Two spaces and a sentence after a flag are its help text.
        return not (value.startswith("--") or _is_help(named, span, value))
    if value[0] == "{" and following == "}" and named.meaning.kind == "password":
        # ODBC puts a password with special characters in braces; a template contains a plain name.
        return is_guarded(value)
    if "://" in value or value[0] in "{[(" or (named.meaning.kind == "secret" and _SMALL.fullmatch(value)):
        return False
    if not is_identifier(value):
        return is_random(value) or not in_source(text, named.start) or any(sign.isdigit() for sign in value)
    is_code = following in ("(", "[") or (following in (")", ",") and not value[-1].isdigit())
    return not (is_code or _is_word_of_sentence(named, span, value) or in_source(text, named.start))


def _is_help(named: NamedValue, span: Span, value: str) -> bool:
    """Return whether the text describes a flag: two spaces and a sentence, as in its help, or words of prose."""
    following = _NEXT_WORD.match(named.text, span.end) if value.isalpha() else None
    if following is None:
        return False
    return len(named.after["space"]) > 1 or following[0][1:] in PROSE_WORDS


def _is_plain_setting(named: NamedValue, span: Span, value: str) -> bool:
    """Return whether `password=secret` is a setting: no spaces, outside of code, not followed by code."""
    text = named.text
    is_tight = text[span.start - 1] == "=" and text[span.end : span.end + 1] in _AFTER_SETTING
    is_word = named.meaning.kind == "password" and is_identifier(value)
    return is_tight and is_word and not in_source(text, named.start)


def _is_word_of_sentence(named: NamedValue, span: Span, value: str) -> bool:
    """Return whether a plain word after a name continues as a sentence. A password may be a plain word, a token may not."""
    text = named.text
    if not value.isalpha() or not _NEXT_WORD.match(text, span.end):
        return False
    is_setting = text[span.start - 1] == "=" or _NEXT_SETTING.match(text, span.end) is not None
    return not (named.meaning.kind == "password" and is_setting)


def _phrase(named: NamedValue, span: Span) -> Span:
    """Extend the value of a `name: several words` line to its end, unless the words are a sentence."""
    text = named.text
    if named.after["sep"] != ":" or text[span.end : span.end + 1] != " ":
        return span
    if text[line_start(text, named.start) : named.start].strip(" \t-\"'"):
        return span
    whole = line_span(text, span.start, "")
    value = text[whole.start : whole.end]
    is_sentence = is_prose(value) or any(sign in value for sign in "={}[]:,;#")
    return span if is_sentence else whole
