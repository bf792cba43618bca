# SPDX-License-Identifier: Apache-2.0
"""httpx and httpcore, and their successors httpx2 and httpcore2, which use the same class names."""

from __future__ import annotations

from typing import Final

from redrive.core import taxonomy
from redrive.core.verdict import RuleTable, Verdict
from redrive.rules.shared.inspection import attribute, verdict_from_response
from redrive.rules.shared.network import network_or, network_or_cause, proxy_code


def _answer(exc: BaseException, now: float) -> Verdict | None:
    return verdict_from_response(attribute(exc, "response"), now)


RULES: Final[RuleTable] = {
    "HTTPStatusError": _answer,
    # All connections of the client's pool are in use: nothing was sent, so the dependency did not fail.
    "PoolTimeout": taxonomy.RESOURCE_EXHAUSTED,
    "TimeoutException": taxonomy.NETWORK_TIMEOUT,
    "ConnectError": network_or(taxonomy.NETWORK_ERROR),
    "NetworkError": network_or(taxonomy.NETWORK_RESET),
    "ProxyError": proxy_code,
    "RemoteProtocolError": taxonomy.NETWORK_PROTOCOL,
    "SSEError": taxonomy.NETWORK_PROTOCOL,
    "LocalProtocolError": taxonomy.REQUEST_INVALID,
    "UnsupportedProtocol": taxonomy.CONFIG_INVALID,
    "InvalidURL": taxonomy.CONFIG_INVALID,
    "TooManyRedirects": taxonomy.REQUEST_INVALID,
    "DecodingError": taxonomy.SCHEMA_INVALID,
    "CookieConflict": taxonomy.BUG_CODE,
    "StreamError": taxonomy.BUG_CODE,
    "ConnectionNotAvailable": taxonomy.NETWORK_ERROR,
    "HTTPError": network_or_cause(taxonomy.NETWORK_ERROR),
    "ProtocolError": taxonomy.NETWORK_PROTOCOL,
}
