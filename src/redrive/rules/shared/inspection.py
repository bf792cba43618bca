# SPDX-License-Identifier: Apache-2.0
"""Inspect a foreign exception without trusting it.

An attribute of a library's exception may be missing, have another type than documented, or be a property that raises; all of that
yields None here. Nothing in this module does I/O: a body that the client has not read yet stays unread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, cast

from msgspec.structs import replace

from redrive.core import taxonomy
from redrive.core.arguments import is_http_status
from redrive.core.failure import Code, Retryable
from redrive.core.http import classify_response, request_id_in
from redrive.core.provider import read_body
from redrive.core.retry_after import fold_headers, from_headers
from redrive.core.verdict import RuleFunction, RuleTable, Verdict

NESTED_MAX: Final = 32
"""How many exceptions inside one exception are inspected."""

_NESTING_ATTRIBUTES: Final = ("reason", "os_error", "certificate_error", "last_exception")


def attribute(owner: object, *path: str) -> object:
    """Follow attributes from `owner`; None as soon as one is missing or raises."""
    for name in path:
        try:
            owner = getattr(owner, name, None)
        except Exception:  # noqa: BLE001 - a property of a foreign class may raise anything.
            return None
    return owner


def called(owner: object, name: str) -> object:
    """Call a method without arguments; None when there is none or it raises."""
    method = attribute(owner, name)
    try:
        return method() if callable(method) else None
    except Exception:  # noqa: BLE001 - a method of a foreign class may raise anything.
        return None


def text_of(value: object) -> str:
    """Return `str(value)`, or an empty string when that raises."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - a foreign __str__ may raise anything.
        return ""


def package_of(kind: type) -> str:
    """Return the top-level package of a class; a class made by type() may have no module at all."""
    module: object = kind.__module__
    return module.partition(".")[0] if isinstance(module, str) else ""


def status_in(owner: object, *names: str) -> int | None:
    """Return the first of these attributes that is an HTTP status."""
    for name in names:
        value = attribute(owner, name)
        if is_http_status(value):
            return int(value)
    return None


def entry(mapping: object, *path: object) -> object:
    """Follow keys through nested mappings; None as soon as one is missing."""
    for key in path:
        mapping = cast("Mapping[object, object]", mapping).get(key) if isinstance(mapping, Mapping) else None
    return mapping


def listed(value: object) -> Sequence[object]:
    """Return a tuple or list unchanged, and an empty tuple for anything else."""
    return cast("Sequence[object]", value) if isinstance(value, tuple | list) else ()


def nested_exceptions(exc: BaseException) -> Iterator[BaseException]:
    """Yield the exception and every exception its library put inside it, the outer before the inner.

    `__context__` is left out: it may be a failure of something else.
    """
    waiting: deque[BaseException] = deque([exc])
    seen: set[int] = set()
    while waiting and len(seen) < NESTED_MAX:
        current = waiting.popleft()
        if id(current) not in seen:
            seen.add(id(current))
            yield current
            waiting.extend(_children(current))


def _children(exc: BaseException) -> Iterator[BaseException]:
    candidates: list[object] = [exc.__cause__]
    for value in (attribute(exc, "args"), attribute(exc, "exceptions")):
        candidates.extend(listed(value)[:NESTED_MAX])
    candidates.extend(attribute(exc, name) for name in _NESTING_ATTRIBUTES)
    candidates.append(entry(attribute(exc, "kwargs"), "error"))
    return (value for value in candidates if isinstance(value, BaseException))


def apply_table(table: RuleTable, exc: BaseException, now: float) -> Verdict | Code | None:
    """Apply another library's table to an exception found inside one of ours."""
    for cls in type(exc).__mro__:
        rule = table.get(cls.__name__)
        answer = rule if rule is None or isinstance(rule, Code) else rule(exc, now)
        if answer is not None:
            return answer
    return None


def exactly(name: str, code: Code) -> RuleFunction:
    """Build a rule for a base class that applies to the class itself, not to its subclasses."""
    return lambda exc, _now: code if type(exc).__name__ == name else None


def unless_caused(code: Code) -> RuleFunction:
    """Build a rule for a wrapper: the cause decides; without one the code applies."""
    return lambda exc, _now: code if exc.__cause__ is None else None


def unless_context(code: Code) -> RuleFunction:
    """Build a rule for a wrapper raised without `from`: the cause or context decides; without either the code applies."""
    return lambda exc, _now: code if exc.__cause__ is None and exc.__context__ is None else None


def verdict_from_response(
    response: object, now: float, *, body: object = None, status: int | None = None
) -> Verdict | None:
    """Classify a response object; None when it has no status.

    The body comes from the private attribute in which httpx and requests store what they have read. Their public `content` would
    fetch the rest of a streamed response (requests) or raise (httpx).
    """
    known = status if status is not None else status_in(response, "status_code", "status")
    if known is None:
        return None
    if body is None:
        read = attribute(response, "_content")
        body = read if isinstance(read, bytes) else None
    return classify_response(known, now, headers=attribute(response, "headers"), body=body)


def as_permanent(verdict: Verdict) -> Verdict:
    """Return the verdict with the same code, but not retryable, because the dependency refuses a retry."""
    return replace(verdict, code=replace(verdict.code, retryable=Retryable.NO))


def verdict_from_event(
    body: object, now: float, *, headers: object = None, otherwise: Code = taxonomy.UPSTREAM_ERROR
) -> Verdict:
    """Classify an error inside a successful response, such as an error event of a stream; its status means nothing."""
    folded = fold_headers(headers)
    provider = read_body(body)
    delay = from_headers(folded, now, is_limit=False)
    return Verdict(
        code=provider.code or otherwise,
        retry_after=delay if delay is not None else provider.retry_after,
        provider_code=provider.name,
        request_id=request_id_in(folded) or provider.request_id,
    )


def verdict_from_sdk_error(exc: BaseException, now: float) -> Verdict | None:
    """Classify an exception of an SDK that has `status_code`, `response` and the decoded `body`.

    Some SDKs raise an error event inside a stream with the stream's own status 200, which must not count as the status.
    """
    response, body = attribute(exc, "response"), attribute(exc, "body")
    status = status_in(response, "status_code") or status_in(exc, "status_code")
    if status is None or status < 400:
        return verdict_from_event(body, now, headers=attribute(response, "headers"))
    return verdict_from_response(response, now, body=body, status=status)
