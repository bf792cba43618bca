# SPDX-License-Identifier: Apache-2.0
"""requests: its ConnectionError has urllib3's exception in `args`, which has the socket's."""

from __future__ import annotations

from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.core.verdict import RuleTable, Verdict
from redrive.rules import urllib3
from redrive.rules.shared.inspection import (
    apply_table,
    attribute,
    nested_exceptions,
    package_of,
    verdict_from_response,
)
from redrive.rules.shared.network import network_code_in, network_or, proxy_code


def _answer(exc: BaseException, now: float) -> Verdict | Code:
    # Programs, not the library, raise an HTTPError without a response.
    return verdict_from_response(attribute(exc, "response"), now) or taxonomy.REQUEST_INVALID


def _connection(exc: BaseException, now: float) -> Verdict | Code:
    for inner in nested_exceptions(exc):
        is_urllib3 = package_of(type(inner)) == "urllib3"
        answer = apply_table(urllib3.RULES, inner, now) if is_urllib3 else None
        if answer is not None:
            return answer
    return network_code_in(exc) or taxonomy.NETWORK_ERROR


RULES: Final[RuleTable] = {
    "HTTPError": _answer,
    # ConnectTimeout derives from ConnectionError and Timeout; here it is a timeout.
    "ConnectTimeout": taxonomy.NETWORK_TIMEOUT,
    "Timeout": taxonomy.NETWORK_TIMEOUT,
    "ProxyError": proxy_code,
    "SSLError": network_or(taxonomy.NETWORK_TLS),
    "ConnectionError": _connection,
    "RetryError": _connection,
    "ChunkedEncodingError": network_or(taxonomy.NETWORK_PROTOCOL),
    "ContentDecodingError": taxonomy.SCHEMA_INVALID,
    "JSONDecodeError": taxonomy.SCHEMA_INVALID,
    # Raised for a payload that cannot be sent as JSON; only its subclass above is about a response.
    "InvalidJSONError": taxonomy.BUG_CODE,
    "InvalidProxyURL": taxonomy.CONFIG_INVALID,
    "InvalidURL": taxonomy.CONFIG_INVALID,
    "InvalidSchema": taxonomy.CONFIG_INVALID,
    "MissingSchema": taxonomy.CONFIG_INVALID,
    "URLRequired": taxonomy.CONFIG_INVALID,
    "InvalidHeader": taxonomy.REQUEST_INVALID,
    "TooManyRedirects": taxonomy.REQUEST_INVALID,
    "StreamConsumedError": taxonomy.BUG_CODE,
    "UnrewindableBodyError": taxonomy.BUG_CODE,
    "RequestException": _connection,
}
