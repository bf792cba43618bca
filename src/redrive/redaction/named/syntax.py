# SPDX-License-Identifier: Apache-2.0
"""How a value follows its name: the syntax between them, and where the value starts and ends.

The syntax is one pattern, tried only right after a stem, so it may be generous; it never looks back, and every gap in it is
bounded. `judgement.py` decides whether the value is a secret. The caller consumes whatever is scanned, so that a text without a
closing quote still costs linear time.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from redrive.redaction.named.names import NameMeaning, meaning_of_name
from redrive.redaction.named.vocabulary import PASSWORDS
from redrive.redaction.placeholders import SENTINEL

Syntax = Literal["assigned", "pair", "flag", "element", "block", "prose", "next to"]
"""The syntax between a name and its value; not an enumeration, whose members take longer to look up."""

AFTER_NAME: Final = re.compile(
    r"""
    (?P<tail>[\w\-\u0e00-\u0e7f]{0,48}+) (?:(?<=[Kk]ey|KEY)[ ][0-9]{1,2}(?=\\{0,15}["']?\]?[ ]?[:=]))?
    (?:
        (?P<close>\\{0,15}["'`]|&quot;|&\#0?39;|%22|\\+u0022|\*{1,2}(?=:))? (?:\]|%5[dD])? [?!]? (?:[ .]{2,60}(?=:))? [ \t]*+
        (?:
            (?P<block>:[ \t]*[|>][+-]?[ \t]*\n(?=[ \t]))
          | (?P<sep>={1,2}>|:=|={1,3}|:(?![:/])(?:\*{1,2}(?=[ ]))?|%3[dDaA]|\\u003[aAdD]|\\+x3[aAdD]
                |&\#(?:61|58);|[\uff1a\uff1d]|<-(?=[ ]?["']))
            (?:[ \t]*+ (?:typing\.)?(?:str|bytes|string|String|SecretStr|Optional\[[\w.]{1,30}\])
               (?:[ ]?\|[ ]?None)? [ ]? = )?
            [ \t]*+ (?:\s{1,40}(?=["']))? (?:!!\w{1,16}[ ])?
            (?:(?:Secret\w{0,20}|Some|Just|str|bytes|String|Password|base64\.b64decode)\((?=[bru]{0,2}["']))?
        )
      | (?P<value>\\{0,15}["']?(?:,\s{0,80}+|\s{1,80}+|\\n\s{1,40}+)
            (?:\\{0,15}["']?(?:type|secret|sensitive|enabled)\\{0,15}["']?\s?[:=]\s?[\w"'\\]{1,24},?\s{0,40})?
            \\{0,15}["']?(?:Parameter)?[vV]alue\\{0,15}["']?\s{0,4}+[:=]\s{0,8}+)
      | (?P<pair>(?:\\{0,15}["'`]|&quot;)\s{0,40}+,\s{0,40}+(?=[bu]?\\{0,15}["'`]))
      | (?P<attribute>["'](?:\s{0,4}+>(?:\s{0,40}+<(?:value|string)>)?(?=[^<\s])|\r?\n\r?\n(?=[^\s-])))
      | (?P<plist></key>\s{0,40}+<string>(?=[^<\s]))
      | (?P<default>"[ ]{0,4}\{\s{1,40}+(?:(?:type|description|sensitive|nullable)[ ]{0,16}=[^\n{}]{0,160}\n\s{0,40}+){0,4}
            default[ ]{0,16}=[ ]{0,4}(?="))
      | (?P<row>\)=\((?=\S))
      | (?P<call>\((?:\w{1,12}=)?(?=[bru]{0,2}["']))
      | (?P<element>(?:\s[^<>\n]{0,120}+)?>(?:<!\[CDATA\[|<Value>)?(?=[^<\s])(?!@[\w.\-]{1,80}+(?:[:/\s"']|\Z)))
      | (?P<prose>[ \t]+
            (?: (?:is|was|are|set|changed|updated|reset|ist|lautet|war|est|es|é|è|fue)
                (?:[ ](?:now|set|changed|updated|reset))?(?:[ ]to)?[ \t]*:?
              | (?:provided|given|received|nueva|nova|temporal|temporaire)[ ]?: | (?P<to>to) | -> | → | [\u2013\u2014] | \| )
            [ \t]+)
      | (?P<loose>[ \t]*\|[ \t]*(?=[^\s|])
          | [ \t]+(?:for|of|f[üu]r|von|pour|para|de|voor)[ ](?:(?:the|user|account|role|login)[ ])?["'`]?[\w.@\\-]{1,40}+["'`]?
            (?:[ ]?[:=]|[ ](?:is|ist|est|es))[ \t]+
          | [ \t]?[(\[][\w.@ -]{1,40}+[)\]][ ]?[:=][ \t]+)
      | (?P<space>[ \t]+(?:[05789][ \t]+)?)(?=\S)
    )
    """,
    re.VERBOSE,
)

# What some syntaxes need before the name: `<password>x`, `name="password">x`, `<key>password</key>`, `set password to x`.
_NEEDED: Final = {
    "element": re.compile(r"[<:][\w.-]*\Z"),
    "attribute": re.compile(r"(?:key|name|id)=[\"'][\w.-]{0,64}\Z"),
    "plist": re.compile(r">[\w.-]*\Z"),
    "to": re.compile(r"\b(?:set|reset|chang|updat)\w{0,3} [\w' ]{0,24}\Z", re.IGNORECASE),
}
_TOKEN_WORDS: Final = ("token", "key", "secret")
_BY_GROUP: Final[dict[str, Syntax]] = {
    "block": "block",
    "pair": "pair",
    "prose": "prose",
    **dict.fromkeys(("sep", "value", "default", "row"), "assigned"),
    **dict.fromkeys(("element", "attribute", "plist"), "element"),
}


def syntax_of(after: re.Match[str], before: str, name: str) -> Syntax | None:
    """Return the syntax that `after` matched; None when the text `before` the name excludes it."""
    group = after.lastgroup or ""
    if group in ("space", "loose", "call"):
        return _unassigned(group, before, name)
    needed = _NEEDED.get("to" if after["to"] else group)
    if needed and not needed.search(after.string, max(0, after.start() - 80), after.start()):
        return None
    if after["to"] and name.lower() not in PASSWORDS:
        return None
    return _BY_GROUP.get(group)


def _unassigned(group: str, before: str, name: str) -> Syntax | None:
    """Return the syntax of a value without an assignment character; such a value must look like a secret."""
    if name.startswith("-") and group == "space":
        return "flag"
    # `pass` is often a verb: functions pass something.
    meaning = None if name.lower() == "pass" else meaning_of_name(name)
    # SQL's `PASSWORD 'x'`, `password x` in a sentence or table, `password for ada: x`; not `PUT /password HTTP/1.1`.
    if meaning is not None and meaning.kind == "password" and before != "/" and "." not in name:
        return "prose"
    return "next to" if group != "space" or name.lower().endswith(_TOKEN_WORDS) else None


class NamedValue(NamedTuple):
    """A secret name in a text, and the syntax by which a value follows it.

    A named tuple, not a dataclass, because one is built for every secret name of every text.
    """

    text: str
    start: int
    """The start of the name."""
    name: str
    after: re.Match[str]
    """The text between the name and the value."""
    syntax: Syntax
    meaning: NameMeaning

    @property
    def quote(self) -> str:
        """The quote before the name that is still open, as in `-H 'Cookie: ...'`."""
        before = self.text[self.start - 1 : self.start]
        return before if before in ("'", '"') and not self.after["close"] else ""


VALUE_MAX: Final = 16_384
"""How far a closing quote may be; a value without one ends with its line."""

BARE_MAX: Final = 256
"""How much of an unquoted value is read before the decision; `whole_span` then reads the rest."""

LINE_MAX: Final = 2048
"""How much of a header line is read before the decision."""

_CONTINUED: Final = r"(?=[\w$@#^~])"
"""A quote that this follows is a character of the value: text that quotes carelessly closes a quote only before a delimiter."""
# Two or three quotes in a row open one value; an empty value ends before a delimiter.
_OPENING: Final = re.compile(
    rf"[bBuUrRfFN@]{{0,2}}(\\{{0,15}}[\"'`]|&quot;|&\#0?39;|%22|\\+u0022)(?:\1{{1,2}}{_CONTINUED})?"
)
_BARE: Final = re.compile(
    r"(?>(?:[^\s\"'`<>&;,(){}\[\]\\|%]++"
    r"|%(?!26|2[cC]|22)"
    # A separator belongs to the value when nothing that starts a new item follows.
    r"|[&;,|](?![\s\"'\\&;,|]|\Z|[\w.\-]{1,40}+ ?[=:])"
    r"|[(){}\[\]](?=[^\s,;:.(){}\[\]\"'\\<>&|])"
    r"|\\(?![nrt\"'\\u])"
    rf"|[\"'`]{_CONTINUED})+)"
)
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9_.-]{1,30})[ \t]++(?=\S)")
_SINGLE_WORD_SCHEMES: Final = frozenset(
    "basic bearer token apikey api-key key ssws negotiate ntlm jwt dpop splunk genie-key bot klaviyo-api-key sso-key".split()
)
_CREDENTIAL: Final = re.compile(r"[^\s\"'<>,;\\)\]}]++")
_LINE_REST: Final = re.compile(
    rf"[^\n\r\\{SENTINEL}]*+(?>(?:(?:\\(?![nr])|[{SENTINEL}])[^\n\r\\{SENTINEL}]*+)*)"
)
_HEREDOC: Final = re.compile(
    r"<<[-~]?[\"']?([A-Za-z_]{1,24})[\"']?[ \t]{0,8}\r?\n[ \t]{0,40}+"
    r"((?>[^\n]++(?:\n(?![ \t]{0,40}\1\b)[^\n]*+)*))\n[ \t]{0,40}\1\b"
)
_BLOCK_LINES: Final = re.compile(r"[ \t]++([^\n]*+(?>(?:\n[ \t]++[^\n]*+)*))")


class Span(NamedTuple):
    """The span of a value, and whether it is quoted; a named tuple because many are built and few are kept."""

    start: int
    end: int
    quoted: bool = False


@lru_cache(maxsize=64)
def _closing(delimiter: str) -> re.Pattern[str]:
    """Return the pattern of the content up to the quote that closes `delimiter`."""
    if delimiter in ('"', "'", "`"):
        return re.compile(rf"(?>(?:[^{delimiter}\\\n]++|\\.|{delimiter}{_CONTINUED})*)")
    closing = re.escape(delimiter)
    return re.compile(
        rf"(?>(?:[^\n{re.escape(delimiter[0])}]++|{closing}{_CONTINUED}|(?!(?<!\\){closing})[^\n])*)"
    )


def quoted_span(text: str, start: int) -> Span | None:
    """Return the content of the quoted string that opens at `start`; None when there is no quote."""
    opening = _OPENING.match(text, start)
    if opening is None:
        return None
    inside = opening.end()
    content = _closing(opening[1]).match(text, inside, inside + VALUE_MAX)
    end = content.end() if content else inside
    if end == inside + VALUE_MAX:
        rest = _CREDENTIAL.match(text, end)
        end = rest.end() if rest else end
    return Span(inside, min(end, len(text)), quoted=True)


def unquoted_span(text: str, start: int) -> Span:
    """Return the unquoted word at `start`, without the punctuation after it."""
    found = _BARE.match(text, start, start + BARE_MAX)
    end = found.end() if found else start
    while end > start and text[end - 1] in ".,;:!?" and (end == len(text) or text[end].isspace()):
        end -= 1
    return Span(start, end)


def whole_span(text: str, span: Span) -> Span:
    """Return the full span of a value that is known to be secret, however long."""
    length = span.end - span.start
    if length < BARE_MAX or text.startswith(('"', "'", "`", "\\", "&"), span.end):
        return span
    # Extend a line that was cut to its end, a word to the end of the word.
    rest = (_CREDENTIAL if length < LINE_MAX // 2 else _LINE_REST).match(text, span.end)
    return Span(span.start, rest.end() if rest else span.end, quoted=span.quoted)


def line_span(text: str, start: int, quote: str) -> Span:
    """Return the rest of the line; only up to `quote` when the name itself is inside such quotes."""
    rest = _LINE_REST.match(text, start, start + LINE_MAX)
    end = rest.end() if rest else start
    if quote:
        closing = text.find(quote, start, end)
        end = closing if closing >= 0 else end
    return Span(start, start + len(text[start:end].rstrip(" \t")), quoted=bool(quote))


def authorization_span(text: str, span: Span, quote: str) -> Span:
    """Return the credentials of an Authorization header, without the name of the scheme.

    `span` is the quoted value; when it is not quoted, only its start counts and the rest of the line is read if necessary.
    """
    limit = span.end if span.quoted else span.start + LINE_MAX
    scheme = _SCHEME.match(text, span.start, limit)
    start = scheme.end() if scheme else span.start
    if span.quoted:
        return Span(start, span.end, quoted=True)
    if scheme and scheme[1].lower() not in _SINGLE_WORD_SCHEMES:
        return line_span(text, start, quote)
    word = _CREDENTIAL.match(text, start, limit)
    return Span(start, word.end() if word else start)


def heredoc_span(text: str, start: int) -> Span | None:
    """Return the lines between `<<EOT` at `start` and the line that closes them; None when it is too far."""
    # Longer secrets have formats of their own.
    found = _HEREDOC.match(text, start, start + 480)
    return None if found is None else Span(found.start(2), found.end(2), quoted=True)


def block_span(text: str, start: int) -> Span:
    """Return the indented lines of a YAML block scalar that starts at `start`."""
    lines = _BLOCK_LINES.match(text, start, start + VALUE_MAX)
    return Span(*(lines.span(1) if lines else (start, start)), quoted=True)
