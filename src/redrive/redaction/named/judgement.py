# SPDX-License-Identifier: Apache-2.0
"""Decides whether what follows a telling name is a secret, given the name, the carrier and the look of the value.

Types, placeholders and names of fields are none; values without quotes are judged in `bare.py`. Nothing is replaced here: the
answer is where the secret stands and of what kind it is.
"""

from __future__ import annotations

import re
from typing import Final

from redrive.redaction.named.lines import is_in_string
from redrive.redaction.named.names import is_telling
from redrive.redaction.named.occurrence import Named
from redrive.redaction.named.spans import (
    Span,
    authorization_span,
    bare_span,
    block_span,
    heredoc_span,
    line_span,
    quoted_span,
)
from redrive.redaction.named.syntax import Carrier
from redrive.redaction.named.unquoted import bare_value
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

_CLOSED_PAIR: Final = re.compile(r"\\{0,15}[\"']\s{0,8}[)\]]")
_CLOSED_KEY: Final = re.compile(r"[\"']\s{0,4}:")
_COOKIE_PAIR: Final = re.compile(r"[^\s=;,\"'(){}\[\]<>]{1,128}=[^\s=]")
_LISTED: Final = re.compile(r"\[\s{0,8}")
_BRACKETS: Final = (")", "]", "}", ">")
_TYPE: Final = re.compile(r"(?:str|bytes|string|Optional|Any|None)\b")


def secret_of(named: Named) -> tuple[Span, str] | None:
    """Return where the secret stands that `named` announces, with its kind; None when there is none."""
    text, position, said = named.text, named.after.end(), named.said
    if named.carrier is Carrier.BLOCK:
        return block_span(text, position), said.kind
    if _closes_string(named):
        return None
    is_listed = named.carrier is Carrier.ASSIGNED and text.startswith("[", position)
    if is_listed and (listed := _LISTED.match(text, position)):
        return _listed_value(named, listed.end())
    span = quoted_span(text, position)
    if span is None and named.carrier is Carrier.ASSIGNED and text.startswith("<<", position):
        span = heredoc_span(text, position)
    if named.carrier is Carrier.PAIR and not _is_pair(named, span):
        return None
    if span is not None and "\n" in named.after[0] and _CLOSED_KEY.match(text, span.end):
        # The next line starts with a name of its own.
        return None
    if said.kind == "authorization" and named.carrier is not Carrier.PROSE:
        span = _authorization(named, span)
    elif span is not None:
        span = span if _is_quoted_secret(named, text[span.start : span.end]) else None
    elif said.kind == "cookie" and "cookie" in named.name.lower() and _COOKIE_PAIR.match(text, position):
        span = line_span(text, position, named.quote)
    else:
        span = bare_value(named)
    return None if span is None else (span, said.kind)


def _is_pair(named: Named, span: Span | None) -> bool:
    """Tell whether a name and a value are two of a kind: alone in brackets, or plainly a password and its name."""
    if span is None or _CLOSED_PAIR.match(named.text, span.end):
        return span is not None
    value = named.text[span.start : span.end]
    is_mixed = any(map(str.isupper, value)) and any(map(str.isdigit, value))
    return named.said.kind == "password" and is_mixed and is_guarded(value) and not is_expression(value)


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
    is_closed = text.startswith(_BRACKETS, span.end) and is_inert(value + text[span.end])
    return None if is_closed or is_expression(value) else span


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
    return ("_" in value and is_telling(value)) or (named.said.kind == "secret" and value == named.name)
