# SPDX-License-Identifier: Apache-2.0
"""Decide whether the value after a secret name is a secret, given the name, the syntax and the look of the value.

After a certain name and an assignment any literal is; in a sentence or a list only what looks like a password; after an uncertain
name only what looks random. Types, placeholders, names in code and words of a sentence are not. Nothing is replaced here: the
answer is the span and the kind of the secret.
"""

from __future__ import annotations

import re
from typing import Final

from redrive.redaction.named.names import is_secret_name
from redrive.redaction.named.syntax import (
    NamedValue,
    Span,
    authorization_span,
    block_span,
    heredoc_span,
    line_span,
    quoted_span,
    unquoted_span,
)
from redrive.redaction.named.values import (
    is_expression,
    is_guarded,
    is_identifier,
    is_inert,
    is_pin,
    is_prose,
    is_random,
    is_validation,
)
from redrive.redaction.named.vocabulary import PASSWORDS, PROSE_WORDS

SOURCE_LINE_MAX: Final = 400
"""How far back the start of a line, and the line before it, may be."""

LETTERS_MIN: Final = 20
"""A longer word is no word of a sentence."""

_QUOTES: Final = ("'", '"', "`")
_OPENED: Final = ("[", "(", "{", "<")
_TEMPLATES: Final = ("${", "$(", "{{", "#{", "<%", "%{")
_COMPARED: Final = ("==", "===")
_CLOSED_PAIR: Final = re.compile(r"\\{0,15}[\"'`]\s{0,8}[)\]]")
_CLOSED_KEY: Final = re.compile(r"[\"']\s{0,4}:")
_COOKIE_PAIR: Final = re.compile(r"[^\s=;,\"'(){}\[\]<>]{1,128}=[^\s=]")
_AFTER_STRING: Final = re.compile(r"\+(?![\w+/]{24})|[\s,;:.%*|&)\]}>\"'`\\]|\Z")
_BRACKETED: Final = re.compile(r"\[\s{0,8}|\(\s{0,8}|[{<][bBuU]?(?=\\{0,15}[\"'`])|<(?=\w+>)")
_CLOSED_BRACKET: Final = re.compile(r"\\{0,15}[\"'`]{0,3},?\s{0,8}[)\]}>]")
_BRACKETS: Final = (")", "]", "}", ">")
_TYPE: Final = re.compile(r"(?:str|bytes|string|Optional|Any|None)\b")
# A parser's tokens are small numbers; a card's security code has at least three digits.
_SMALL: Final = re.compile(r"[0-9]{1,2}|0x[0-9a-fA-F]{1,4}")
_AFTER_SETTING: Final = ("", " ", "\n", "\r", "&", ";")
# A parser names the kind of the token it found; a test runner counts passed tests.
_PARSED: Final = re.compile(
    r"\b(?:unexpected|expected|got|near|current|next|unknown|invalid|bad) token\Z", re.IGNORECASE
)
_TALLY: Final = re.compile(r"[0-9]{1,4}(?:[a-z]{1,2}|%|/[0-9]{1,4})?|tests?[_/.]\S{0,200}")
_COUNTED: Final = re.compile("[a-z]{3,16} [0-9]{1,6} [a-z]{3}")
_ONE_TIME: Final = re.compile(r"(?:code|otp|pin|passcode|cvv|cvc)\Z", re.IGNORECASE)
_CELL_END: Final = re.compile(r"[.,;:!?]{0,4}[ \t]{0,80}(?:[|\n\r]|\Z)")
_WORD: Final = re.compile("[A-Za-z][a-z]*|[A-Z]+")
_NEXT_WORD: Final = re.compile(r" [a-z]{2,}")
# A word with a value of its own belongs to a list of settings, not to a sentence.
_NEXT_SETTING: Final = re.compile(r" [\w.-]{1,40}[=:]")


def secret_of(named: NamedValue) -> tuple[Span, str] | None:
    """Return the span and kind of the secret after the name; None when there is none."""
    text, position, kind = named.text, named.after.end(), named.meaning.kind
    if named.syntax == "block":
        return block_span(text, position), kind
    first = text[position : position + 1]
    if first in _QUOTES and _closes_string(named, first):
        return None
    if first in _OPENED and named.syntax == "assigned" and (brackets := _BRACKETED.match(text, position)):
        span = _first_in_brackets(named, brackets.end())
        return span and (span, kind)
    quoted = heredoc_span(text, position) if text.startswith("<<", position) else quoted_span(text, position)
    if quoted and not _belongs(named, quoted):
        return None
    if kind == "authorization":
        span = _credentials(named, quoted)
    elif quoted:
        span = quoted if _is_quoted_secret(named, text[quoted.start : quoted.end]) else None
    elif kind == "cookie" and "cookie" in named.name.lower() and _COOKIE_PAIR.match(text, position):
        span = line_span(text, position, named.quote)
    else:
        span = _unquoted(named)
    return span and (span, kind)


def _closes_string(named: NamedValue, quote: str) -> bool:
    """Return whether the quote after the separator closes a string that contains the name: `print("token=" + x)`."""
    # Where a value follows, the quotes within quotes are careless.
    is_end = named.after["sep"] and not named.after["close"]
    if not is_end or not _AFTER_STRING.match(named.text, named.after.end() + 1):
        return False
    line = _line_start(named.text, named.start)
    is_whole = line == 0 or line > named.start - SOURCE_LINE_MAX
    return is_whole and named.text.count(quote, line, named.start) % 2 == 1


def _belongs(named: NamedValue, quoted: Span) -> bool:
    """Return whether a quoted value belongs to the name, not to the next line or the next item of a list."""
    text = named.text
    if named.syntax != "pair":
        return "\n" not in named.after[0] or not _CLOSED_KEY.match(text, quoted.end)
    if _CLOSED_PAIR.match(text, quoted.end):
        return True
    value = text[quoted.start : quoted.end]
    return named.meaning.kind == "password" and is_guarded(value) and any(map(str.isupper, value))


def _first_in_brackets(named: NamedValue, start: int) -> Span | None:
    """Return the first value in brackets: a list in which some programs print repeated headers, or careless text."""
    text = named.text
    quoted = quoted_span(text, start)
    span = quoted or unquoted_span(text, start)
    value = text[span.start : span.end]
    if not named.meaning.certain or (quoted and _CLOSED_KEY.match(text, span.end)):
        return None
    # Lists of names and messages are common; only a single value, or one like a password, is a secret.
    is_single = _CLOSED_BRACKET.match(text, span.end) is not None
    if quoted is None:
        is_secret = is_single and is_guarded(value) and not is_inert(value) and not is_expression(value)
    else:
        is_likely = text[start - 1] == "(" or is_guarded(value) or (is_single and not re.search(r"\s", value))
        is_secret = is_likely and _is_quoted_secret(named, value)
    return span if is_secret or is_random(value.rpartition(" ")[2]) else None


def _credentials(named: NamedValue, quoted: Span | None) -> Span | None:
    """Return the credentials of an Authorization header."""
    text, position = named.text, named.after.end()
    span = authorization_span(text, quoted or Span(position, position), named.quote)
    value = text[span.start : span.end]
    if _TYPE.match(text, position) or is_inert(value) or is_prose(value):
        return None
    if " " in value and not any(is_guarded(word) or len(word) >= LETTERS_MIN for word in value.split()):
        # Words only, after a word that is no scheme: `authorization: policy 'orders.read' denied`.
        return None
    if span.quoted:
        return span
    # The bracket that closes `{token}` or `${TOKEN}` ends a word without quotes.
    is_closed = text.startswith(_BRACKETS, span.end) and is_inert(value + text[span.end])
    return None if is_closed or is_expression(value) else span


def _is_quoted_secret(named: NamedValue, value: str) -> bool:
    """Decide about a value in quotes."""
    kind = named.meaning.kind
    if not named.meaning.certain or named.syntax == "next to":
        return is_random(value, named.meaning.kept)
    if is_inert(value) or is_validation(value):
        return False
    if kind == "pin":
        return is_pin(value)
    if named.syntax == "prose":
        is_named = not named.after["call"] and (
            not named.after["loose"] or named.after["loose"].endswith(("is ", ": "))
        )
        return is_guarded(value) or (len(value) > 3 and is_named)
    if named.after["sep"] in _COMPARED or (kind == "cookie" and "=" not in value):
        return is_guarded(value)
    return not (is_identifier(value) and _is_field_name(named, value))


def _is_field_name(named: NamedValue, value: str) -> bool:
    """Return whether a quoted word is the name of a field: in a list of names, or as the value of a constant."""
    kind = named.meaning.kind
    if named.syntax == "pair" or (kind == "cookie" and "cookie" in value.lower()):
        return True
    return ("_" in value and is_secret_name(value)) or (kind == "secret" and value == named.name)


def _unquoted(named: NamedValue) -> Span | None:
    """Return the value without quotes if it is a secret. The context matters as much as the look of the value."""
    text, position, kind = named.text, named.after.end(), named.meaning.kind
    if text.startswith(_TEMPLATES, position):
        return None
    span = unquoted_span(text, position)
    if not named.meaning.certain or named.syntax == "next to":
        # In a query string a parameter without a value may follow.
        value = text[span.start : span.end].partition("&")[0]
        return span if is_random(value, named.meaning.kept) else None
    span = _phrase(named, span)
    value = text[span.start : span.end]
    if is_inert(value) or _describes_name(named, value):
        return None
    if kind == "pin" or (named.syntax == "prose" and value.isdigit()):
        return span if is_pin(value) and _ONE_TIME.search(named.name) else None
    if named.syntax == "prose" or kind == "cookie" or named.after["sep"] in _COMPARED:
        return _guarded(named, span, value)
    return span if _is_unquoted_secret(named, span, value) else None


def _phrase(named: NamedValue, span: Span) -> Span:
    """Extend the value of a `name: several words` line to its end, unless the words are a sentence."""
    text = named.text
    if named.after["sep"] != ":" or text[span.end : span.end + 1] != " ":
        return span
    if text[_line_start(text, named.start) : named.start].strip(" \t-\"'"):
        return span
    whole = line_span(text, span.start, "")
    value = text[whole.start : whole.end]
    is_sentence = is_prose(value) or any(sign in value for sign in "={}[]:,;#")
    return span if is_sentence else whole


def _describes_name(named: NamedValue, value: str) -> bool:
    """Return whether a value describes its name: `unexpected token: done`, `secrets: loaded 12 entries`, `пароль: неверен`."""
    if not value.isascii():
        # A word in another script is a word; passwords use ASCII letters or contain a digit.
        return value.replace(" ", "").isalpha()
    if named.name[-1] in "sS" and _COUNTED.match(named.text, named.after.end()):
        return True
    if value.isalpha():
        return bool(_PARSED.search(named.text, max(0, named.start - 24), named.after.end("tail")))
    return named.name in ("pass", "PASS") and _TALLY.fullmatch(value) is not None


def _guarded(named: NamedValue, span: Span, value: str) -> Span | None:
    """Return the value that follows a name without a clear assignment, if it looks like a password."""
    after = named.after
    if "|" in (after["loose"] or ""):
        # In a table, a bar before the value needs one after it, or the end of the line.
        value = value.partition("|")[0]
        span = Span(span.start, span.start + len(value))
        if not _CELL_END.match(named.text, span.end):
            return None
    is_far = after["loose"] or after["sep"] or (after["space"] and named.name.lower() not in PASSWORDS)
    if is_far and named.meaning.kind == "password" and is_identifier(value):
        # `user_pwd column0`, `password|oauth2|apikey`, `password == expected1`.
        return None
    is_code = _is_code(value, named.text[span.end : span.end + 1])
    return span if is_guarded(value) and not is_code else None


def _is_unquoted_secret(named: NamedValue, span: Span, value: str) -> bool:
    """Return whether an unquoted value is a literal, not a name in code or a word of a sentence."""
    text, kind = named.text, named.meaning.kind
    following = text[span.end : span.end + 1]
    if _is_code(value, following):
        # `password=secret` is a setting: no spaces, outside of code, not followed by code.
        is_tight = text[span.start - 1] == "=" and following in _AFTER_SETTING
        is_word = kind == "password" and is_identifier(value)
        return is_tight and is_word and not _in_source(named)
    next_word = _NEXT_WORD.match(text, span.end) if _WORD.fullmatch(value) else None
    if named.syntax == "flag":
        # Two spaces and a sentence after a flag are its help text, and so are words of prose.
        is_help = next_word and (len(named.after["space"]) > 1 or next_word[0][1:] in PROSE_WORDS)
        return not is_help and not value.startswith("--")
    if value[0] == "{" and following == "}" and kind == "password":
        # ODBC puts a password with special characters in braces; a template contains a plain name.
        return is_guarded(value)
    if "://" in value or value[0] in "{[(" or (kind == "secret" and _SMALL.fullmatch(value)):
        return False
    if not is_identifier(value):
        return any(map(str.isdigit, value)) or not _in_source(named) or is_random(value)
    is_code = following in ("(", "[") or (following in (")", ",") and not value[-1].isdigit())
    # A password may be a plain word, a token may not.
    is_tight = text[span.start - 1] == "="
    is_setting = kind == "password" and (is_tight or _NEXT_SETTING.match(text, span.end))
    is_word = is_code or (next_word and not is_setting) or _in_source(named)
    return not is_word or is_random(value)


def _is_code(value: str, following: str) -> bool:
    """Return whether a value is an expression, perhaps only with what follows it: the bracket of a call or an index."""
    return is_expression(value) or (following in ("(", "[") and is_expression(value + following))


def _line_start(text: str, before: int) -> int:
    """Return the start of the line that ends at `before`; an escaped line end counts."""
    floor = max(0, before - SOURCE_LINE_MAX)
    escaped = text.rfind("\\n", floor, before)
    return max(text.rfind("\n", floor, before) + 1, escaped + 2 if escaped >= 0 else floor)


def _in_source(named: NamedValue) -> bool:
    """Return whether the line is code of a traceback, outside of a string: the line above it names a file."""
    text = named.text
    line = _line_start(text, named.start)
    if text.count('"', line, named.start) % 2:
        return False
    end = line - (1 if text[line - 1 : line] == "\n" else 2)
    return end > 0 and text[_line_start(text, end) : end].lstrip().startswith('File "')
