# SPDX-License-Identifier: Apache-2.0
"""Decides whether what follows a telling name is a secret, given the name, the carrier and the look of the value.

Expressions of code, types, placeholders and words of a sentence are none. Nothing is replaced here: the answer is where
the secret stands and of what kind it is.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from redrive.core.redact.carriers import Carrier
from redrive.core.redact.lines import in_source, is_in_string, line_start
from redrive.core.redact.names import Telling, telling
from redrive.core.redact.spans import Span, authorization_span, bare_span, block_span, line_span, quoted_span
from redrive.core.redact.values import (
    is_expression,
    is_guarded,
    is_identifier,
    is_inert,
    is_pin,
    is_prose,
    is_random,
    is_verdict,
)
from redrive.core.redact.vocabulary import PASSWORDS

PARSED_MAX: Final = 24
"""How far before a name a word may stand that a parser says."""

_TEMPLATES: Final = ("${", "$(", "{{", "#{", "<%", "%{")
_CLOSED_PAIR: Final = re.compile(r"\\{0,15}[\"']\s{0,8}[)\]]")
_CLOSED_KEY: Final = re.compile(r"[\"']\s{0,4}:")
_COOKIE_PAIR: Final = re.compile(r"[^\s=;,\"'(){}\[\]<>]{1,128}=[^\s=]")
_LISTED: Final = re.compile(r"\[\s{0,8}")
_TYPE: Final = re.compile(r"(?:str|bytes|string|Optional|Any|None)\b")
# Tokens of a parser are small numbers; a card's security code has at least three digits.
_SMALL: Final = re.compile(r"[0-9]{1,2}|0x[0-9a-fA-F]{1,4}")
_AFTER_SETTING: Final = ("", " ", "\n", "\r", "&", ";")
# A parser names the kind of the token it met; a test run counts what passed.
_PARSED: Final = re.compile(
    r"\b(?:unexpected|expected|got|near|current|next|unknown|invalid|bad) token\Z", re.IGNORECASE
)
_TALLY: Final = re.compile(r"[0-9]{1,4}(?:[a-z]{1,2}|%|/[0-9]{1,4})?|tests?[_/.]\S{0,200}")
_ONE_TIME: Final = re.compile(r"(?:code|otp|pin|passcode|cvv|cvc)\Z", re.IGNORECASE)
_NEXT_WORD: Final = re.compile(r" [a-z]{2,}")
# A word that has a value of its own belongs to a list of settings, not to a sentence.
_NEXT_SETTING: Final = re.compile(r" [\w.-]{1,40}[=:]")


class Named(NamedTuple):
    """A telling name in a text, and how a value follows it.

    A named tuple, not a dataclass, because one is made for every telling name of every text.
    """

    text: str
    start: int
    """Where the name starts."""
    after: re.Match[str]
    """What stands between the name and the value."""
    carrier: Carrier
    said: Telling

    @property
    def name(self) -> str:
        """The name itself."""
        return self.text[self.start : self.after.end("tail")]

    @property
    def quote(self) -> str:
        """The quote that opened before the name and is still open, as in `-H 'Cookie: ...'`."""
        before = self.text[self.start - 1 : self.start] if self.start else ""
        return before if before in ("'", '"') and not self.after["close"] else ""


def secret_of(named: Named) -> tuple[Span, str] | None:
    """Return where the secret stands that `named` announces, with its kind; None when there is none."""
    text, position, said = named.text, named.after.end(), named.said
    if named.carrier is Carrier.BLOCK:
        return block_span(text, position), said.kind
    if _closes_string(named):
        return None
    if named.carrier is Carrier.ASSIGNED and (listed := _LISTED.match(text, position)):
        return _listed_value(named, listed.end())
    span = quoted_span(text, position)
    if named.carrier is Carrier.PAIR and not _is_pair(named, span):
        return None
    if span is not None and "\n" in named.after[0] and _CLOSED_KEY.match(text, span.end):
        # The next line starts with a name of its own.
        return None
    if said.kind == "authorization" and named.carrier is not Carrier.PROSE:
        span = _authorization(named, span)
    elif span is not None:
        span = span if _is_quoted_secret(named, text[span.start : span.end]) else None
    elif said.kind == "cookie" and _COOKIE_PAIR.match(text, position):
        span = line_span(text, position, named.quote)
    else:
        span = _bare_value(named)
    return None if span is None else (span, said.kind)


def _is_pair(named: Named, span: Span | None) -> bool:
    """Tell whether a name and a value are two of a kind: alone in brackets, or plainly a password and its name."""
    if span is None or _CLOSED_PAIR.match(named.text, span.end):
        return span is not None
    value = named.text[span.start : span.end]
    return named.said.kind == "password" and is_guarded(value) and telling(value) is None


def _listed_value(named: Named, start: int) -> tuple[Span, str] | None:
    """Return the first value of a list, as headers that may occur more than once are shown."""
    text, said = named.text, named.said
    span = quoted_span(text, start) or bare_span(text, start)
    is_pair = said.kind == "cookie" and _COOKIE_PAIR.match(text, span.start) is not None
    is_secret = is_pair or (said.certain and is_random(text[span.start : span.end].rpartition(" ")[2]))
    return (span, said.kind) if is_secret else None


def _closes_string(named: Named) -> bool:
    """Tell whether the quote after the separator ends a string in which the name stands: `print("token=" + x)`."""
    position = named.after.end()
    quote = named.text[position : position + 1]
    if quote not in ("'", '"') or named.after["close"] or not named.after["sep"]:
        return False
    return is_in_string(named.text, named.start, quote)


def _authorization(named: Named, span: Span | None) -> Span | None:
    """Return the credentials of an Authorization header."""
    text, position = named.text, named.after.end()
    if span is None and text.startswith(("{", "[", "(", "<"), position):
        return None
    span = authorization_span(text, span or Span(position, position, quoted=False), named.quote)
    value = text[span.start : span.end]
    if _TYPE.match(text, position) or is_inert(value) or is_prose(value):
        return None
    if span.quoted:
        return span
    # The bracket that closes `{token}` or `${TOKEN}` ends a word without quotes.
    return None if is_expression(value) or is_inert(value + text[span.end : span.end + 1]) else span


def _is_quoted_secret(named: Named, value: str) -> bool:
    """Decide for a value in quotes."""
    if not named.said.certain or named.carrier is Carrier.NEXT_TO:
        return is_random(value)
    if is_inert(value) or is_verdict(value):
        return False
    if named.said.kind == "pin":
        return is_pin(value)
    if named.carrier is Carrier.PROSE:
        return is_guarded(value) or (len(value) > 3 and not named.after["call"] and not named.after["loose"])
    if named.after["sep"] in ("==", "===") or (named.said.kind == "cookie" and "=" not in value):
        return is_guarded(value)
    return not (is_identifier(value) and _is_field_name(named, value))


def _is_field_name(named: Named, value: str) -> bool:
    """Tell whether a quoted word is the name of a field: in a list of names, or as the value of a constant."""
    if named.carrier is Carrier.PAIR or (named.said.kind == "cookie" and "cookie" in value.lower()):
        return True
    return ("_" in value and telling(value) is not None) or (
        named.said.kind == "secret" and value == named.name
    )


def _bare_value(named: Named) -> Span | None:
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
    if named.said.kind == "pin" or (named.carrier is Carrier.PROSE and _ONE_TIME.search(named.name)):
        return span if is_pin(value) else None
    if named.carrier is Carrier.PROSE or named.said.kind == "cookie" or named.after["sep"] in ("==", "==="):
        return _guarded_value(named, span, value)
    return span if _is_bare_secret(named, span, value) else None


def _guarded_value(named: Named, span: Span, value: str) -> Span | None:
    """Return the value that follows a name without being plainly assigned to it, when it looks like a password."""
    if named.after["loose"]:
        # A bar before the value of a table closes it as well.
        value = value.partition("|")[0]
        span = Span(span.start, span.start + len(value), quoted=False)
    is_far = (
        named.after["loose"]
        or named.after["sep"]
        or (named.after["space"] and named.name.lower() not in PASSWORDS)
    )
    if is_far and named.said.kind == "password" and is_identifier(value):
        # `user_pwd column0`, `password|oauth2|apikey`, `password == expected1`.
        return None
    return span if is_guarded(value) and not is_expression(value) else None


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
        is_help = len(named.after["space"]) > 1 and value.isalpha() and _NEXT_WORD.match(text, span.end)
        return not (value.startswith("--") or is_help)
    if value[0] == "{" and following == "}" and named.said.kind == "password":
        # ODBC puts a password with odd signs in braces; a template holds a plain name.
        return is_guarded(value)
    if "://" in value or value[0] in "{[(" or (named.said.kind == "secret" and _SMALL.fullmatch(value)):
        return False
    if not is_identifier(value):
        return is_random(value) or not in_source(text, named.start) or any(sign.isdigit() for sign in value)
    is_code = following in ("(", "[") or (following in (")", ",") and not value[-1].isdigit())
    return not (is_code or _is_word_of_sentence(named, span, value) or in_source(text, named.start))


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
