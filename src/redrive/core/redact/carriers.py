# SPDX-License-Identifier: Apache-2.0
"""How a value can follow its name: assigned, paired, as a flag, in an element, in a block or in a sentence.

One pattern, tried only right after a telling stem, so it may be generous; it never looks backwards and every gap in
it is bounded.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final


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
    (?P<tail>[A-Za-z0-9_\-ñ]{0,48}+)
    (?:
        (?P<close>\\{0,15}["'`]|&quot;|&\#0?39;|%22|\\+u0022)? \]? [?!]? [ \t]*+
        (?:
            (?P<block>:[ \t]*[|>][+-]?[ \t]*\n(?=[ \t]))
          | (?P<sep>=>|:=|={1,3}|:(?![:/])|%3[dDaA]|\\u003[aAdD])
            (?:[ \t]*+ (?:typing\.)?(?:str|bytes|string|String|SecretStr|Optional\[[\w.]{1,30}\])
               (?:[ ]?\|[ ]?None)? [ ]? = )?
            [ \t]*+ (?:\s{1,40}(?=["']))? (?:!!\w{1,16}[ ])?
            (?:(?:Secret\w{0,20}|Some|Just|str|bytes|String|Password|base64\.b64decode)\((?=[bru]{0,2}["']))?
        )
      | (?P<value>\\{0,15}["']?(?:,\s{0,80}+|\s{1,80}+)
            (?:\\{0,15}["']?(?:type|secret|sensitive|enabled)\\{0,15}["']?\s?[:=]\s?[\w"'\\]{1,24},?\s{0,40})?
            \\{0,15}["']?(?:Parameter)?[vV]alue\\{0,15}["']?\s{0,4}+[:=]\s{0,8}+)
      | (?P<pair>(?:\\{0,15}["']|&quot;)\s{0,40}+,\s{0,40}+(?=[bu]?\\{0,15}["']))
      | (?P<attribute>["'](?:\s{0,4}+>(?=[^<\s])|\r?\n\r?\n(?=[^\s-])))
      | (?P<call>\((?:\w{1,12}=)?(?=[bru]{0,2}["']))
      | (?P<element>(?:\s[^<>\n]{0,120}+)?>(?=[^<\s])(?!@[\w.\-]{1,80}+(?:[:/\s"']|\Z)))
      | (?P<prose>[ \t]+
            (?: (?:is|was|are|set|changed|updated|reset)(?:[ ](?:now|set|changed|updated|reset))?(?:[ ]to)?[ \t]*:?
              | (?:provided|given|received)[ ]?: | (?P<to>to) | -> | → | \| )
            [ \t]+)
      | (?P<space>[ \t]+)(?=\S)
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
    "call": Carrier.NEXT_TO,
}


def carrier_of(after: re.Match[str], before: str, name: str) -> Carrier | None:
    """Return the carrier that `after` matched; None when what stands `before` the name rules it out."""
    group = after.lastgroup or ""
    if group == "element":
        return Carrier.ELEMENT if before in ("<", ":") else None
    if group == "attribute":
        attribute = after.string[max(0, after.start() - ATTRIBUTE_MAX) : after.start()]
        return Carrier.ELEMENT if _KEY_ATTRIBUTE.search(attribute) else None
    if group == "space":
        if name.startswith("-"):
            return Carrier.FLAG
        # `PASSWORD 'x'` of SQL and `password x` of a sentence; what follows must look like a password there.
        word = name.lower()
        if word in _PASSWORD_WORDS or (name.isupper() and word.endswith(_PASSWORD_WORDS)):
            return Carrier.PROSE
        return Carrier.NEXT_TO if word.endswith(_TOKEN_WORDS) else None
    is_sent = after["to"] and not _changes_password(after, name)
    return None if is_sent else _BY_GROUP.get(group)


def _changes_password(after: re.Match[str], name: str) -> bool:
    """Tell `set password to x` from `send the password to x`."""
    before = after.string[max(0, after.start() - ATTRIBUTE_MAX) : after.start()]
    return name.lower() in _PASSWORD_WORDS and _CHANGES.search(before) is not None
