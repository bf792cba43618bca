# SPDX-License-Identifier: Apache-2.0
"""botocore, boto3 and s3transfer: the error code decides, because AWS sends throttling and timeouts as a 400.

boto3's transfer errors have the ClientError only as their context, so `core.classify` reads that.
"""

from __future__ import annotations

from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.core.http import classify_response
from redrive.core.verdict import RuleTable, Verdict
from redrive.rules.shared.inspection import (
    apply_table,
    attribute,
    entry,
    text_of,
    unless_context,
    verdict_from_event,
)
from redrive.rules.shared.network import network_code_in, network_or, proxy_code


def _answer(exc: BaseException, now: float) -> Verdict | Code:
    return _response(attribute(exc, "response"), now) or taxonomy.UPSTREAM_ERROR


def _response(response: object, now: float) -> Verdict | None:
    word, metadata = entry(response, "Error", "Code"), entry(response, "ResponseMetadata")
    # Some codes include the service ("AWS.SimpleQueueService.NonExistentQueue"); the last part alone is a name, too.
    words = {"code": word, "type": word.rsplit(".", 1)[-1]} if isinstance(word, str) else {}
    body = {"error": words, "RequestId": entry(metadata, "RequestId")}
    status, headers = entry(metadata, "HTTPStatusCode"), entry(metadata, "HTTPHeaders")
    if not isinstance(status, int) or not 400 <= status <= 599:
        # An exception event of a stream, or S3 answering 200 and then failing.
        return verdict_from_event(body, now, headers=headers) if words else None
    return classify_response(status, now, headers=headers, body=body)


def _waiter(exc: BaseException, now: float) -> Verdict | Code:
    # A waiter that ran out of attempts got only answers that mean "not yet", such as a 404 for an object that is still missing.
    if "Max attempts exceeded" in text_of(entry(attribute(exc, "kwargs"), "reason")):
        return taxonomy.UPSTREAM_NOT_READY
    return _response(attribute(exc, "last_response"), now) or taxonomy.REQUEST_INVALID


def _last_of_many(exc: BaseException, now: float) -> Verdict | Code:
    last = attribute(exc, "last_exception")
    # Do not follow another one of the same class: two of them could refer to each other.
    is_same = type(last).__name__ == "RetriesExceededError"
    answer = apply_table(RULES, last, now) if isinstance(last, BaseException) and not is_same else None
    return answer or network_code_in(exc) or taxonomy.NETWORK_ERROR


_FIXED: Final[dict[Code, str]] = {
    taxonomy.NETWORK_TIMEOUT: "ConnectTimeoutError ReadTimeoutError",
    taxonomy.NETWORK_PROTOCOL: "IncompleteReadError ChecksumError FlexibleChecksumError ResponseParserError ParserError",
    taxonomy.UPSTREAM_OVERLOADED: "CapacityNotAvailableError",
    taxonomy.AUTH_INVALID: """
        NoAuthTokenError SSOError LoginError RefreshWithMFAUnsupportedError UnauthorizedSSOTokenError
        """,
    taxonomy.AUTH_DENIED: "LoginInsufficientPermissions",
    taxonomy.CONFIG_INVALID: """
        NoCredentialsError PartialCredentialsError UnknownCredentialError UnknownTokenProviderError BaseEndpointResolverError
        EndpointProviderError ServiceNotInRegionError UnknownRegionError ProfileNotFound ConfigNotFound ConfigParseError
        InvalidConfigError DataNotFoundError ApiVersionNotFoundError InvalidRegionError InvalidIMDSEndpointError
        InvalidIMDSEndpointModeError InvalidDefaultsMode InvalidRetryConfigurationError InvalidProxiesConfigError
        InvalidEndpointConfigurationError InvalidEndpointDiscoveryConfigurationError InvalidS3AddressingStyleError
        InvalidS3UsEast1RegionalEndpointConfigError InvalidSTSRegionalEndpointsConfigError InvalidChecksumConfigError
        MissingDependencyException MD5UnavailableError WaiterConfigError UnknownSignatureVersionError
        UnsupportedSignatureVersionError UnknownServiceStyle UnsupportedServiceProtocolsError
        UndefinedModelAttributeError InvalidCrtTransferConfigError NoVersionFound ResourceLoadException
        """,
    taxonomy.REQUEST_INVALID: """
        ParamValidationError ValidationError MissingParametersError InvalidDNSNameError InvalidHostLabelError InvalidExpressionError
        UnsupportedS3ArnError UnsupportedS3AccesspointConfigurationError UnsupportedS3ConfigurationError
        UnsupportedS3ControlArnError UnsupportedS3ControlConfigurationError UnsupportedOutpostResourceError S3ValidationError
        DynamoDBNeedsConditionError DynamoDBNeedsKeyConditionError DynamoDBOperationNotSupportedError
        """,
    taxonomy.BUG_CODE: """
        UnknownClientMethodError OperationNotPageableError UnseekableStreamError StubResponseError AwsChunkedWrapperError
        TransferNotDoneError InvalidSubscriberMethodError
        """,
}

RULES: Final[RuleTable] = {
    "ClientError": _answer,
    "WaiterError": _waiter,
    "RetriesExceededError": _last_of_many,
    "EndpointConnectionError": network_or(taxonomy.NETWORK_ERROR),
    "ProxyConnectionError": proxy_code,
    "SSLError": network_or(taxonomy.NETWORK_TLS),
    "ConnectionClosedError": network_or(taxonomy.NETWORK_PROTOCOL),
    "ResponseStreamingError": network_or(taxonomy.NETWORK_PROTOCOL),
    "ConnectionError": network_or(taxonomy.NETWORK_ERROR),
    "HTTPClientError": network_or(taxonomy.NETWORK_ERROR),
    "MetadataRetrievalError": network_or(taxonomy.NETWORK_ERROR),
    "CredentialRetrievalError": network_or(taxonomy.AUTH_INVALID),
    "TokenRetrievalError": network_or(taxonomy.AUTH_INVALID),
    "PaginationError": taxonomy.NETWORK_PROTOCOL,
    "S3TransferFailedError": unless_context(taxonomy.NETWORK_ERROR),
    "S3UploadFailedError": unless_context(taxonomy.NETWORK_ERROR),
    "S3DownloadFailedError": unless_context(taxonomy.NETWORK_ERROR),
    "S3CopyFailedError": unless_context(taxonomy.NETWORK_ERROR),
    **{name: code for code, names in _FIXED.items() for name in names.split()},
}
