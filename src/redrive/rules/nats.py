# SPDX-License-Identifier: Apache-2.0
"""nats-py: by class, and for JetStream by the server's error number, which is more specific than the HTTP-like code beside it.

A refusal by `-ERR`, such as wrong credentials, is raised as the base class `Error`; the protocol defines its text.
"""

from __future__ import annotations

from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.core.http import code_for_status
from redrive.core.verdict import RuleFunction, RuleTable, Verdict
from redrive.rules.shared.inspection import attribute, status_in, text_of

_NUMBERS: Final[dict[int, Code]] = {
    10002: taxonomy.QUOTA_EXHAUSTED,  # the account's limits
    10003: taxonomy.REQUEST_INVALID,
    10006: taxonomy.NETWORK_UNAVAILABLE,
    10008: taxonomy.NETWORK_UNAVAILABLE,
    10009: taxonomy.NETWORK_UNAVAILABLE,
    10013: taxonomy.CONFLICT,
    10014: taxonomy.NOT_FOUND,
    10023: taxonomy.UPSTREAM_OVERLOADED,
    10028: taxonomy.UPSTREAM_OVERLOADED,
    10037: taxonomy.NOT_FOUND,
    # Sent with code 503, but permanent: JetStream is not enabled for the account.
    10039: taxonomy.CONFIG_INVALID,
    10047: taxonomy.UPSTREAM_OVERLOADED,
    10054: taxonomy.REQUEST_TOO_LARGE,
    10058: taxonomy.CONFIG_INVALID,
    10059: taxonomy.NOT_FOUND,
    10060: taxonomy.CONFIG_INVALID,
    10065: taxonomy.CONFIG_INVALID,
    10070: taxonomy.CONFLICT,
    10071: taxonomy.CONFLICT,
    # Sent with code 500, but permanent: more replicas than servers.
    10074: taxonomy.CONFIG_INVALID,
    10076: taxonomy.CONFIG_INVALID,
    # The stream is full and rejects new messages until a consumer makes room.
    10077: taxonomy.QUEUE_FULL,
    10164: taxonomy.CONFLICT,
}
_TEXTS: Final[tuple[tuple[str, Code], ...]] = (
    ("authorization violation", taxonomy.AUTH_INVALID),
    ("authentication expired", taxonomy.AUTH_INVALID),
    ("authentication revoked", taxonomy.AUTH_INVALID),
    ("authentication timeout", taxonomy.NETWORK_TIMEOUT),
    ("permissions violation", taxonomy.AUTH_DENIED),
    ("maximum connections exceeded", taxonomy.RESOURCE_EXHAUSTED),
    ("maximum account active connections exceeded", taxonomy.RESOURCE_EXHAUSTED),
    ("maximum payload violation", taxonomy.REQUEST_TOO_LARGE),
    ("maximum subscriptions exceeded", taxonomy.RESOURCE_EXHAUSTED),
    ("stale connection", taxonomy.NETWORK_RESET),
    ("server shutdown", taxonomy.NETWORK_UNAVAILABLE),
)


def _jetstream_or(fallback: Code) -> RuleFunction:
    def read(exc: BaseException, _now: float) -> Verdict | Code:
        number = attribute(exc, "err_code")
        status = status_in(exc, "code")
        by_status = fallback if status is None else code_for_status(status)
        if not isinstance(number, int):
            return by_status
        return Verdict(code=_NUMBERS.get(number, by_status), provider_code=str(number))

    return read


def _refused(exc: BaseException, _now: float) -> Code | None:
    text = text_of(exc).lower()
    return next((code for words, code in _TEXTS if words in text), None)


RULES: Final[RuleTable] = {
    # The connection.
    "NoServersError": taxonomy.NETWORK_REFUSED,
    "TimeoutError": taxonomy.NETWORK_TIMEOUT,
    "ConnectionClosedError": taxonomy.NETWORK_RESET,
    "StaleConnectionError": taxonomy.NETWORK_RESET,
    "ConnectionReconnectingError": taxonomy.NETWORK_RESET,
    "ConnectionDrainingError": taxonomy.CANCELLED,
    "SecureConnRequiredError": taxonomy.CONFIG_INVALID,
    "SecureConnWantedError": taxonomy.CONFIG_INVALID,
    "SecureConnFailedError": taxonomy.NETWORK_TLS,
    "ServerNotInPoolError": taxonomy.CONFIG_INVALID,
    "ProtocolError": taxonomy.NETWORK_PROTOCOL,
    "JsonParseError": taxonomy.NETWORK_PROTOCOL,
    "AuthorizationError": taxonomy.AUTH_INVALID,
    "InvalidUserCredentialsError": taxonomy.AUTH_INVALID,
    # No responder serves the subject now.
    "NoRespondersError": taxonomy.NETWORK_UNAVAILABLE,
    "NoStreamResponseError": taxonomy.NETWORK_UNAVAILABLE,
    "SlowConsumerError": taxonomy.QUEUE_FULL,
    "OutboundBufferLimitError": taxonomy.QUEUE_FULL,
    "TooManyStalledMsgsError": taxonomy.UPSTREAM_OVERLOADED,
    "MaxPayloadError": taxonomy.REQUEST_TOO_LARGE,
    # Bugs and invalid arguments.
    "BadSubjectError": taxonomy.REQUEST_INVALID,
    "BadHeaderError": taxonomy.REQUEST_INVALID,
    "BadSubscriptionError": taxonomy.BUG_CODE,
    "BadTimeoutError": taxonomy.BUG_CODE,
    "InvalidCallbackTypeError": taxonomy.BUG_CODE,
    "NotJSMessageError": taxonomy.BUG_CODE,
    "MsgAlreadyAckdError": taxonomy.BUG_CODE,
    # JetStream. The classes of the key-value and object stores have no number, so the class decides.
    "KeyWrongLastSequenceError": taxonomy.CONFLICT,
    "ObjectAlreadyExists": taxonomy.CONFLICT,
    "NoKeysError": taxonomy.NOT_FOUND,
    "KeyHistoryTooLargeError": taxonomy.CONFIG_INVALID,
    "BadBucketError": taxonomy.CONFIG_INVALID,
    "InvalidKeyError": taxonomy.REQUEST_INVALID,
    "InvalidBucketNameError": taxonomy.REQUEST_INVALID,
    "InvalidObjectNameError": taxonomy.REQUEST_INVALID,
    "BadObjectMetaError": taxonomy.REQUEST_INVALID,
    "LinkIsABucketError": taxonomy.REQUEST_INVALID,
    "DigestMismatchError": taxonomy.NETWORK_PROTOCOL,  # a chunk was lost in transit
    "ConsumerSequenceMismatchError": taxonomy.UPSTREAM_ERROR,
    "KeyValueLimitMarkerTTLNotSupportedError": taxonomy.UPSTREAM_UNSUPPORTED,
    "NotFoundError": _jetstream_or(taxonomy.NOT_FOUND),
    "BadRequestError": _jetstream_or(taxonomy.REQUEST_INVALID),
    "ServiceUnavailableError": _jetstream_or(taxonomy.NETWORK_UNAVAILABLE),
    "APIError": _jetstream_or(taxonomy.UPSTREAM_ERROR),
    "Error": _refused,
}
