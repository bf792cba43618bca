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


AFTER_NAME: Final = re.compile(
    r"""
    (?P<tail>[A-Za-z0-9_\-]{0,48}+)
    (?:
        (?P<close>\\{0,15}["'`]|&quot;|&\#0?39;|%22|\\+u0022)? [\])]? [?!]? [ \t]*+
        (?:
            (?P<block>:[ \t]*[|>][+-]?[ \t]*\n(?=[ \t]))
          | (?P<sep>=>|:=|={1,3}|:(?![:/])|%3[dDaA])
            (?:[ \t]*+ (?:typing\.)?(?:str|bytes|string|String|SecretStr|Optional\[[\w.]{1,30}\])
               (?:[ ]?\|[ ]?None)? [ ]? = )?
            [ \t]*+ (?:\s{1,40}(?=["']))?
        )
      | (?P<value>\\{0,15}["']?,?\s{1,80}+\\{0,15}["']?[vV]alue\\{0,15}["']?\s{0,4}+[:=]\s{0,8}+)
      | (?P<pair>(?:\\{0,15}["']|&quot;)\s{0,40}+,\s{0,40}+(?=[bu]?\\{0,15}["']))
      | (?P<element>(?:\s[^<>\n]{0,120}+)?>(?=[^<\s]))
      | (?P<prose>[ \t]+(?:is|was|are)(?:[ \t]+now|[ \t]+set[ \t]+to)?[ \t]*:?[ \t]+|[ \t]+->[ \t]+|[ \t]+\|[ \t]+)
      | (?P<space>[ \t]+)(?=\S)
    )
    """,
    re.VERBOSE,
)

_BY_GROUP: Final = {
    "block": Carrier.BLOCK,
    "sep": Carrier.ASSIGNED,
    "value": Carrier.ASSIGNED,
    "pair": Carrier.PAIR,
    "prose": Carrier.PROSE,
}


def carrier_of(after: re.Match[str], before: str, name: str) -> Carrier | None:
    """Return the carrier that `after` matched; None when what stands `before` the name rules it out."""
    group = after.lastgroup or ""
    if group == "element":
        return Carrier.ELEMENT if before in ("<", ":") else None
    if group == "space":
        if name.startswith("-"):
            return Carrier.FLAG
        is_sql = after.string.startswith(("'", '"'), after.end()) and name.lower() == "password"
        return Carrier.PROSE if is_sql else None
    return _BY_GROUP.get(group)
