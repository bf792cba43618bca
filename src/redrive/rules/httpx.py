# SPDX-License-Identifier: Apache-2.0
"""httpx and httpcore, and their successors httpx2 and httpcore2, which use the same class names."""

from __future__ import annotations

from typing import Final

from redrive.core import taxonomy
from redrive.core.verdict import RuleTable, Verdict
from redrive.rules.shared.network import proxy_trouble, trouble_or, trouble_or_cause
from redrive.rules.shared.reading import attribute, read_response


def _answer(exc: BaseException, now: float) -> Verdict | None:
    return read_response(attribute(exc, "response"), now)


RULES: Final[RuleTable] = {
    "HTTPStatusError": _answer,
    # All connections of our own pool are in use: nothing was sent, and the dependency is not to blame.
    "PoolTimeout": taxonomy.RESOURCE_EXHAUSTED,
    "TimeoutException": taxonomy.NETWORK_TIMEOUT,
    "ConnectError": trouble_or(taxonomy.NETWORK_ERROR),
    "NetworkError": trouble_or(taxonomy.NETWORK_RESET),
    "ProxyError": proxy_trouble,
    "RemoteProtocolError": taxonomy.NETWORK_PROTOCOL,
    "SSEError": taxonomy.NETWORK_PROTOCOL,
    "LocalProtocolError": taxonomy.REQUEST_INVALID,
    "UnsupportedProtocol": taxonomy.REQUEST_INVALID,
    "InvalidURL": taxonomy.REQUEST_INVALID,
    "TooManyRedirects": taxonomy.REQUEST_INVALID,
    "DecodingError": taxonomy.SCHEMA_INVALID,
    "CookieConflict": taxonomy.BUG_CODE,
    "StreamError": taxonomy.BUG_CODE,
    "ConnectionNotAvailable": taxonomy.NETWORK_ERROR,
    "HTTPError": trouble_or_cause(taxonomy.NETWORK_ERROR),
    "ProtocolError": taxonomy.NETWORK_PROTOCOL,
}
