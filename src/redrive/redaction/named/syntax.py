# SPDX-License-Identifier: Apache-2.0
"""How a value can follow its name: assigned, paired, as a flag, in an element, in a block or in a sentence.

One pattern, tried only right after a telling stem, so it may be generous; it never looks backwards and every gap in
it is bounded.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from redrive.redaction.named.names import telling


class Carrier(Enum):
    """The syntax between a name and its value."""

    ASSIGNED = "assigned"
    PAIR = "pair"
    FLAG = "flag"
    ELEMENT = "element"
    BLOCK = "block"
    PROSE = "prose"
    NEXT_TO = "next to"


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
      | (?P<pair>(?:\\{0,15}["']|&quot;)\s{0,40}+,\s{0,40}+(?=[bu]?\\{0,15}["']))
      | (?P<attribute>["'](?:\s{0,4}+>(?:\s{0,40}+<(?:value|string)>)?(?=[^<\s])|\r?\n\r?\n(?=[^\s-])))
      | (?P<plist></key>\s{0,40}+<string>(?=[^<\s]))
      | (?P<default>"[ ]{0,4}\{\s{1,40}+(?:(?:type|description|sensitive|nullable)[ ]{0,16}=[^\n{}]{0,160}\n\s{0,40}+){0,4}
            default[ ]{0,16}=[ ]{0,4}(?="))
      | (?P<row>\)=\((?=\S))
      | (?P<call>\((?:\w{1,12}=)?(?=[bru]{0,2}["']))
      | (?P<element>(?:\s[^<>\n]{0,120}+)?>(?:<!\[CDATA\[)?(?=[^<\s])(?!@[\w.\-]{1,80}+(?:[:/\s"']|\Z)))
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

ATTRIBUTE_MAX: Final = 80
"""How far before a stem the attribute may start whose value the name is."""

_KEY_ATTRIBUTE: Final = re.compile(r"(?:key|name|id)=[\"'][\w.-]{0,64}\Z")
_PASSWORD_WORDS: Final = ("password", "passwd", "pwd", "passphrase", "requirepass")
_CHANGES: Final = re.compile(r"\b(?:set|reset|chang|updat)\w{0,3} [\w' ]{0,24}\Z", re.IGNORECASE)
_TOKEN_WORDS: Final = ("token", "key", "secret")
_BY_GROUP: Final = {
    "block": Carrier.BLOCK,
    "sep": Carrier.ASSIGNED,
    "value": Carrier.ASSIGNED,
    "pair": Carrier.PAIR,
    "prose": Carrier.PROSE,
    "default": Carrier.ASSIGNED,
    "row": Carrier.ASSIGNED,
}


def carrier_of(after: re.Match[str], before: str, name: str) -> Carrier | None:
    """Return the carrier that `after` matched; None when what stands `before` the name rules it out."""
    group = after.lastgroup or ""
    if group == "element":
        return Carrier.ELEMENT if before in ("<", ":") else None
    if group == "attribute":
        attribute = after.string[max(0, after.start() - ATTRIBUTE_MAX) : after.start()]
        return Carrier.ELEMENT if _KEY_ATTRIBUTE.search(attribute) else None
    if group == "plist":
        return Carrier.ELEMENT if before == ">" else None
    if group in ("space", "loose", "call"):
        return _unassigned(group, before, name)
    is_sent = after["to"] and not _changes_password(after, name)
    return None if is_sent else _BY_GROUP.get(group)


def _unassigned(group: str, before: str, name: str) -> Carrier | None:
    """Return the carrier of a value that no sign assigns to its name: what follows must look like a secret there."""
    if name.startswith("-") and group == "space":
        return Carrier.FLAG
    # To pass something is what functions do.
    said = None if name.lower() == "pass" else telling(name)
    # `PASSWORD 'x'` of SQL, `password x` of a sentence or of a table, `password for ada: x`; not `PUT /password HTTP/1.1`.
    if said is not None and said.certain and said.kind == "password" and before != "/" and "." not in name:
        return Carrier.PROSE
    return Carrier.NEXT_TO if group != "space" or name.lower().endswith(_TOKEN_WORDS) else None


def _changes_password(after: re.Match[str], name: str) -> bool:
    """Tell `set password to x` from `send the password to x`."""
    before = after.string[max(0, after.start() - ATTRIBUTE_MAX) : after.start()]
    return name.lower() in _PASSWORD_WORDS and _CHANGES.search(before) is not None
