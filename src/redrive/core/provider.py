# SPDX-License-Identifier: Apache-2.0
"""What a provider's error body says: the name it gives the failure, how long to wait, and its id for the request.

A status code alone is often wrong: a 429 may be a spent quota that no waiting heals, a 403 may be a rate limit, a 400 may be a
time-out. `read_body` finds the provider's own word in any of the usual shapes of JSON error bodies; what it means stands in
`provider_words`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, cast

from msgspec import Struct

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.core.provider_words import DAILY, is_passing, meaning_of
from redrive.core.retry_after import from_duration, from_milliseconds

BODY_MAX: Final = 262_144
"""Bytes of an error body we are willing to parse."""

_DETAILS_MAX: Final = 32
_WORD_MAX: Final = 200
_XML_CODE: Final = re.compile(rb"<Code>([A-Za-z0-9.]{1,100})</Code>")
_NAMES: Final = ("code", "type", "status", "__type", "Code", "error_code", "errcode", "reason")
# Anthropic has one type for every bad request and no code besides, so these are known by how their message begins
# (docs.anthropic.com/en/api/errors). Nothing else is read out of messages.
_ANTHROPIC: Final[tuple[tuple[str, Code], ...]] = (
    ("Your credit balance is too low", taxonomy.QUOTA_EXHAUSTED),
    ("prompt is too long", taxonomy.REQUEST_TOO_LARGE),
    ("input length and `max_tokens` exceed context limit", taxonomy.REQUEST_TOO_LARGE),
)


class ProviderError(Struct, frozen=True, kw_only=True):
    """The parts of an error body that matter."""

    word: str | None = None
    """The provider's most specific word whose meaning we know, else its first word."""
    code: Code | None = None
    """What the body means, as far as it is known."""
    is_passing: bool = False
    """Whether the word names something that passes even where the status blames the request."""
    retry_after: float | None = None
    request_id: str | None = None


_SILENT: Final = ProviderError()


def read_body(body: object) -> ProviderError:
    """Read an error body (bytes, text, or already decoded JSON); an unreadable one says nothing."""
    raw = _decoded(body)
    # Google wraps the error of a streamed answer into a list.
    decoded = _mapping(next(iter(_listed(raw)), raw))
    if decoded is None:
        return _SILENT
    error = _mapping(decoded.get("error")) or decoded
    named = _mapping(error.get("details"))
    details = _mappings(_listed(error.get("details"))) if named is None else [named]
    word = _word(_words(decoded, error, details))
    return ProviderError(
        word=word,
        code=_anthropic(decoded, error) or (meaning_of(word) if word else None),
        is_passing=word is not None and is_passing(word),
        retry_after=_retry_after(decoded, error, details),
        request_id=next(_request_ids(decoded, details), None),
    )


def _words(
    decoded: Mapping[object, object],
    error: Mapping[object, object],
    details: Sequence[Mapping[object, object]],
) -> Iterator[str]:
    """Yield the names that the body gives the failure, the most specific first."""
    if details:
        yield from _daily_limits(details)
        yield from _words_of(details, "reason", "error_code")
    yield from _words_of(_mappings(_listed(error.get("errors"))), "reason", "code")
    yield from _texts(error, *_NAMES)
    yield from _texts(decoded, "error")


def _word(words: Iterator[str]) -> str | None:
    first: str | None = None
    for word in filter(None, map(_bare, words)):
        if meaning_of(word) is not None:
            return word
        first = first or word
    return first


def _bare(word: str) -> str:
    """Return the part of a word that is a name; nothing when there is none.

    A problem's type is an address (RFC 9457), which is named by its end; `about:blank` says no more than the status. An AWS JSON
    protocol type may come as "com.example#ThrottlingException:http://...".
    """
    if word.isidentifier():
        return word
    scheme, _, rest = word.partition(":")
    if scheme in {"http", "https"}:
        return _end_of(rest.lstrip("/").partition("/")[2])
    if scheme in {"urn", "tag"}:
        return rest.rsplit(":", 1)[-1]
    if scheme == "about":
        return ""
    return _end_of(word) if word.startswith("/") else word.rsplit("#", 1)[-1].partition(":")[0]


def _end_of(path: str) -> str:
    way, _, fragment = path.partition("#")
    return fragment or way.partition("?")[0].rstrip("/").rsplit("/", 1)[-1]


def _anthropic(decoded: Mapping[object, object], error: Mapping[object, object]) -> Code | None:
    message = error.get("message")
    if (decoded.get("type"), error.get("type")) != ("error", "invalid_request_error"):
        return None
    said = message if isinstance(message, str) else ""
    return next((code for beginning, code in _ANTHROPIC if said.startswith(beginning)), None)


def _retry_after(
    decoded: Mapping[object, object],
    error: Mapping[object, object],
    details: Sequence[Mapping[object, object]],
) -> float | None:
    """Find google.rpc.RetryInfo among the details, or what Telegram, Discord and others put beside the error."""
    told = [from_duration(entry["retryDelay"]) for entry in details if "retryDelay" in entry]
    for place in (error, decoded, _mapping(decoded.get("parameters")) or {}):
        told += [from_duration(place[name]) for name in ("retry_after", "retryAfter") if name in place]
        told += [from_milliseconds(place[name]) for name in ("retry_after_ms",) if name in place]
    return next((seconds for seconds in told if seconds is not None), None)


def _request_ids(
    decoded: Mapping[object, object], details: Sequence[Mapping[object, object]]
) -> Iterator[str]:
    yield from _texts(decoded, "request_id", "requestId", "RequestId")
    yield from _words_of(details, "requestId")


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


def _texts(mapping: Mapping[object, object], *names: str) -> Iterator[str]:
    for name in names:
        value = mapping.get(name)
        if isinstance(value, str) and 0 < len(value) <= _WORD_MAX:
            yield value


def _words_of(entries: Sequence[Mapping[object, object]], *names: str) -> Iterator[str]:
    for entry in entries:
        yield from _texts(entry, *names)


def _daily_limits(details: Sequence[Mapping[object, object]]) -> Iterator[str]:
    """Find the daily limits among the quotas that google.rpc.QuotaFailure or ErrorInfo name as exceeded."""
    for entry in details:
        named = [*_texts(_mapping(entry.get("metadata")) or {}, "quota_limit")]
        named += _words_of(_mappings(_listed(entry.get("violations"))), "quotaId")
        yield from (name for name in named if DAILY in name.lower())
