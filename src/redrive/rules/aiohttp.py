# SPDX-License-Identifier: Apache-2.0
"""aiohttp's client: errors have the status and headers but never the body, and a malformed response looks like a 400."""

from __future__ import annotations

from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.core.verdict import RuleTable, Verdict
from redrive.rules.shared.inspection import status_in, verdict_from_response
from redrive.rules.shared.network import network_code_in, network_or, network_or_cause


def _answer(exc: BaseException, now: float) -> Verdict | Code:
    # A response that the parser cannot read is raised with status 400, which the server never sent.
    if exc.__cause__ is not None and type(exc.__cause__).__module__ == "aiohttp.http_exceptions":
        return taxonomy.NETWORK_PROTOCOL
    return verdict_from_response(exc, now) or taxonomy.NETWORK_PROTOCOL


def _content_type(exc: BaseException, now: float) -> Verdict | Code:
    """Classify `response.json()` of another content type: an error page by its status, a success as a wrong form."""
    status = status_in(exc, "status")
    return taxonomy.SCHEMA_INVALID if status is None or status < 400 else _answer(exc, now)


def _proxy(exc: BaseException, _now: float) -> Code:
    # The status is the proxy's and proves nothing about the dependency, so the verdict has no HTTP status.
    return taxonomy.AUTH_INVALID if status_in(exc, "status") == 407 else taxonomy.NETWORK_PROXY


def _payload(exc: BaseException, _now: float) -> Code:
    if type(exc.__cause__).__name__ == "ContentEncodingError":
        return taxonomy.SCHEMA_INVALID
    return network_code_in(exc) or taxonomy.NETWORK_PROTOCOL


RULES: Final[RuleTable] = {
    "ClientResponseError": _answer,
    "ContentTypeError": _content_type,
    "ClientHttpProxyError": _proxy,
    "TooManyRedirects": taxonomy.REQUEST_INVALID,
    "ClientConnectorDNSError": taxonomy.NETWORK_DNS,
    "ClientProxyConnectionError": taxonomy.NETWORK_PROXY,
    "ClientConnectorCertificateError": taxonomy.TLS_CERTIFICATE,
    "ServerFingerprintMismatch": taxonomy.TLS_CERTIFICATE,
    "ClientSSLError": network_or(taxonomy.NETWORK_TLS),
    "ClientConnectorError": network_or(taxonomy.NETWORK_ERROR),
    "ServerTimeoutError": taxonomy.NETWORK_TIMEOUT,
    "ServerDisconnectedError": taxonomy.NETWORK_RESET,
    "ClientConnectionResetError": taxonomy.NETWORK_RESET,
    "ClientOSError": network_or(taxonomy.NETWORK_ERROR),
    "ClientConnectionError": network_or(taxonomy.NETWORK_ERROR),
    "ClientPayloadError": _payload,
    "UploadAbortedError": network_or_cause(taxonomy.NETWORK_RESET),
    "InvalidURL": taxonomy.CONFIG_INVALID,
    "NonHttpUrlClientError": taxonomy.CONFIG_INVALID,
    # The server sent the address.
    "InvalidUrlRedirectClientError": taxonomy.REQUEST_INVALID,
    "NonHttpUrlRedirectClientError": taxonomy.REQUEST_INVALID,
    "RedirectClientError": taxonomy.REQUEST_INVALID,
    "WSMessageTypeError": taxonomy.NETWORK_PROTOCOL,
    "WebSocketError": taxonomy.NETWORK_PROTOCOL,
    "HttpProcessingError": taxonomy.NETWORK_PROTOCOL,
    "ClientError": network_or_cause(taxonomy.NETWORK_ERROR),
}
