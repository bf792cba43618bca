# SPDX-License-Identifier: Apache-2.0
"""The standard library's http.client and urllib.

An HTTPError is also the response body as an open file. It is never read here: reading could wait for a slow server, and the user
could not read it again. Only status and headers are used.
"""

from __future__ import annotations

from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.core.verdict import RuleTable, Verdict
from redrive.rules.shared.inspection import attribute, nested_exceptions, status_in, verdict_from_response
from redrive.rules.shared.wrapped import verdict_of


def _answer(exc: BaseException, now: float) -> Verdict | Code:
    answer = verdict_from_response(exc, now, status=status_in(exc, "code"))
    return answer or taxonomy.NETWORK_PROTOCOL


def _reason(exc: BaseException, now: float) -> Verdict | Code | None:
    """Read `reason`: the socket's exception, or a text about an invalid URL."""
    answers = (verdict_of(inner, now) for inner in nested_exceptions(exc))
    known = next((answer for answer in answers if answer is not None), None)
    is_text = isinstance(attribute(exc, "reason"), str)
    return known or (taxonomy.CONFIG_INVALID if is_text else taxonomy.NETWORK_ERROR)


RULES: Final[RuleTable] = {
    "RemoteDisconnected": taxonomy.NETWORK_RESET,
    "IncompleteRead": taxonomy.NETWORK_PROTOCOL,
    "BadStatusLine": taxonomy.NETWORK_PROTOCOL,
    "LineTooLong": taxonomy.NETWORK_PROTOCOL,
    "UnknownProtocol": taxonomy.NETWORK_PROTOCOL,
    "UnknownTransferEncoding": taxonomy.NETWORK_PROTOCOL,
    "InvalidURL": taxonomy.CONFIG_INVALID,
    "NotConnected": taxonomy.BUG_CODE,
    "ImproperConnectionState": taxonomy.BUG_CODE,
    "UnimplementedFileMode": taxonomy.BUG_CODE,
    "HTTPException": taxonomy.NETWORK_PROTOCOL,  # raised as such for too many headers
    "HTTPError": _answer,
    "ContentTooShortError": taxonomy.NETWORK_PROTOCOL,
    "URLError": _reason,
}
