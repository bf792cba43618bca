# SPDX-License-Identifier: Apache-2.0
"""google-api-core: one exception tree over REST and gRPC; the original response or gRPC error decides."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.core.verdict import RuleTable, Verdict
from redrive.rules import grpc
from redrive.rules.shared.inspection import (
    apply_table,
    attribute,
    status_in,
    text_of,
    unless_caused,
    verdict_from_response,
)


def _answer(exc: BaseException, now: float) -> Verdict | Code | None:
    response, status = attribute(exc, "response"), status_in(exc, "code")
    if isinstance(response, BaseException) and response is not exc:
        answer = apply_table(grpc.RULES, response, now)
        return (
            replace(answer, http_status=answer.http_status or status)
            if isinstance(answer, Verdict)
            else answer
        )
    if status is None and exc.__cause__ is not None:
        return None
    by_name = _by_grpc_status(exc, status)
    if by_name is not None or status is None:
        return by_name or taxonomy.UPSTREAM_ERROR
    body = None if isinstance(attribute(response, "_content"), bytes) else _body(exc)
    return verdict_from_response(response, now, body=body, status=status)


def _by_grpc_status(exc: BaseException, status: int | None) -> Verdict | None:
    """Use the gRPC status if it has no HTTP status of its own, or a less specific one (499)."""
    name = attribute(exc, "grpc_status_code", "name")
    code = grpc.STATUSES.get(name) if isinstance(name, str) else None
    if code is None or (status is not None and code is not taxonomy.CANCELLED):
        return None
    return Verdict(code=code, http_status=status, provider_code=text_of(name))


def _body(exc: BaseException) -> object:
    """Rebuild the JSON error from the exception's attributes when the response is missing."""
    error = {
        "details": attribute(exc, "details"),
        "errors": attribute(exc, "errors"),
        "reason": attribute(exc, "reason"),
        "status": attribute(exc, "grpc_status_code", "name"),
    }
    return {"error": error}


RULES: Final[RuleTable] = {
    "GoogleAPICallError": _answer,
    # The library's own retries ran out of time; the cause is the last error.
    "RetryError": unless_caused(taxonomy.NETWORK_TIMEOUT),
    "TransferStalledError": taxonomy.NETWORK_TIMEOUT,
    "UploadCancelledError": taxonomy.CANCELLED,
    "MissingStatusHeaderError": taxonomy.NETWORK_PROTOCOL,
    "UnseekableStreamError": taxonomy.BUG_CODE,
    "DuplicateCredentialArgs": taxonomy.CONFIG_INVALID,
    "AsyncRestUnsupportedParameterError": taxonomy.BUG_CODE,
}
