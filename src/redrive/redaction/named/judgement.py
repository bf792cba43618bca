# SPDX-License-Identifier: Apache-2.0
"""Decide whether the value after a secret name is a secret, given the name, the syntax and the look of the value.

Types, placeholders and names of fields are not; `unquoted.py` decides about values without quotes. Nothing is replaced here: the
answer is the span and the kind of the secret.
"""

from __future__ import annotations

import re
from typing import Final

from redrive.redaction.named.lines import is_in_string
from redrive.redaction.named.names import is_secret_name
from redrive.redaction.named.occurrence import NamedValue
from redrive.redaction.named.spans import (
    Span,
    authorization_span,
    block_span,
    heredoc_span,
    line_span,
    quoted_span,
    unquoted_span,
)
from redrive.redaction.named.syntax import Syntax
from redrive.redaction.named.unquoted import unquoted_value
from redrive.redaction.named.values import (
    is_expression,
    is_guarded,
    is_identifier,
    is_inert,
    is_pin,
    is_prose,
    is_random,
    is_verdict,
)

_CLOSED_PAIR: Final = re.compile(r"\\{0,15}[\"'`]\s{0,8}[)\]]")
_CLOSED_KEY: Final = re.compile(r"[\"']\s{0,4}:")
_COOKIE_PAIR: Final = re.compile(r"[^\s=;,\"'(){}\[\]<>]{1,128}=[^\s=]")
_AFTER_STRING: Final = re.compile(r"[\s+,;:.%*|&)\]}>\"'`\\]|\Z")
_BRACKETED: Final = re.compile(r"\[\s{0,8}|\(\s{0,8}|[{<][bBuU]?(?=\\{0,15}[\"'`])|<(?=\w+>)")
_CLOSED_BRACKET: Final = re.compile(r"\\{0,15}[\"'`]{0,3},?\s{0,8}[)\]}>]")
_BRACKETS: Final = (")", "]", "}", ">")
_TYPE: Final = re.compile(r"(?:str|bytes|string|Optional|Any|None)\b")


def secret_of(named: NamedValue) -> tuple[Span, str] | None:
    """Return the span and kind of the secret after the name; None when there is none."""
    text, position, meaning = named.text, named.after.end(), named.meaning
    if named.syntax is Syntax.BLOCK:
        return block_span(text, position), meaning.kind
    if _closes_string(named):
        return None
    brackets = _BRACKETED.match(text, position) if named.syntax is Syntax.ASSIGNED else None
    if brackets:
        return _bracketed_value(named, brackets.end())
    span = quoted_span(text, position)
    if span is None and named.syntax is Syntax.ASSIGNED and text.startswith("<<", position):
        span = heredoc_span(text, position)
    if named.syntax is Syntax.PAIR and not _is_pair(named, span):
        return None
    if span is not None and "\n" in named.after[0] and _CLOSED_KEY.match(text, span.end):
        # The next line starts with a name of its own.
        return None
    if meaning.kind == "authorization" and named.syntax is not Syntax.PROSE:
        span = _authorization(named, span)
    elif span is not None:
        span = span if _is_quoted_secret(named, text[span.start : span.end]) else None
    elif meaning.kind == "cookie" and "cookie" in named.name.lower() and _COOKIE_PAIR.match(text, position):
        span = line_span(text, position, named.quote)
    else:
        span = unquoted_value(named)
    return None if span is None else (span, meaning.kind)


def _is_pair(named: NamedValue, span: Span | None) -> bool:
    """Return whether a name and a value form a pair: alone in brackets, or clearly a password and its name."""
    if span is None or _CLOSED_PAIR.match(named.text, span.end):
        return span is not None
    value = named.text[span.start : span.end]
    is_mixed = any(map(str.isupper, value)) and any(map(str.isdigit, value))
    return named.meaning.kind == "password" and is_mixed and is_guarded(value) and not is_expression(value)


def _bracketed_value(named: NamedValue, start: int) -> tuple[Span, str] | None:
    """Return the first value in brackets: a list in which some programs print repeated headers, or careless text."""
    text, meaning = named.text, named.meaning
    quoted = quoted_span(text, start)
    span = quoted or unquoted_span(text, start)
    value = text[span.start : span.end]
    if meaning.kind == "cookie" and _COOKIE_PAIR.match(text, span.start):
        return span, meaning.kind
    if not meaning.certain or (quoted and _CLOSED_KEY.match(text, span.end)):
        return None
    if is_random(value.rpartition(" ")[2]):
        return span, meaning.kind
    # Lists of names and messages are common; only a single value, or one like a password, is a secret.
    is_single = _CLOSED_BRACKET.match(text, span.end) is not None
    if quoted is None:
        is_secret = is_single and is_guarded(value) and not is_inert(value) and not is_expression(value)
    elif text[start - 1] == "(" or is_guarded(value) or (is_single and not re.search(r"\s", value)):
        is_secret = _is_quoted_secret(named, value)
    else:
        is_secret = False
    return (span, meaning.kind) if is_secret else None


def _closes_string(named: NamedValue) -> bool:
    """Return whether the quote after the separator closes a string that contains the name: `print("token=" + x)`."""
    position = named.after.end()
    quote = named.text[position : position + 1]
    if quote not in ("'", '"', "`") or named.after["close"] or not named.after["sep"]:
        return False
    # Where a value follows, the quotes within quotes are careless.
    return _AFTER_STRING.match(named.text, position + 1) is not None and is_in_string(
        named.text, named.start, quote
    )


def _authorization(named: NamedValue, span: Span | None) -> Span | None:
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
    is_closed = text.startswith(_BRACKETS, span.end) and is_inert(value + text[span.end])
    return None if is_closed or is_expression(value) else span


def _is_quoted_secret(named: NamedValue, value: str) -> bool:
    """Decide about a value in quotes."""
    if not named.meaning.certain or named.syntax is Syntax.NEXT_TO:
        return is_random(value)
    if is_inert(value) or is_verdict(value):
        return False
    if named.meaning.kind == "pin":
        return is_pin(value)
    if named.syntax is Syntax.PROSE:
        return is_guarded(value) or (len(value) > 3 and not named.after["call"] and not named.after["loose"])
    if named.after["sep"] in ("==", "===") or (named.meaning.kind == "cookie" and "=" not in value):
        return is_guarded(value)
    return not (is_identifier(value) and _is_field_name(named, value))


def _is_field_name(named: NamedValue, value: str) -> bool:
    """Return whether a quoted word is the name of a field: in a list of names, or as the value of a constant."""
    if named.syntax is Syntax.PAIR or (named.meaning.kind == "cookie" and "cookie" in value.lower()):
        return True
    return ("_" in value and is_secret_name(value)) or (
        named.meaning.kind == "secret" and value == named.name
    )
