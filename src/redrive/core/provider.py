# SPDX-License-Identifier: Apache-2.0
"""What a provider's error body says: the name it gives the failure, and what that name means.

A status code alone is often wrong: a 429 may be a spent quota that no waiting heals, a 403 may be a rate limit, a 400 may be a
time-out. `read_body` finds the provider's own word in any of the usual shapes of JSON error bodies; `meaning_of` translates it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.core.retry_after import from_duration

BODY_MAX: Final = 262_144
"""Bytes of an error body we are willing to parse."""

_DETAILS_MAX: Final = 32
_DAILY: Final = "perday"
"""Google names its limits by their window: `GenerateRequestsPerDayPerProjectPerModel`. A spent day does not heal in minutes."""
_XML_CODE: Final = re.compile(rb"<Code>([A-Za-z0-9.]{1,100})</Code>")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderError:
    """The parts of an error body that matter, most specific word first."""

    words: tuple[str, ...] = ()
    retry_after: float | None = None
    request_id: str | None = None

    @property
    def word(self) -> str | None:
        """The provider's most specific word whose meaning we know, else its first word."""
        known = (word for word in self.words if meaning_of(word) is not None)
        return next(known, self.words[0] if self.words else None)

    @property
    def code(self) -> Code | None:
        """What the most specific known word means."""
        return meaning_of(self.word) if self.word else None


def meaning_of(word: str) -> Code | None:
    """Return the canonical code for a provider's error word, in whatever case and punctuation it is written."""
    folded = word.replace("_", "").replace("-", "").replace(".", "").replace(" ", "").lower()
    if _DAILY in folded:
        return taxonomy.QUOTA_EXHAUSTED
    return _MEANINGS.get(folded) or _MEANINGS.get(folded.removesuffix("exception").removesuffix("error"))


def read_body(body: object) -> ProviderError:
    """Read an error body (bytes, text, or already decoded JSON); an unreadable one says nothing."""
    raw = _decoded(body)
    # Google wraps the error of a streamed answer into a list.
    decoded = _mapping(next(iter(_listed(raw)), raw))
    if decoded is None:
        return ProviderError()
    inner = decoded.get("error")
    error = _mapping(inner) or decoded
    named = _mapping(error.get("details"))
    details = _listed(error.get("details")) if named is None else [named]
    words = (
        *_daily_limits(details),
        *_words_of(details, "reason", "error_code"),
        *_words_of(_listed(error.get("errors")), "reason", "code"),
        *_texts(error, "code", "type", "status", "__type", "Code", "error_code", "errcode", "reason"),
        *((inner,) if isinstance(inner, str) else ()),
    )
    # An AWS JSON protocol type may come as "com.example#ThrottlingException:http://...".
    bare = tuple(word.rsplit("#", 1)[-1].split(":", 1)[0] for word in words)
    return ProviderError(
        words=tuple(dict.fromkeys(word for word in bare if word)),
        retry_after=_retry_delay(details),
        request_id=next(
            iter(
                (*_texts(decoded, "request_id", "requestId", "RequestId"), *_words_of(details, "requestId"))
            ),
            None,
        ),
    )


def _decoded(body: object) -> object:
    if isinstance(body, bytes | bytearray | str):
        if len(body) > BODY_MAX:
            return None
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            return _from_xml(body)
    return body


def _from_xml(body: bytes | bytearray | str) -> object:
    """Find the word in an XML error of a storage service (S3, Azure and Google Cloud Storage all call it `Code`)."""
    raw = body.encode("utf-8", "replace") if isinstance(body, str) else body
    found = _XML_CODE.search(raw) if raw.lstrip()[:1] == b"<" else None
    return {"Code": found[1].decode("ascii")} if found else None


def _listed(value: object) -> Sequence[object]:
    return cast("list[object]", value)[:_DETAILS_MAX] if isinstance(value, list) else ()


def _mapping(value: object) -> Mapping[object, object] | None:
    return cast("Mapping[object, object]", value) if isinstance(value, Mapping) else None


def _mappings(values: Sequence[object]) -> list[Mapping[object, object]]:
    return [mapping for mapping in map(_mapping, values) if mapping is not None]


def _texts(mapping: Mapping[object, object], *names: str) -> tuple[str, ...]:
    values = (mapping.get(name) for name in names)
    return tuple(value for value in values if isinstance(value, str) and 0 < len(value) <= 200)


def _words_of(entries: Sequence[object], *names: str) -> tuple[str, ...]:
    return tuple(text for entry in _mappings(entries) for text in _texts(entry, *names))


def _daily_limits(details: Sequence[object]) -> tuple[str, ...]:
    """Find the daily limits among the quotas that google.rpc.QuotaFailure or ErrorInfo name as exceeded."""
    named: list[str] = []
    for entry in _mappings(details):
        named += _texts(_mapping(entry.get("metadata")) or {}, "quota_limit")
        named += _words_of(_listed(entry.get("violations")), "quotaId")
    return tuple(name for name in named if _DAILY in name.lower())


def _retry_delay(details: Sequence[object]) -> float | None:
    """Find google.rpc.RetryInfo among the details of a Google error."""
    told = (from_duration(entry["retryDelay"]) for entry in _mappings(details) if "retryDelay" in entry)
    return next(told, None)


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
        enforced_spend_limit_reached storage_quota_exceeded
        """,
    taxonomy.UPSTREAM_ERROR: """
        internal_error internal_server_error server_error api_error InternalError InternalFailure InternalServerError
        INTERNAL UNKNOWN backendError internalError InternalServer ModelError ModelStreamError
        """,
    taxonomy.UPSTREAM_OVERLOADED: "overloaded_error overloaded engine_overloaded model_overloaded capacity_exceeded ServerBusy",
    taxonomy.NETWORK_UNAVAILABLE: """
        service_unavailable ServiceUnavailable UNAVAILABLE database_connection_unavailable ModelNotReady temporarily_unavailable
        """,
    taxonomy.NETWORK_TIMEOUT: "RequestTimeout RequestTimeoutException timeout_error request_timeout",
    taxonomy.NETWORK_GATEWAY_TIMEOUT: "gateway_timeout DEADLINE_EXCEEDED ModelTimeout",
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
        image_content_policy_violation invalid_prompt
        """,
    taxonomy.CONFIG_INVALID: "RequestTimeTooSkewed AuthorizationHeaderMalformed redirect_uri_mismatch unsupported_grant_type",
    taxonomy.UPSTREAM_UNSUPPORTED: "NotImplemented UNIMPLEMENTED MethodNotAllowed UnsupportedOperation",
}


def _folded_meanings() -> dict[str, Code]:
    folded: dict[str, Code] = {}
    for code, words in _WORDS.items():
        for word in words.split():
            folded.setdefault(word.replace("_", "").lower(), code)
    return folded


_MEANINGS: Final = _folded_meanings()
