# SPDX-License-Identifier: Apache-2.0
"""The standard library's smtplib: the server's three-digit reply decides.

Each recipient is refused for its own reason. The error is raised only when all of them are refused, so nobody got the message yet;
if one refusal is temporary, the message is worth sending again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, cast

from redrive.core import taxonomy
from redrive.core.failure import Code, Retryable
from redrive.core.verdict import RuleFunction, RuleTable, Verdict
from redrive.rules.shared.inspection import attribute, listed
from redrive.rules.shared.replies import verdict_from_reply
from redrive.rules.shared.wrapped import network_code_in_context

_RECIPIENTS_MAX: Final = 1000
_REPLIES: Final[dict[int, Code]] = {
    421: taxonomy.NETWORK_UNAVAILABLE,
    452: taxonomy.UPSTREAM_OVERLOADED,  # no space now, or too many recipients at once
    502: taxonomy.UPSTREAM_UNSUPPORTED,
    504: taxonomy.UPSTREAM_UNSUPPORTED,
    521: taxonomy.NOT_FOUND,  # the host takes no mail at all
    530: taxonomy.AUTH_INVALID,
    534: taxonomy.AUTH_INVALID,
    535: taxonomy.AUTH_INVALID,
    538: taxonomy.AUTH_INVALID,
    552: taxonomy.REQUEST_TOO_LARGE,
    554: taxonomy.REJECTED_POLICY,
    555: taxonomy.UPSTREAM_UNSUPPORTED,
    556: taxonomy.NOT_FOUND,
}
_ADDRESS_REPLIES: Final = _REPLIES | {
    550: taxonomy.NOT_FOUND,
    551: taxonomy.NOT_FOUND,
    553: taxonomy.NOT_FOUND,
}
_CONTENT_REPLIES: Final = _REPLIES | {550: taxonomy.REJECTED_POLICY}
_SECURITY_OR_POLICY: Final = re.compile(rb"\s*5\.7\.\d")


def _reply_by(table: Mapping[int, Code]) -> RuleFunction:
    def read(exc: BaseException, _now: float) -> Verdict | Code:
        found = _read(attribute(exc, "smtp_code"), attribute(exc, "smtp_error"), table)
        # smtplib uses -1 when the server's answer was not a reply.
        return found or taxonomy.NETWORK_PROTOCOL

    return read


def _read(number: object, text: object, table: Mapping[int, Code]) -> Verdict | None:
    if not isinstance(number, int) or not 200 <= number < 600:
        return None
    verdict = verdict_from_reply(number, table)
    # RFC 3463: x.7.x means security or policy, whatever the three digits. A 550 5.7.1 is not an unknown mailbox.
    if verdict.code is taxonomy.NOT_FOUND and isinstance(text, bytes) and _SECURITY_OR_POLICY.match(text):
        return Verdict(code=taxonomy.REJECTED_POLICY, provider_code=verdict.provider_code)
    return verdict


def _disconnected(exc: BaseException, now: float) -> Code:
    """Distinguish a timeout from a closed connection: smtplib raises the same class for both."""
    return network_code_in_context(exc, now) or taxonomy.NETWORK_RESET


def _recipients(exc: BaseException, _now: float) -> Verdict | Code:
    verdicts = list(_refusals(attribute(exc, "recipients")))
    retryable = (verdict for verdict in verdicts if verdict.code.retryable is Retryable.YES)
    return next(retryable, verdicts[0] if verdicts else Verdict(code=taxonomy.REQUEST_INVALID))


def _refusals(recipients: object) -> Iterator[Verdict]:
    replies = list(cast("dict[object, object]", recipients).values()) if isinstance(recipients, dict) else []
    for reply in map(listed, replies[:_RECIPIENTS_MAX]):
        verdict = _read(reply[0], reply[1], _ADDRESS_REPLIES) if len(reply) == 2 else None
        if verdict is not None:
            yield verdict


RULES: Final[RuleTable] = {
    "SMTPServerDisconnected": _disconnected,
    "SMTPRecipientsRefused": _recipients,
    "SMTPDataError": _reply_by(_CONTENT_REPLIES),
    "SMTPResponseException": _reply_by(_REPLIES),
    "SMTPNotSupportedError": taxonomy.UPSTREAM_UNSUPPORTED,
    "SMTPException": taxonomy.CONFIG_INVALID,  # raised when the server supports none of our login methods
}
