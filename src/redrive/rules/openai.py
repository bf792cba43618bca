# SPDX-License-Identifier: Apache-2.0
"""The OpenAI SDK: the error body has what the status lacks, such as a spent quota behind a 429."""

from __future__ import annotations

from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.core.verdict import RuleTable, Verdict
from redrive.rules.shared.inspection import (
    attribute,
    exactly,
    unless_caused,
    verdict_from_event,
    verdict_from_response,
    verdict_from_sdk_error,
)


def _event(exc: BaseException, now: float) -> Verdict | None:
    """Read an error event in the middle of a stream, which is raised as APIError itself."""
    return verdict_from_event(attribute(exc, "body"), now) if type(exc).__name__ == "APIError" else None


def _token_provider(exc: BaseException, now: float) -> Verdict | Code | None:
    answer = verdict_from_response(attribute(exc, "response"), now)
    return answer or (taxonomy.AUTH_INVALID if exc.__cause__ is None else None)


RULES: Final[RuleTable] = {
    "APIStatusError": verdict_from_sdk_error,
    "APITimeoutError": unless_caused(taxonomy.NETWORK_TIMEOUT),
    "APIConnectionError": unless_caused(taxonomy.NETWORK_ERROR),
    "APIResponseValidationError": taxonomy.SCHEMA_INVALID,
    "APIError": _event,
    # The model stopped at its token limit; the same request stops there again.
    "LengthFinishReasonError": taxonomy.REQUEST_TOO_LARGE,
    "ContentFilterFinishReasonError": taxonomy.REJECTED_POLICY,
    "InvalidWebhookSignatureError": taxonomy.AUTH_INVALID,
    "SubjectTokenProviderError": _token_provider,
    "WebSocketConnectionClosedError": unless_caused(taxonomy.NETWORK_RESET),
    "WebSocketQueueFullError": taxonomy.QUEUE_FULL,
    # The base class itself is raised for missing or contradictory credentials.
    "OpenAIError": exactly("OpenAIError", taxonomy.CONFIG_INVALID),
    "_AmbiguousModuleClientUsageError": taxonomy.CONFIG_INVALID,
}
