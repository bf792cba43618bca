# SPDX-License-Identifier: Apache-2.0
"""aiohttp's client: answers carry status and headers but never a body, and a broken answer poses as a 400."""

from __future__ import annotations

from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.core.http import classify_response
from redrive.core.verdict import RuleTable, Verdict
from redrive.rules.shared.network import trouble_in, trouble_or, trouble_or_cause
from redrive.rules.shared.reading import attribute, status_in


def _answer(exc: BaseException, now: float) -> Verdict | Code:
    # An answer that the parser cannot read is raised as status 400, which the server never sent.
    if exc.__cause__ is not None and type(exc.__cause__).__module__ == "aiohttp.http_exceptions":
        return taxonomy.NETWORK_PROTOCOL
    status = status_in(exc, "status")
    if status is None:
        return taxonomy.NETWORK_PROTOCOL
    return classify_response(status, now, headers=attribute(exc, "headers"))


def _content_type(exc: BaseException, now: float) -> Verdict | Code:
    """`response.json()` of something else: an error page keeps its status, a good answer has the wrong form."""
    status = status_in(exc, "status")
    return taxonomy.SCHEMA_INVALID if status is None or status < 400 else _answer(exc, now)


def _proxy(exc: BaseException, _now: float) -> Code:
    # The status is the proxy's and says nothing about the dependency, so it is not reported as an answer.
    return taxonomy.AUTH_INVALID if status_in(exc, "status") == 407 else taxonomy.NETWORK_PROXY


def _payload(exc: BaseException, _now: float) -> Code:
    if type(exc.__cause__).__name__ == "ContentEncodingError":
        return taxonomy.SCHEMA_INVALID
    return trouble_in(exc) or taxonomy.NETWORK_PROTOCOL


RULES: Final[RuleTable] = {
    "ClientResponseError": _answer,
    "ContentTypeError": _content_type,
    "ClientHttpProxyError": _proxy,
    "TooManyRedirects": taxonomy.REQUEST_INVALID,
    "ClientConnectorDNSError": taxonomy.NETWORK_DNS,
    "ClientProxyConnectionError": taxonomy.NETWORK_PROXY,
    "ClientConnectorCertificateError": taxonomy.TLS_CERTIFICATE,
    "ServerFingerprintMismatch": taxonomy.TLS_CERTIFICATE,
    "ClientSSLError": trouble_or(taxonomy.NETWORK_TLS),
    "ClientConnectorError": trouble_or(taxonomy.NETWORK_ERROR),
    "ServerTimeoutError": taxonomy.NETWORK_TIMEOUT,
    "ServerDisconnectedError": taxonomy.NETWORK_RESET,
    "ClientConnectionResetError": taxonomy.NETWORK_RESET,
    "ClientOSError": trouble_or(taxonomy.NETWORK_ERROR),
    "ClientConnectionError": trouble_or(taxonomy.NETWORK_ERROR),
    "ClientPayloadError": _payload,
    "UploadAbortedError": trouble_or_cause(taxonomy.NETWORK_RESET),
    "InvalidURL": taxonomy.REQUEST_INVALID,
    "NonHttpUrlClientError": taxonomy.REQUEST_INVALID,
    "RedirectClientError": taxonomy.REQUEST_INVALID,
    "WSMessageTypeError": taxonomy.NETWORK_PROTOCOL,
    "WebSocketError": taxonomy.NETWORK_PROTOCOL,
    "HttpProcessingError": taxonomy.NETWORK_PROTOCOL,
    "ClientError": trouble_or_cause(taxonomy.NETWORK_ERROR),
}
