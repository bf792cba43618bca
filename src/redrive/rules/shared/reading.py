# SPDX-License-Identifier: Apache-2.0
"""How the rule files look at a foreign exception without trusting it.

Attributes of a library's exception may be missing, of another type than documented, or properties that raise; here all of that
reads as None. Nothing in this module does I/O: a body that the client has not read yet stays unread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, cast

from msgspec.structs import replace

from redrive.core.failure import Code, Retryable
from redrive.core.http import classify_response, request_id_in
from redrive.core.provider import read_body
from redrive.core.retry_after import fold_headers, from_headers
from redrive.core.verdict import RuleFunction, RuleTable, Verdict

HIDDEN_MAX: Final = 32
"""How many exceptions inside one exception are looked at."""

_HIDING_PLACES: Final = ("reason", "os_error", "certificate_error", "last_exception")
_STATUS_MIN: Final = 100
_STATUS_MAX: Final = 599


def attribute(owner: object, *path: str) -> object:
    """Follow attributes from `owner`; None as soon as one is missing or raises."""
    for name in path:
        try:
            owner = getattr(owner, name, None)
        except Exception:  # noqa: BLE001 - a property of a foreign class may raise anything; then it tells us nothing.
            return None
    return owner


def called(owner: object, name: str) -> object:
    """Call a method without arguments; None when there is none or it raises."""
    method = attribute(owner, name)
    try:
        return method() if callable(method) else None
    except Exception:  # noqa: BLE001 - as above: an exception of a foreign class owes us nothing.
        return None


def text_of(value: object) -> str:
    """Return `str(value)`, or nothing when that raises."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - a broken __str__ tells us nothing.
        return ""


def home_of(kind: type) -> str:
    """Return the package a class lives in; a class made by hand may have no module at all."""
    module: object = kind.__module__
    return module.partition(".")[0] if isinstance(module, str) else ""


def status_in(owner: object, *names: str) -> int | None:
    """Return the first of these attributes that is an HTTP status."""
    for name in names:
        value = attribute(owner, name)
        if isinstance(value, int) and _STATUS_MIN <= value <= _STATUS_MAX:
            return int(value)
    return None


def entry(mapping: object, *path: object) -> object:
    """Follow keys through nested mappings; None as soon as one is missing."""
    for key in path:
        mapping = cast("Mapping[object, object]", mapping).get(key) if isinstance(mapping, Mapping) else None
    return mapping


def listed(value: object) -> Sequence[object]:
    """Return a tuple or list as it is, and anything else as nothing."""
    return cast("Sequence[object]", value) if isinstance(value, tuple | list) else ()


def hidden_in(exc: BaseException) -> Iterator[BaseException]:
    """Yield the exception and everything its library put inside it, the outer before the inner.

    What it merely happened during (`__context__`) is left out: that may be a failure of something else altogether.
    """
    waiting: deque[BaseException] = deque([exc])
    seen: set[int] = set()
    while waiting and len(seen) < HIDDEN_MAX:
        current = waiting.popleft()
        if id(current) not in seen:
            seen.add(id(current))
            yield current
            waiting.extend(_children(current))


def _children(exc: BaseException) -> Iterator[BaseException]:
    candidates: list[object] = [exc.__cause__]
    for value in (attribute(exc, "args"), attribute(exc, "exceptions")):
        candidates.extend(listed(value)[:HIDDEN_MAX])
    candidates.extend(attribute(exc, name) for name in _HIDING_PLACES)
    candidates.append(entry(attribute(exc, "kwargs"), "error"))
    return (value for value in candidates if isinstance(value, BaseException))


def consult(table: RuleTable, exc: BaseException, now: float) -> Verdict | Code | None:
    """Ask another library's table about an exception found inside one of ours."""
    for cls in type(exc).__mro__:
        reading = table.get(cls.__name__)
        answer = reading if reading is None or isinstance(reading, Code) else reading(exc, now)
        if answer is not None:
            return answer
    return None


def exactly(name: str, code: Code) -> RuleFunction:
    """Build a rule for a root class that means something only when it is raised itself, not through a subclass."""
    return lambda exc, _now: code if type(exc).__name__ == name else None


def unless_caused(code: Code) -> RuleFunction:
    """Build a rule for a wrapper: what it was raised from knows better; the code stands when there is nothing beneath."""
    return lambda exc, _now: code if exc.__cause__ is None else None


def unless_beneath(code: Code) -> RuleFunction:
    """Build a rule for a wrapper raised while the real failure is handled, without `from`: its context knows better."""
    return lambda exc, _now: code if exc.__cause__ is None and exc.__context__ is None else None


def read_response(
    response: object, now: float, *, body: object = None, status: int | None = None
) -> Verdict | None:
    """Read an error answer out of a response object; None when it holds no status.

    The body is taken from where httpx and requests keep what they have already read. Their public `content` would fetch the rest
    of a streamed answer (requests) or raise (httpx).
    """
    known = status if status is not None else status_in(response, "status_code", "status")
    if known is None:
        return None
    if body is None:
        read = attribute(response, "_content")
        body = read if isinstance(read, bytes) else None
    return classify_response(known, now, headers=attribute(response, "headers"), body=body)


def never_again(verdict: Verdict) -> Verdict:
    """Return the verdict under the same code, marked as not worth another try because the dependency itself said so."""
    return replace(verdict, code=replace(verdict.code, retryable=Retryable.NO))


def read_event(body: object, now: float, *, headers: object = None, otherwise: Code) -> Verdict:
    """Read an error that arrived inside a successful answer, such as an error event of a stream: its status means nothing."""
    folded = fold_headers(headers)
    provider = read_body(body)
    told = from_headers(folded, now, is_limit=False)
    return Verdict(
        code=provider.code or otherwise,
        retry_after=told if told is not None else provider.retry_after,
        provider_code=provider.name,
        request_id=request_id_in(folded) or provider.request_id,
    )


def read_carried(exc: BaseException, now: float, *, otherwise: Code) -> Verdict:
    """Read an exception of an SDK that carries `status_code`, `response` and the decoded `body` itself.

    An error event inside a stream is raised by some SDKs with the stream's own status 200, which must not be taken for an answer.
    """
    response, body = attribute(exc, "response"), attribute(exc, "body")
    status = status_in(response, "status_code") or status_in(exc, "status_code")
    if status is None or status < 400:
        return read_event(body, now, headers=attribute(response, "headers"), otherwise=otherwise)
    return read_response(response, now, body=body, status=status) or Verdict(code=otherwise)
