# SPDX-License-Identifier: Apache-2.0
"""The OpenAI SDK: its error body says what the status does not, such as a spent quota behind a 429."""

from __future__ import annotations

from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.core.verdict import RuleTable, Verdict
from redrive.rules.shared.reading import (
    attribute,
    exactly,
    read_carried,
    read_event,
    read_response,
    unless_caused,
)


def _answer(exc: BaseException, now: float) -> Verdict:
    return read_carried(exc, now, otherwise=taxonomy.UPSTREAM_ERROR)


def _event(exc: BaseException, now: float) -> Verdict | None:
    """Read a bare APIError, which is how an error event in the middle of a stream is raised."""
    if type(exc).__name__ != "APIError":
        return None
    return read_event(attribute(exc, "body"), now, otherwise=taxonomy.UPSTREAM_ERROR)


def _token_provider(exc: BaseException, now: float) -> Verdict | Code | None:
    answer = read_response(attribute(exc, "response"), now)
    return answer or (taxonomy.AUTH_INVALID if exc.__cause__ is None else None)


RULES: Final[RuleTable] = {
    "APIStatusError": _answer,
    "APITimeoutError": unless_caused(taxonomy.NETWORK_TIMEOUT),
    "APIConnectionError": unless_caused(taxonomy.NETWORK_ERROR),
    "APIResponseValidationError": taxonomy.SCHEMA_INVALID,
    "APIError": _event,
    # The model stopped at its token limit, so the same request is cut off again at the same place.
    "LengthFinishReasonError": taxonomy.REQUEST_TOO_LARGE,
    "ContentFilterFinishReasonError": taxonomy.REJECTED_POLICY,
    "InvalidWebhookSignatureError": taxonomy.AUTH_INVALID,
    "SubjectTokenProviderError": _token_provider,
    "WebSocketConnectionClosedError": unless_caused(taxonomy.NETWORK_RESET),
    "WebSocketQueueFullError": taxonomy.QUEUE_FULL,
    # The root class itself is raised for missing or contradictory credentials.
    "OpenAIError": exactly("OpenAIError", taxonomy.CONFIG_INVALID),
    "_AmbiguousModuleClientUsageError": taxonomy.CONFIG_INVALID,
}
