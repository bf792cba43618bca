# SPDX-License-Identifier: Apache-2.0
"""The standard library's imaplib and poplib.

Their classes show only whether the connection still works. The reason of a refusal is the response code in brackets of RFC 5530
(IMAP) and RFC 3206 (POP); a refusal without one is permanent.
"""

from __future__ import annotations

import re
from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.core.verdict import RuleTable, Verdict
from redrive.rules.shared.inspection import text_of

_RESPONSES: Final[dict[str, Code]] = {
    "ALREADYEXISTS": taxonomy.CONFLICT,
    "AUTH": taxonomy.AUTH_INVALID,
    "AUTHENTICATIONFAILED": taxonomy.AUTH_INVALID,
    "AUTHORIZATIONFAILED": taxonomy.AUTH_DENIED,
    "CONTACTADMIN": taxonomy.AUTH_DENIED,
    "EXPIRED": taxonomy.AUTH_INVALID,
    "IN-USE": taxonomy.UPSTREAM_NOT_READY,
    "INUSE": taxonomy.UPSTREAM_NOT_READY,
    "LIMIT": taxonomy.RATE_LIMITED,
    "LOGIN-DELAY": taxonomy.RATE_LIMITED,
    "NONEXISTENT": taxonomy.NOT_FOUND,
    "NOPERM": taxonomy.AUTH_DENIED,
    "OVERQUOTA": taxonomy.QUOTA_EXHAUSTED,
    "PRIVACYREQUIRED": taxonomy.CONFIG_INVALID,
    "SERVERBUG": taxonomy.UPSTREAM_ERROR,
    "SYS/TEMP": taxonomy.UPSTREAM_NOT_READY,
    "THROTTLED": taxonomy.RATE_LIMITED,
    "TRYCREATE": taxonomy.NOT_FOUND,
    "UNAVAILABLE": taxonomy.NETWORK_UNAVAILABLE,
}
_BRACKETS: Final = re.compile(r"\[([A-Z/-]{2,30})[\] ]")


def _refused(exc: BaseException, _now: float) -> Verdict | Code:
    text = text_of(exc)
    if text == "-ERR EOF":  # poplib's text for a closed connection
        return taxonomy.NETWORK_RESET
    found = _BRACKETS.search(text)
    if found is None:
        return taxonomy.REQUEST_INVALID
    return Verdict(code=_RESPONSES.get(found[1], taxonomy.REQUEST_INVALID), provider_code=found[1])


RULES: Final[RuleTable] = {
    "abort": taxonomy.NETWORK_RESET,
    # Another client took over the mailbox; opening it again takes it back.
    "readonly": taxonomy.CONFLICT,
    "error": _refused,
    "error_proto": _refused,
}
