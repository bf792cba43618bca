# SPDX-License-Identifier: Apache-2.0
"""Classify an HTTP error response from its status, headers and body, in the same way for every client library.

The rule passes what it found on the exception. Nothing here does I/O: a body that was not read yet counts as no body.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from redrive.core import taxonomy
from redrive.core.failure import Category, Code, Retryable
from redrive.core.provider import ProviderError, read_body
from redrive.core.retry_after import fold_headers, from_headers
from redrive.core.verdict import Verdict

_STATUSES: Final[dict[int, Code]] = {
    401: taxonomy.AUTH_INVALID,
    402: taxonomy.QUOTA_EXHAUSTED,
    403: taxonomy.AUTH_DENIED,
    404: taxonomy.NOT_FOUND,
    407: taxonomy.AUTH_INVALID,
    408: taxonomy.NETWORK_TIMEOUT,
    409: taxonomy.CONFLICT,
    410: taxonomy.NOT_FOUND,
    412: taxonomy.CONFLICT,
    413: taxonomy.REQUEST_TOO_LARGE,
    414: taxonomy.REQUEST_TOO_LARGE,
    422: taxonomy.SCHEMA_INVALID,
    423: taxonomy.CONFLICT,
    425: taxonomy.UPSTREAM_NOT_READY,
    429: taxonomy.RATE_LIMITED,
    431: taxonomy.REQUEST_TOO_LARGE,
    451: taxonomy.REJECTED_POLICY,
    499: taxonomy.NETWORK_TIMEOUT,
    501: taxonomy.UPSTREAM_UNSUPPORTED,
    502: taxonomy.NETWORK_BAD_GATEWAY,
    503: taxonomy.NETWORK_UNAVAILABLE,
    504: taxonomy.NETWORK_GATEWAY_TIMEOUT,
    505: taxonomy.UPSTREAM_UNSUPPORTED,
    506: taxonomy.UPSTREAM_UNSUPPORTED,
    510: taxonomy.UPSTREAM_UNSUPPORTED,
    511: taxonomy.AUTH_INVALID,  # the network before the service wants a login, as a 407 does
    526: taxonomy.TLS_CERTIFICATE,  # Cloudflare does not trust the certificate of the server behind it
    529: taxonomy.UPSTREAM_OVERLOADED,
}
GENERAL_CODES: Final = frozenset({taxonomy.REQUEST_INVALID, taxonomy.UPSTREAM_ERROR, taxonomy.CONFLICT})
_CATEGORIES_IN_5XX: Final = frozenset(
    {Category.RATE_LIMIT, Category.REJECTED, Category.UPSTREAM, Category.NETWORK}
)
"""Categories that the body of a 5xx may set."""
_REQUEST_ID_HEADERS: Final = (
    "x-request-id",
    "request-id",
    "x-amzn-requestid",
    "x-amz-request-id",
    "x-goog-request-id",
    "x-ms-request-id",
    "x-github-request-id",
    "x-correlation-id",
    "cf-ray",
)
_ID_MAX: Final = 200


def code_for_status(status: int) -> Code:
    """Return the code for a status alone.

    408, 425, 429 and 499 are retryable, other 4xx are not. 5xx are retryable, except those about the request or the server's
    configuration. 508 is retryable: by the RFC it is a loop, but in practice web hosts send it when a customer has used up all
    processes. A redirect needs another request. A success that was raised as an error is a protocol error.
    """
    known = _STATUSES.get(status)
    if known is not None:
        return known
    if status >= 500:
        return taxonomy.UPSTREAM_ERROR
    return taxonomy.REQUEST_INVALID if status >= 300 else taxonomy.NETWORK_PROTOCOL


def classify_response(status: int, now: float, *, headers: object = None, body: object = None) -> Verdict:
    """Classify an error response; the provider's own error name wins over the status where it is more specific."""
    folded = fold_headers(headers)
    provider = read_body(body)
    code = _code(status, folded, provider)
    if "x-should-retry" in folded:
        code = _with_should_retry(code, folded["x-should-retry"])
    retry_after = from_headers(folded, now, is_limit=code is taxonomy.RATE_LIMITED)
    return Verdict(
        code=code,
        http_status=status,
        retry_after=provider.retry_after if retry_after is None else retry_after,
        provider_code=provider.name,
        request_id=request_id_in(folded) or provider.request_id,
    )


def request_id_in(headers: Mapping[str, str]) -> str | None:
    """Return the dependency's id for the request from folded headers."""
    found = next((headers[name] for name in _REQUEST_ID_HEADERS if headers.get(name)), None)
    return found[:_ID_MAX] if found else None


def _code(status: int, headers: Mapping[str, str], provider: ProviderError) -> Code:
    by_status = code_for_status(status)
    by_body = provider.code
    if status == 403 and by_body in {None, taxonomy.AUTH_DENIED} and _is_limit(headers):
        return taxonomy.RATE_LIMITED
    if by_body is None or _status_wins(status, by_status, provider, by_body):
        return by_status
    return by_body


def _status_wins(status: int, by_status: Code, provider: ProviderError, by_body: Code) -> bool:
    """Return whether the status overrules the code that the body means."""
    # If both mean the network, the status is more exact: a 504 with "timeout_error" comes from a gateway.
    if by_body.category is Category.NETWORK and by_status.category is Category.NETWORK:
        return True
    # A general name ("invalid_request_error", "internal") never overrules a more specific status: a 401 stays a 401.
    if by_body in GENERAL_CODES and status in _STATUSES:
        return True
    # A 5xx is a failure of the server whatever its body says, except for a spent quota or a policy block.
    if status >= 500:
        return by_body.category not in _CATEGORIES_IN_5XX
    # A 4xx blames the request. Only the name of a temporary condition makes it retryable, not "internal" or "unavailable".
    makes_it_retryable = by_body.retryable is Retryable.YES and by_status.retryable is not Retryable.YES
    return makes_it_retryable and not provider.is_temporary


def _with_should_retry(code: Code, value: str) -> Code:
    """Apply the header `x-should-retry`, which OpenAI and Anthropic send."""
    wanted = {"true": Retryable.YES, "false": Retryable.NO}.get(value, code.retryable)
    return code if wanted is code.retryable else replace(code, retryable=wanted)


def _is_limit(headers: Mapping[str, str]) -> bool:
    """Return whether a 403 means 429: some services (such as GitHub) send it with Retry-After or a spent limit."""
    return "retry-after" in headers or headers.get("x-ratelimit-remaining") == "0"
