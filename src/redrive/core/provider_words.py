# SPDX-License-Identifier: Apache-2.0
"""What the words mean that providers use for failures: one table, and how to look a word up in it.

Words of every provider stand together, since they agree far more often than not. One that means different things to different
providers is left out: `authentication_required` is a card's business for Stripe (whose `card_error` says so) and a missing
credential for others (whose 401 says so).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Category, Code

DAILY: Final = "perday"
"""Google names its limits by their window: `GenerateRequestsPerDayPerProjectPerModel`. A spent day does not heal in minutes."""

_CACHE_MAX: Final = 1024


@lru_cache(maxsize=_CACHE_MAX)
def meaning_of(word: str) -> Code | None:
    """Return the canonical code for a provider's error word, in whatever case and punctuation it is written."""
    if DAILY in _folded(word):
        return taxonomy.QUOTA_EXHAUSTED
    return next((_MEANINGS[form] for form in _forms(word) if form in _MEANINGS), None)


@lru_cache(maxsize=_CACHE_MAX)
def is_passing(word: str) -> bool:
    """Say whether the word names something that passes even inside a 4xx: a rate limit, or a trouble known to come as a 4xx."""
    meaning = meaning_of(word)
    is_limit = meaning is not None and meaning.category is Category.RATE_LIMIT
    return is_limit or any(form in _PASSING for form in _forms(word))


def _folded(word: str) -> str:
    return word.translate(_PUNCTUATION).lower()


def _forms(word: str) -> tuple[str, str, str]:
    """Return the word folded, then without its ending: `ModelErrorException` may be listed as `ModelError`, or as `Model`."""
    folded = _folded(word)
    shorter = folded.removesuffix("exception")
    return folded, shorter, shorter.removesuffix("error")


_PUNCTUATION: Final = str.maketrans("", "", "_-. ")
_WORDS: Final[dict[Code, str]] = {
    taxonomy.RATE_LIMITED: """
        rate_limit_exceeded rate_limit rate_limited rateLimitExceeded userRateLimitExceeded concurrentLimitExceeded
        too_many_requests slow_down Throttling Throttled ThrottledException RequestThrottled RequestThrottledException
        RequestLimitExceeded BandwidthLimitExceeded ProvisionedThroughputExceeded LimitExceeded TransactionInProgress
        TooManyRequests EC2ThrottledException PriorRequestNotComplete RESOURCE_EXHAUSTED RATE_LIMIT_EXCEEDED tokens requests
        sharingRateLimitExceeded quota_window_exceeded tokens_exceeded ramp_limit_exceeded
        """,
    taxonomy.QUOTA_EXHAUSTED: """
        insufficient_quota dailyLimitExceeded dailyLimitExceededUnreg billing_hard_limit_reached billing_not_active
        quota_exceeded quotaExceeded insufficient_credits credit_balance_too_low billing_error payment_required
        ServiceQuotaExceeded access_terminated variableTermLimitExceeded limitExceededForBilling
        enforced_spend_limit_reached storage_quota_exceeded out_of_credit out_of_credits insufficient_balance
        """,
    taxonomy.UPSTREAM_ERROR: """
        internal_error internal_server_error server_error api_error InternalError InternalFailure InternalServerError
        INTERNAL UNKNOWN backendError internalError InternalServer ModelError ModelStreamError
        """,
    taxonomy.UPSTREAM_OVERLOADED: "overloaded_error overloaded engine_overloaded model_overloaded capacity_exceeded ServerBusy",
    taxonomy.NETWORK_UNAVAILABLE: """
        service_unavailable ServiceUnavailable UNAVAILABLE database_connection_unavailable ModelNotReady temporarily_unavailable
        IDPCommunicationError
        """,
    taxonomy.NETWORK_TIMEOUT: "RequestTimeout RequestTimeoutException timeout_error request_timeout",
    taxonomy.NETWORK_GATEWAY_TIMEOUT: "gateway_timeout DEADLINE_EXCEEDED ModelTimeout",
    taxonomy.UPSTREAM_NOT_READY: "authorization_pending",
    taxonomy.CONFLICT: """
        conflict conflict_error ABORTED OperationAborted ConditionalCheckFailed ConditionalRequestConflict PreconditionFailed
        TransactionConflict TransactionCanceled version_conflict idempotency_error idempotency_key_in_use lock_timeout
        ResourceInUse ConcurrentModification alreadyExists duplicate
        """,
    taxonomy.SCHEMA_INVALID: """
        json_schema_error invalid_json malformed_json MalformedXML SerializationException missing_required_field
        missing_required_parameter parseError SCHEMA_INVALID
        """,
    taxonomy.REQUEST_INVALID: """
        invalid_request_error invalid_request invalid_request_url validation_error ValidationError ValidationException
        invalid_argument INVALID_ARGUMENT FAILED_PRECONDITION OUT_OF_RANGE invalid_value unsupported_value
        unknown_parameter badRequest invalidParameter InvalidParameterValue InvalidArgument InvalidBucketName MissingParameter
        unsupported_parameter invalid_grant_request missing_version InvalidRequest EntityTooSmall BadDigest InvalidDigest
        """,
    taxonomy.REQUEST_TOO_LARGE: """
        context_length_exceeded string_above_max_length request_too_large EntityTooLarge RequestEntityTooLarge
        max_tokens_exceeded input_too_long payload_too_large
        """,
    taxonomy.AUTH_INVALID: """
        invalid_api_key authentication_error unauthorized UNAUTHENTICATED invalid_token token_expired expired_token
        ExpiredToken ExpiredTokenException InvalidAccessKeyId InvalidClientTokenId UnrecognizedClient SignatureDoesNotMatch
        InvalidSignature AuthFailure invalid_grant invalid_client API_KEY_INVALID incorrect_api_key_provided authError
        InvalidToken TokenRefreshRequired MissingAuthenticationToken IncompleteSignature account_deactivated token_revoked
        ACCESS_TOKEN_EXPIRED ACCOUNT_STATE_INVALID expired_api_key
        """,
    taxonomy.AUTH_DENIED: """
        permission_error permission_denied PERMISSION_DENIED AccessDenied AccessDeniedException forbidden restricted_resource
        insufficientPermissions UnauthorizedOperation AllAccessDisabled AccountProblem OptInRequired
        unsupported_country_region_territory insufficient_permissions SERVICE_DISABLED API_KEY_SERVICE_BLOCKED
        insufficient_scope ACCESS_TOKEN_SCOPE_INSUFFICIENT accessNotConfigured domainPolicy not_authorized
        """,
    taxonomy.NOT_FOUND: """
        not_found not_found_error object_not_found model_not_found NoSuchKey NoSuchBucket NoSuchUpload NoSuchVersion NotFound
        NOT_FOUND ResourceNotFound ResourceNotFoundException notFound deleted channel_not_found unknown_channel is_archived
        no_such_channel QueueDoesNotExist NonExistentQueue
        """,
    taxonomy.REJECTED_POLICY: """
        content_filter content_policy_violation content_policy responsible_ai_policy_violation safety SAFETY PROHIBITED_CONTENT
        BLOCKLIST SPII moderation_blocked refusal input_blocked GuardrailIntervened RECITATION ResponsibleAIPolicyViolation
        image_content_policy_violation invalid_prompt card_error card_declined generic_decline do_not_honor insufficient_funds
        expired_card card_expired incorrect_cvc invalid_cvc incorrect_number lost_card stolen_card pickup_card fraudulent
        balance_insufficient payment_intent_authentication_failure INSTRUMENT_DECLINED TRANSACTION_REFUSED
        """,
    taxonomy.CONFIG_INVALID: "RequestTimeTooSkewed AuthorizationHeaderMalformed redirect_uri_mismatch unsupported_grant_type",
    taxonomy.UPSTREAM_UNSUPPORTED: "NotImplemented UNIMPLEMENTED MethodNotAllowed UnsupportedOperation",
}

_PASSING: Final = frozenset(
    word.lower()
    # AWS answers so with a 400, 408 or 424 and asks for another try; the last two are OAuth's (RFC 6749 and RFC 8628).
    for word in """
    RequestTimeout RequestTimeoutException IDPCommunicationError ModelError ModelStreamError ModelNotReady ModelTimeout
    temporarilyUnavailable authorizationPending
    """.split()
)


def _folded_meanings() -> dict[str, Code]:
    folded: dict[str, Code] = {}
    for code, words in _WORDS.items():
        for word in words.split():
            folded.setdefault(_folded(word), code)
    return folded


_MEANINGS: Final = _folded_meanings()
