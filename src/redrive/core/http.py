# SPDX-License-Identifier: Apache-2.0
"""What an HTTP answer means: status, headers and error body together, for every client library alike.

It is given what a rule found on the exception and never does I/O: a body that was not read yet is no body.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from redrive.core import taxonomy
from redrive.core.failure import Category, Code, Retryable
from redrive.core.provider import ProviderError, read_body
from redrive.core.retry_after import fold_headers, from_headers
from redrive.core.verdict import Moment, Verdict

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
_VAGUE_WORDS: Final = frozenset({taxonomy.REQUEST_INVALID, taxonomy.UPSTREAM_ERROR, taxonomy.CONFLICT})
_SPEAKING_IN_5XX: Final = frozenset(
    {Category.RATE_LIMIT, Category.REJECTED, Category.UPSTREAM, Category.NETWORK}
)
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
    """Return what a status means by itself.

    408, 425, 429 and 499 heal, other 4xx do not. 5xx heal, except those that complain about the request or about how something is
    set up. 508 heals: by the RFC it is a loop, but those who meet it meet a web host whose customer used up his processes. A
    redirect asks for another request. A success that was raised as an error is an answer that makes no sense.
    """
    known = _STATUSES.get(status)
    if known is not None:
        return known
    if status >= 500:
        return taxonomy.UPSTREAM_ERROR
    return taxonomy.REQUEST_INVALID if status >= 300 else taxonomy.NETWORK_PROTOCOL


def read_answer(status: int, moment: Moment, *, headers: object = None, body: object = None) -> Verdict:
    """Read an error answer: the provider's own word wins over the status where it says more."""
    folded = fold_headers(headers)
    provider = read_body(body)
    code = _code(status, folded, provider)
    if "x-should-retry" in folded:
        code = _obeying(code, folded["x-should-retry"])
    told = from_headers(folded, moment.now, is_limit=code is taxonomy.RATE_LIMITED)
    return Verdict(
        code=code,
        http_status=status,
        retry_after=told if told is not None else provider.retry_after,
        provider_code=provider.word,
        request_id=request_id_in(folded) or provider.request_id,
    )


def request_id_in(headers: Mapping[str, str]) -> str | None:
    """Return the dependency's id for the request from folded headers."""
    found = next((headers[name] for name in _REQUEST_ID_HEADERS if headers.get(name)), None)
    return found[:_ID_MAX] if found else None


def _code(status: int, headers: Mapping[str, str], provider: ProviderError) -> Code:
    by_status = code_for_status(status)
    by_word = provider.code
    if status == 403 and by_word in {None, taxonomy.AUTH_DENIED} and _is_limit(headers):
        return taxonomy.RATE_LIMITED
    if by_word is None or _knows_better(status, by_status, provider, by_word):
        return by_status
    return by_word


def _knows_better(status: int, by_status: Code, provider: ProviderError, by_word: Code) -> bool:
    """Say whether the status stands against what the provider's word means."""
    # Where both speak of the network, the status says more exactly what happened: a 504 with "timeout_error" is a gateway's.
    if by_word.category is Category.NETWORK and by_status.category is Category.NETWORK:
        return True
    # A general word ("invalid_request_error", "internal") never overrules a status that says more: a 401 stays a 401.
    if by_word in _VAGUE_WORDS and status in _STATUSES:
        return True
    # A 5xx is the server's own trouble whatever its body claims, except for a spent quota or a policy block.
    if status >= 500:
        return by_word.category not in _SPEAKING_IN_5XX
    # A 4xx blames the request. Only a word that names something which passes makes it heal, not "internal" or "unavailable".
    makes_it_heal = by_word.retryable is Retryable.YES and by_status.retryable is not Retryable.YES
    return makes_it_heal and not provider.is_passing


def _obeying(code: Code, word: str) -> Code:
    """Obey a server that says whether to try again (`x-should-retry`, which OpenAI and Anthropic send)."""
    asked = {"true": Retryable.YES, "false": Retryable.NO}.get(word, code.retryable)
    return code if asked is code.retryable else replace(code, retryable=asked)


def _is_limit(headers: Mapping[str, str]) -> bool:
    """A 403 with Retry-After, or with nothing left of a limit, is how some services (GitHub, for one) say 429."""
    return "retry-after" in headers or headers.get("x-ratelimit-remaining") == "0"
