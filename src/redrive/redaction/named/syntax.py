# SPDX-License-Identifier: Apache-2.0
"""The ways a value can follow its name: assigned, paired, as a flag, in an element, in a block or in a sentence.

One pattern, tried only right after a stem, so it may be generous; it never looks back, and every gap in it is bounded.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

from redrive.redaction.named.names import NameMeaning, meaning_of_name
from redrive.redaction.named.vocabulary import PASSWORDS

Syntax = Literal["assigned", "pair", "flag", "element", "block", "prose", "next to"]
"""The syntax between a name and its value; not an enumeration, whose members take longer to look up."""

AFTER_NAME: Final = re.compile(
    r"""
    (?P<tail>[\w\-\u0e00-\u0e7f]{0,48}+)
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
