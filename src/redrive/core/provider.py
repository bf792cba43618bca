# SPDX-License-Identifier: Apache-2.0
"""Read a provider's error body: its name for the failure, the delay it asks for, and its id for the request.

A status alone is often wrong: a 429 may be a spent quota, which no retry changes, a 403 may be a rate limit, a 400 may be a
timeout. `read_body` finds the error name in the usual shapes of JSON error bodies, and one table maps the names of all providers
to canonical codes. A name that means different things to different providers is not in it: `authentication_required` is about a
card for Stripe (whose `card_error` shows it) and about a missing credential for others (whose 401 shows it).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Final, cast

from msgspec import Struct

from redrive.core import taxonomy
from redrive.core.failure import Category, Code
from redrive.core.retry_after import from_duration, from_milliseconds

BODY_MAX: Final = 262_144
"""A longer error body is not parsed; in bytes."""

_CACHE_MAX: Final = 1024
_DAILY: Final = "perday"
"""Google names its limits by their window: `GenerateRequestsPerDayPerProjectPerModel`. A spent day takes hours to refill."""
_DETAILS_MAX: Final = 32
_NAME_MAX: Final = 200
_XML_CODE: Final = re.compile(rb"<Code>([A-Za-z0-9.]{1,100})</Code>")
_NAMES: Final = ("code", "type", "status", "__type", "Code", "error_code", "errcode", "reason")
# Anthropic has one type for every bad request and no code, so these are recognised by the start of their message
# (docs.anthropic.com/en/api/errors). No other message is parsed.
_ANTHROPIC: Final[tuple[tuple[str, Code], ...]] = (
    ("Your credit balance is too low", taxonomy.QUOTA_EXHAUSTED),
    ("prompt is too long", taxonomy.REQUEST_TOO_LARGE),
    ("input length and `max_tokens` exceed context limit", taxonomy.REQUEST_TOO_LARGE),
)


class ProviderError(Struct, frozen=True, kw_only=True):
    """The facts of an error body."""

    name: str | None = None
    """The provider's most specific name for the failure that is in our table, else its first one."""
    code: Code | None = None
    """The canonical code, if the body determines one."""
    is_temporary: bool = False
    """Whether the name means a temporary condition even if the status blames the request."""
    retry_after: float | None = None
    request_id: str | None = None


_NOTHING: Final = ProviderError()


def read_body(body: object) -> ProviderError:
    """Read an error body (bytes, text, or decoded JSON); an unreadable one yields no facts."""
    raw = _decoded(body)
    # Google wraps the error of a streamed response in a list.
    decoded = _mapping(next(iter(_listed(raw)), raw))
    if decoded is None:
        return _NOTHING
    error = _mapping(decoded.get("error")) or decoded
    detail = _mapping(error.get("details"))
    details = _mappings(_listed(error.get("details"))) if detail is None else [detail]
    name = _best_name(_error_names(decoded, error, details))
    return ProviderError(
        name=name,
        code=_anthropic(decoded, error) or (code_for_name(name) if name else None),
        is_temporary=name is not None and is_temporary(name),
        retry_after=_retry_after(decoded, error, details),
        request_id=next(
            chain(_texts(decoded, "request_id", "requestId", "RequestId"), _texts_in(details, "requestId")),
            None,
        ),
    )


def _error_names(
    decoded: Mapping[object, object],
    error: Mapping[object, object],
    details: Sequence[Mapping[object, object]],
) -> Iterator[str]:
    """Yield the body's names for the failure, the most specific first."""
    if details:
        yield from _daily_limits(details)
        yield from _texts_in(details, "reason", "error_code")
    yield from _texts_in(_mappings(_listed(error.get("errors"))), "reason", "code")
    yield from _texts(error, *_NAMES)
    yield from _texts(decoded, "error")


def _best_name(names: Iterator[str]) -> str | None:
    first: str | None = None
    for name in filter(None, map(_plain_name, names)):
        if code_for_name(name) is not None:
            return name
        first = first or name
    return first


def _plain_name(text: str) -> str:
    """Return the error name inside a text, or an empty string.

    The type of a problem (RFC 9457) is a URL whose last segment is the name; `about:blank` adds nothing to the status. An AWS
    JSON protocol type may be "com.example#ThrottlingException:http://...".
    """
    if text.isidentifier():
        return text
    scheme, _, rest = text.partition(":")
    if scheme in {"http", "https"}:
        return _last_segment(rest.lstrip("/").partition("/")[2])
    if scheme in {"urn", "tag"}:
        return rest.rsplit(":", 1)[-1]
    if scheme == "about":
        return ""
    return _last_segment(text) if text.startswith("/") else text.rsplit("#", 1)[-1].partition(":")[0]


def _last_segment(path: str) -> str:
    way, _, fragment = path.partition("#")
    return fragment or way.partition("?")[0].rstrip("/").rsplit("/", 1)[-1]


def _anthropic(decoded: Mapping[object, object], error: Mapping[object, object]) -> Code | None:
    message = error.get("message")
    if (decoded.get("type"), error.get("type")) != ("error", "invalid_request_error"):
        return None
    text = message if isinstance(message, str) else ""
    return next((code for beginning, code in _ANTHROPIC if text.startswith(beginning)), None)


def _retry_after(
    decoded: Mapping[object, object],
    error: Mapping[object, object],
    details: Sequence[Mapping[object, object]],
) -> float | None:
    """Find the delay in google.rpc.RetryInfo, or in the fields that Telegram, Discord and others put beside the error."""
    delays = [from_duration(entry["retryDelay"]) for entry in details if "retryDelay" in entry]
    for place in (error, decoded, _mapping(decoded.get("parameters")) or {}):
        delays += [from_duration(place[name]) for name in ("retry_after", "retryAfter") if name in place]
        delays += [from_milliseconds(place.get("retry_after_ms"))]
    return next((seconds for seconds in delays if seconds is not None), None)


def _decoded(body: object) -> object:
    if isinstance(body, bytes | bytearray | str):
        if not body or len(body) > BODY_MAX:
            return None
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            return _from_xml(body)
    return body


def _from_xml(body: bytes | bytearray | str) -> object:
    """Find the error name in an XML error of a storage service (S3, Azure and Google Cloud Storage all call it `Code`)."""
    raw = body.encode("utf-8", "replace") if isinstance(body, str) else body
    found = _XML_CODE.search(raw) if raw.lstrip()[:1] == b"<" else None
    return {"Code": found[1].decode("ascii")} if found else None


def _listed(value: object) -> Sequence[object]:
    return cast("list[object]", value)[:_DETAILS_MAX] if isinstance(value, list) else ()


def _mapping(value: object) -> Mapping[object, object] | None:
    return cast("Mapping[object, object]", value) if isinstance(value, Mapping) else None


def _mappings(values: Sequence[object]) -> list[Mapping[object, object]]:
    return [mapping for mapping in map(_mapping, values) if mapping is not None]


def _texts(mapping: Mapping[object, object], *names: str) -> Iterator[str]:
    for name in names:
        value = mapping.get(name)
        if isinstance(value, str) and 0 < len(value) <= _NAME_MAX:
            yield value


def _texts_in(entries: Sequence[Mapping[object, object]], *names: str) -> Iterator[str]:
    for entry in entries:
        yield from _texts(entry, *names)


def _daily_limits(details: Sequence[Mapping[object, object]]) -> Iterator[str]:
    """Yield the daily limits among the exceeded quotas in google.rpc.QuotaFailure or ErrorInfo."""
    for entry in details:
        names = [*_texts(_mapping(entry.get("metadata")) or {}, "quota_limit")]
        names += _texts_in(_mappings(_listed(entry.get("violations"))), "quotaId")
        yield from (name for name in names if _DAILY in name.lower())


@lru_cache(maxsize=_CACHE_MAX)
def code_for_name(name: str) -> Code | None:
    """Return the canonical code for a provider's error name, in any case and punctuation."""
    if _DAILY in _folded(name):
        return taxonomy.QUOTA_EXHAUSTED
    return next((_CODES_BY_NAME[form] for form in _forms(name) if form in _CODES_BY_NAME), None)


@lru_cache(maxsize=_CACHE_MAX)
def is_temporary(name: str) -> bool:
    """Return whether the name means a temporary condition even in a 4xx: a rate limit, or an error known to come as a 4xx."""
    code = code_for_name(name)
    is_limit = code is not None and code.category is Category.RATE_LIMIT
    return is_limit or any(form in _TEMPORARY for form in _forms(name))


def _folded(name: str) -> str:
    return name.translate(_PUNCTUATION).lower()


def _forms(name: str) -> tuple[str, str, str]:
    """Return the name folded, then without its ending: `ModelErrorException` may be listed as `ModelError`, or as `Model`."""
    folded = _folded(name)
    shorter = folded.removesuffix("exception")
    return folded, shorter, shorter.removesuffix("error")


_PUNCTUATION: Final = str.maketrans("", "", "_-. ")
_NAMES_BY_CODE: Final[dict[Code, str]] = {
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

_TEMPORARY: Final = frozenset(
    name.lower()
    # AWS sends these with a 400, 408 or 424 and asks for a retry; the last two are OAuth's (RFC 6749 and RFC 8628).
    for name in """
    RequestTimeout RequestTimeoutException IDPCommunicationError ModelError ModelStreamError ModelNotReady ModelTimeout
    temporarilyUnavailable authorizationPending
    """.split()
)


_CODES_BY_NAME: Final = {
    _folded(name): code for code, names in _NAMES_BY_CODE.items() for name in names.split()
}
