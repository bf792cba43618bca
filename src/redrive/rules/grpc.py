# SPDX-License-Identifier: Apache-2.0
"""gRPC, sync and asyncio: the name of the status, the details of google.rpc.Status, and the server's retry pushback.

The client itself raises UNAVAILABLE when it cannot connect. Only the text then shows the reason. It is parsed for a more specific
code, but never changes whether the failure is retryable, except for a certificate that is not trusted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, cast

from msgspec.structs import replace

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.core.http import GENERAL_CODES, code_for_status, request_id_in
from redrive.core.provider import ProviderError, read_body
from redrive.core.retry_after import fold_headers, from_milliseconds
from redrive.core.verdict import RuleTable, Verdict
from redrive.rules.shared.inspection import as_permanent, attribute, called, listed, text_of
from redrive.rules.shared.rpc_status import read_status

STATUSES: Final[dict[str, Code]] = {
    "CANCELLED": taxonomy.CANCELLED,
    "UNKNOWN": taxonomy.UPSTREAM_ERROR,
    "INVALID_ARGUMENT": taxonomy.REQUEST_INVALID,
    "DEADLINE_EXCEEDED": taxonomy.NETWORK_TIMEOUT,
    "NOT_FOUND": taxonomy.NOT_FOUND,
    "ALREADY_EXISTS": taxonomy.CONFLICT,
    "PERMISSION_DENIED": taxonomy.AUTH_DENIED,
    "RESOURCE_EXHAUSTED": taxonomy.RATE_LIMITED,
    "FAILED_PRECONDITION": taxonomy.REQUEST_INVALID,
    "ABORTED": taxonomy.CONFLICT,
    "OUT_OF_RANGE": taxonomy.REQUEST_INVALID,
    "UNIMPLEMENTED": taxonomy.UPSTREAM_UNSUPPORTED,
    "INTERNAL": taxonomy.UPSTREAM_ERROR,
    "UNAVAILABLE": taxonomy.NETWORK_UNAVAILABLE,
    # "Unrecoverable data loss or corruption": reading again gives the same bytes.
    "DATA_LOSS": taxonomy.SCHEMA_INVALID,
    "UNAUTHENTICATED": taxonomy.AUTH_INVALID,
}
_UNAVAILABLE_BECAUSE: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), code)
    for pattern, code in (
        (
            "CERTIFICATE_VERIFY_FAILED|Hostname Verification Check failed|Peer name .* is not in peer certificate",
            taxonomy.TLS_CERTIFICATE,
        ),
        (
            "DNS (resolution|query) failed|errors resolving|address lookup failed|name resolution failed",
            taxonomy.NETWORK_DNS,
        ),
        ("Connection refused", taxonomy.NETWORK_REFUSED),
        ("Connection reset|Socket closed|Broken pipe|GOAWAY|Connection aborted", taxonomy.NETWORK_RESET),
        ("SSL_ERROR|handshake (failed|read failed|error)|TSI_", taxonomy.NETWORK_TLS),
        ("unreachable|No route to host", taxonomy.NETWORK_UNREACHABLE),
        ("timed? ?out|Timeout occurred", taxonomy.NETWORK_TIMEOUT),
    )
)
# The wording of clients and servers; the official libraries for C++, Go and Java all use "larger than max".
_TOO_LARGE: Final = re.compile(r"larger than max|message (is )?too large|exceeds maximum", re.IGNORECASE)
_BAD_TARGET: Final = "the target uri is not valid"
_HTTP_STATUS: Final = re.compile(r"(?:http2 header with status|HTTP status(?: code)?):? (\d{3})")


def _answer(exc: BaseException, _now: float) -> Verdict | Code | None:
    name = attribute(called(exc, "code"), "name")
    by_status = STATUSES.get(name) if isinstance(name, str) else None
    if by_status is None:
        return taxonomy.NETWORK_ERROR if exc.__cause__ is None else None
    metadata = _metadata(exc)
    headers = fold_headers([pair for pair in metadata if isinstance(pair[1], str)])
    provider = _details(metadata)
    details = text_of(called(exc, "details"))
    # A gateway without gRPC support answers with an HTTP status, which the client quotes in its text.
    status = _HTTP_STATUS.search(details)
    verdict = Verdict(
        code=_code(by_status, provider, details),
        http_status=int(status[1]) if status else None,
        retry_after=provider.retry_after,
        provider_code=provider.name or text_of(name),
        request_id=request_id_in(headers) or provider.request_id,
    )
    return _pushed_back(verdict, headers.get("grpc-retry-pushback-ms"))


def _code(by_status: Code, provider: ProviderError, details: str) -> Code:
    if by_status is taxonomy.RATE_LIMITED and _TOO_LARGE.search(details):
        return taxonomy.REQUEST_TOO_LARGE
    if provider.code is not None and provider.code not in GENERAL_CODES:
        return provider.code
    if by_status is taxonomy.UPSTREAM_ERROR and _BAD_TARGET in details:
        return taxonomy.CONFIG_INVALID
    if by_status is taxonomy.NETWORK_UNAVAILABLE:
        return _why_unavailable(details)
    return by_status


def _why_unavailable(details: str) -> Code:
    status = _HTTP_STATUS.search(details)
    if status:
        return code_for_status(int(status[1]))
    return next(
        (code for pattern, code in _UNAVAILABLE_BECAUSE if pattern.search(details)),
        taxonomy.NETWORK_UNAVAILABLE,
    )


def _pushed_back(verdict: Verdict, pushback: str | None) -> Verdict:
    """Apply gRFC A6: a pushback that is negative or not a number means that the server wants no retry at all."""
    if pushback is None:
        return verdict
    delay = from_milliseconds(pushback)
    return as_permanent(verdict) if delay is None else replace(verdict, retry_after=delay)


def _details(metadata: list[tuple[object, object]]) -> ProviderError:
    for key, value in metadata:
        if key == "grpc-status-details-bin" and isinstance(value, bytes):
            return read_body(read_status(value))
    return ProviderError()


def _metadata(exc: BaseException) -> list[tuple[object, object]]:
    raw = called(exc, "trailing_metadata")
    try:
        pairs = [listed(pair) for pair in cast("Iterable[object]", raw)] if isinstance(raw, Iterable) else []
    except Exception:  # noqa: BLE001 - metadata of a foreign class may raise anything; then there is none.
        return []
    return [(pair[0], pair[1]) for pair in pairs if len(pair) == 2]


RULES: Final[RuleTable] = {
    "RpcError": _answer,
    "FutureTimeoutError": taxonomy.NETWORK_TIMEOUT,
    "FutureCancelledError": taxonomy.CANCELLED,
    "UsageError": taxonomy.BUG_CODE,
    "InternalError": taxonomy.NETWORK_ERROR,
    # Raised only inside a server's handler, which ended the call on purpose.
    "AbortError": taxonomy.STAGE_FAILED,
}
