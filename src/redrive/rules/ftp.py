# SPDX-License-Identifier: Apache-2.0
"""The standard library's ftplib: an error has only the server's reply, whose number (RFC 959) decides."""

from __future__ import annotations

from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.core.verdict import RuleFunction, RuleTable, Verdict
from redrive.rules.shared.replies import reply_number, verdict_from_reply

_REPLIES: Final[dict[int, Code]] = {
    421: taxonomy.NETWORK_UNAVAILABLE,
    425: taxonomy.NETWORK_REFUSED,  # no data connection
    426: taxonomy.NETWORK_RESET,  # the data connection broke off
    452: taxonomy.UPSTREAM_OVERLOADED,  # no space on the server now
    502: taxonomy.UPSTREAM_UNSUPPORTED,
    504: taxonomy.UPSTREAM_UNSUPPORTED,
    530: taxonomy.AUTH_INVALID,
    532: taxonomy.AUTH_DENIED,
    550: taxonomy.NOT_FOUND,  # "unavailable": mostly missing, sometimes not permitted; both are permanent
    552: taxonomy.QUOTA_EXHAUSTED,
}


def _reply_or(fallback: Code) -> RuleFunction:
    def read(exc: BaseException, _now: float) -> Verdict | Code:
        number = reply_number(exc)
        return fallback if number is None else verdict_from_reply(number, _REPLIES)

    return read


RULES: Final[RuleTable] = {
    "error_temp": _reply_or(taxonomy.UPSTREAM_NOT_READY),
    "error_perm": _reply_or(taxonomy.REQUEST_INVALID),
    "error_reply": taxonomy.NETWORK_PROTOCOL,
    "error_proto": taxonomy.NETWORK_PROTOCOL,
    "Error": taxonomy.NETWORK_PROTOCOL,
}
