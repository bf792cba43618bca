# SPDX-License-Identifier: Apache-2.0
"""The Google GenAI SDK (Gemini): `details` is the whole JSON error, with RetryInfo and quota.

Its newer parts (interactions) raise other classes, shaped like those of other generated SDKs. A live session ends with a
WebSocket close code instead of a status.
"""

from __future__ import annotations

from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.core.verdict import RuleTable, Verdict
from redrive.rules.shared.inspection import (
    attribute,
    exactly,
    status_in,
    unless_caused,
    verdict_from_event,
    verdict_from_response,
    verdict_from_sdk_error,
)

_GENERATED_ROOT: Final = "GeminiNextGenAPIClientError"
_CLOSE_CODES: Final[dict[int, Code]] = {
    1003: taxonomy.REQUEST_INVALID,
    1007: taxonomy.REQUEST_INVALID,
    1008: taxonomy.REQUEST_INVALID,
    1009: taxonomy.REQUEST_TOO_LARGE,
    1011: taxonomy.UPSTREAM_ERROR,
    1012: taxonomy.NETWORK_UNAVAILABLE,
    1013: taxonomy.UPSTREAM_OVERLOADED,
}
"""RFC 6455 section 7.4.1 and the IANA registry of WebSocket close codes."""


def _answer(exc: BaseException, now: float) -> Verdict | None:
    # The generated parts also have a class of this name; there it is the parent of connection errors and status errors.
    if any(cls.__name__ == _GENERATED_ROOT for cls in type(exc).__mro__):
        return verdict_from_event(attribute(exc, "body"), now) if type(exc).__name__ == "APIError" else None
    code, details = attribute(exc, "code"), attribute(exc, "details")
    status = status_in(exc, "code")
    if status is None:
        closed = (
            _CLOSE_CODES.get(code, taxonomy.NETWORK_RESET)
            if isinstance(code, int)
            else taxonomy.UPSTREAM_ERROR
        )
        return verdict_from_event(details, now, otherwise=closed)
    return verdict_from_response(attribute(exc, "response"), now, body=details, status=status)


def _raw(exc: BaseException, now: float) -> Verdict | Code:
    body, status = attribute(exc, "body"), status_in(exc, "status_code")
    return (
        verdict_from_response(attribute(exc, "raw_response"), now, body=body, status=status)
        or taxonomy.UPSTREAM_ERROR
    )


RULES: Final[RuleTable] = {
    "APIError": _answer,
    "UnknownApiResponseError": taxonomy.SCHEMA_INVALID,
    "ContinuationInterruptedError": unless_caused(taxonomy.NETWORK_ERROR),
    "FunctionInvocationError": unless_caused(taxonomy.BUG_CODE),
    "UnknownFunctionCallArgumentError": unless_caused(taxonomy.BUG_CODE),
    "UnsupportedFunctionError": taxonomy.BUG_CODE,
    "APIStatusError": verdict_from_sdk_error,
    "APITimeoutError": unless_caused(taxonomy.NETWORK_TIMEOUT),
    "APIConnectionError": unless_caused(taxonomy.NETWORK_ERROR),
    "APIResponseValidationError": taxonomy.SCHEMA_INVALID,
    _GENERATED_ROOT: exactly(_GENERATED_ROOT, taxonomy.CONFIG_INVALID),
    "GenAiError": _raw,
    "ResponseValidationError": taxonomy.SCHEMA_INVALID,
    "NoResponseError": unless_caused(taxonomy.NETWORK_ERROR),
}
