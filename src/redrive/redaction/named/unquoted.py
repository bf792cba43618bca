# SPDX-License-Identifier: Apache-2.0
"""Decides whether a value without quotes is a secret: a literal, or a name in code, or a word of a sentence.

Where nothing marks the ends of a value, how it stands there says as much as what it looks like. Says only where the secret is.
"""

from __future__ import annotations

import re
from typing import Final

from redrive.redaction.named.lines import in_source, line_start
from redrive.redaction.named.occurrence import Named
from redrive.redaction.named.spans import Span, bare_span, line_span
from redrive.redaction.named.syntax import Carrier
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
"""How far before a name a word may stand that a parser says."""

_TEMPLATES: Final = ("${", "$(", "{{", "#{", "<%", "%{")
# Tokens of a parser are small numbers; a card's security code has at least three digits.
_SMALL: Final = re.compile(r"[0-9]{1,2}|0x[0-9a-fA-F]{1,4}")
_AFTER_SETTING: Final = ("", " ", "\n", "\r", "&", ";")
# A parser names the kind of the token it met; a test run counts what passed.
_PARSED: Final = re.compile(
    r"\b(?:unexpected|expected|got|near|current|next|unknown|invalid|bad) token\Z", re.IGNORECASE
)
_TALLY: Final = re.compile(r"[0-9]{1,4}(?:[a-z]{1,2}|%|/[0-9]{1,4})?|tests?[_/.]\S{0,200}")
_ONE_TIME: Final = re.compile(r"(?:code|otp|pin|passcode|cvv|cvc)\Z", re.IGNORECASE)
_CELL_END: Final = re.compile(r"[.,;:!?]{0,4}[ \t]{0,80}(?:[|\n\r]|\Z)")
_NEXT_WORD: Final = re.compile(r" [a-z]{2,}")
# A word that has a value of its own belongs to a list of settings, not to a sentence.
_NEXT_SETTING: Final = re.compile(r" [\w.-]{1,40}[=:]")


def bare_value(named: Named) -> Span | None:
    """Return the unquoted value, when it is a secret."""
    text, position = named.text, named.after.end()
    if text.startswith(_TEMPLATES, position):
        return None
    span = bare_span(text, position)
    if not named.said.certain or named.carrier is Carrier.NEXT_TO:
        # In a query string a parameter without a value may follow.
        return span if is_random(text[span.start : span.end].partition("&")[0]) else None
    if named.carrier is Carrier.ASSIGNED:
        span = _phrase(named, span)
    value = text[span.start : span.end]
    if is_inert(value) or _is_said_of_name(named, value):
        return None
    if named.said.kind == "pin" or (named.carrier is Carrier.PROSE and value.isdigit()):
        return span if is_pin(value) and _ONE_TIME.search(named.name) else None
    if named.carrier is Carrier.PROSE or named.said.kind == "cookie" or named.after["sep"] in ("==", "==="):
        return _guarded_value(named, span, value)
    return span if _is_bare_secret(named, span, value) else None


def _guarded_value(named: Named, span: Span, value: str) -> Span | None:
    """Return the value that follows a name without being plainly assigned to it, when it looks like a password."""
    if "|" in (named.after["loose"] or ""):
        # A bar before the value of a table closes it as well, or the line does.
        value = value.partition("|")[0]
        span = Span(span.start, span.start + len(value), quoted=False)
        if not _CELL_END.match(named.text, span.end):
            return None
    is_far = (
        named.after["loose"]
        or named.after["sep"]
        or (named.after["space"] and named.name.lower() not in PASSWORDS)
    )
    if is_far and named.said.kind == "password" and is_identifier(value):
        # `user_pwd column0`, `password|oauth2|apikey`, `password == expected1`.
        return None
    following = named.text[span.end : span.end + 1]
    is_code = is_expression(value) or (following == "(" and is_expression(value + following))
    return span if is_guarded(value) and not is_code else None


def _is_said_of_name(named: Named, value: str) -> bool:
    """Tell whether a value says something about its name: `unexpected token: done`, `pass: 12`, `пароль: неверен`."""
    if not value.isascii():
        # Words of other languages are words; passwords are typed in plain letters, or hold a digit.
        return value.replace(" ", "").isalpha()
    if value.isalpha():
        return bool(_PARSED.search(named.text, max(0, named.start - PARSED_MAX), named.after.end("tail")))
    return named.name in ("pass", "PASS") and _TALLY.fullmatch(value) is not None


def _is_bare_secret(named: Named, span: Span, value: str) -> bool:
    """Decide for an unquoted value: a literal, or a name in code, or a word of a sentence."""
    text = named.text
    following = text[span.end : span.end + 1]
    # What follows makes an expression of a value only where it opens a call or an index.
    if is_expression(value) or (following in ("(", "[") and is_expression(value + following)):
        return _is_plain_setting(named, span, value)
    if named.carrier is Carrier.FLAG:
        # Two spaces and a sentence after a flag are its help.
        return not (value.startswith("--") or _is_help(named, span, value))
    if value[0] == "{" and following == "}" and named.said.kind == "password":
        # ODBC puts a password with odd signs in braces; a template holds a plain name.
        return is_guarded(value)
    if "://" in value or value[0] in "{[(" or (named.said.kind == "secret" and _SMALL.fullmatch(value)):
        return False
    if not is_identifier(value):
        return is_random(value) or not in_source(text, named.start) or any(sign.isdigit() for sign in value)
    is_code = following in ("(", "[") or (following in (")", ",") and not value[-1].isdigit())
    return not (is_code or _is_word_of_sentence(named, span, value) or in_source(text, named.start))


def _is_help(named: Named, span: Span, value: str) -> bool:
    """Tell whether a flag is spoken of: two spaces and a sentence, as in its help, or a word and one of every sentence."""
    following = _NEXT_WORD.match(named.text, span.end) if value.isalpha() else None
    if following is None:
        return False
    return len(named.after["space"]) > 1 or following[0][1:] in PROSE_WORDS


def _is_plain_setting(named: Named, span: Span, value: str) -> bool:
    """Tell whether `password=secret` is a setting: tight, outside of code, followed by nothing that code would have there."""
    text = named.text
    is_tight = text[span.start - 1] == "=" and text[span.end : span.end + 1] in _AFTER_SETTING
    is_word = named.said.kind == "password" and is_identifier(value)
    return is_tight and is_word and not in_source(text, named.start)


def _is_word_of_sentence(named: Named, span: Span, value: str) -> bool:
    """Tell whether a plain word after a name goes on as a sentence. A password may be a plain word; a token is none."""
    text = named.text
    if not value.isalpha() or not _NEXT_WORD.match(text, span.end):
        return False
    is_setting = text[span.start - 1] == "=" or _NEXT_SETTING.match(text, span.end) is not None
    return not (named.said.kind == "password" and is_setting)


def _phrase(named: Named, span: Span) -> Span:
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
