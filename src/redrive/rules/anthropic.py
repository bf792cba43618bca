# SPDX-License-Identifier: Apache-2.0
"""The Anthropic SDK: `error.type` names the failure; an error event in a stream has the stream's status 200."""

from __future__ import annotations

from typing import Final

from redrive.core import taxonomy
from redrive.core.verdict import RuleTable
from redrive.rules.shared.inspection import exactly, unless_caused, verdict_from_sdk_error

RULES: Final[RuleTable] = {
    "APIStatusError": verdict_from_sdk_error,
    "APITimeoutError": unless_caused(taxonomy.NETWORK_TIMEOUT),
    # The SDK wraps whatever its transport raises, even a bug in a middleware; the cause shows which it is.
    "APIConnectionError": unless_caused(taxonomy.NETWORK_ERROR),
    "APIResponseValidationError": taxonomy.SCHEMA_INVALID,
    "APIWebhookValidationError": taxonomy.AUTH_INVALID,
    "APIError": exactly("APIError", taxonomy.UPSTREAM_ERROR),
    "RetryableError": unless_caused(taxonomy.RETRY_ASKED),
    "WorkloadIdentityError": unless_caused(taxonomy.AUTH_INVALID),
    "CredentialsError": unless_caused(taxonomy.CONFIG_INVALID),
    "AnthropicError": exactly("AnthropicError", taxonomy.CONFIG_INVALID),
}
