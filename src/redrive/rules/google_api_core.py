# SPDX-License-Identifier: Apache-2.0
"""google-api-core: one exception tree over REST and gRPC; the answer beneath it is read where it is kept."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.core.http import read_answer
from redrive.core.verdict import Moment, RuleTable, Verdict
from redrive.rules import grpc
from redrive.rules.reading import attribute, consult, read_response, status_in, unless_caused


def _answer(exc: BaseException, moment: Moment) -> Verdict | Code | None:
    response, status = attribute(exc, "response"), status_in(exc, "code")
    if isinstance(response, BaseException) and response is not exc:
        answer = consult(grpc.RULES, response, moment)
        return (
            replace(answer, http_status=answer.http_status or status)
            if isinstance(answer, Verdict)
            else answer
        )
    if status is None:
        return None if exc.__cause__ is not None else taxonomy.UPSTREAM_ERROR
    read = attribute(response, "_content")
    if isinstance(read, bytes):
        return read_response(response, moment, status=status)
    return read_answer(status, moment, headers=attribute(response, "headers"), body=_body(exc))


def _body(exc: BaseException) -> object:
    """Rebuild the JSON error from the parts that the exception keeps when its response is gone."""
    error = {
        "details": attribute(exc, "details"),
        "errors": attribute(exc, "errors"),
        "reason": attribute(exc, "reason"),
        "status": attribute(exc, "grpc_status_code", "name"),
    }
    return {"error": error}


RULES: Final[RuleTable] = {
    "GoogleAPICallError": _answer,
    # The library's own retries ran out of time; what they ran into is the cause.
    "RetryError": unless_caused(taxonomy.NETWORK_TIMEOUT),
    "TransferStalledError": taxonomy.NETWORK_TIMEOUT,
    "UploadCancelledError": taxonomy.CANCELLED,
    "MissingStatusHeaderError": taxonomy.NETWORK_PROTOCOL,
    "UnseekableStreamError": taxonomy.BUG_CODE,
    "DuplicateCredentialArgs": taxonomy.CONFIG_INVALID,
    "AsyncRestUnsupportedParameterError": taxonomy.BUG_CODE,
}
