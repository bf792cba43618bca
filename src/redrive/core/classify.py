# SPDX-License-Identifier: Apache-2.0
"""From an exception to a failure, given the rules.

The outermost exception with a rule wins. A wrapper without one is what it was raised `from`; the exception it merely happened
*during* counts only when the wrapper's type is unknown and is no bug type. A group is as bad as its worst member. What nobody
knows is a bug and is not retried. Finding rules (and loading the files they stand in) is the `Lookup`'s work, not this module's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Asked, Failure, Severity
from redrive.core.retry_after import from_attributes, sane
from redrive.core.signals import Fail, Retry, Signal, Snooze
from redrive.core.verdict import Moment, Read, Verdict

CHAIN_MAX: Final = 32
"""How many causes deep a rule is looked for."""
MEMBERS_MAX: Final = 1000
"""How many members of an exception group are read."""
MESSAGE_MAX: Final = 8_192

BUG_TYPES: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    BufferError,
    ImportError,
    LookupError,
    NameError,
    NotImplementedError,
    RecursionError,
    ReferenceError,
    StopAsyncIteration,
    StopIteration,
    SyntaxError,
    SystemError,
    TypeError,
    ValueError,
)
"""Types that mean a mistake in a program. What happened before the mistake does not excuse it, so their context is ignored."""

_SEVERITIES: Final = {severity: rank for rank, severity in enumerate(Severity)}


@dataclass(frozen=True, slots=True)
class Found:
    """A rule that applies to an exception type."""

    name: str
    read: Read


Lookup = Callable[[type[BaseException]], tuple[Found, ...]]
"""Returns the rules for an exception type, the user's before the built-in ones, the most specific class first."""


def classify(exc: BaseException, lookup: Lookup, moment: Moment, *, idempotent: bool = False) -> Failure:
    """Return the failure that this exception is; total: whatever is raised, there is an answer."""
    if isinstance(exc, Signal):
        return _asked(exc, moment)
    if isinstance(exc, BaseExceptionGroup):
        return _worst(exc, lookup, moment, idempotent=idempotent)
    current: BaseException | None = exc
    seen: set[int] = set()
    while current is not None and id(current) not in seen and len(seen) < CHAIN_MAX:
        seen.add(id(current))
        if isinstance(current, BaseExceptionGroup):
            return _through(exc, _worst(current, lookup, moment, idempotent=idempotent))
        for found in lookup(type(current)):
            answer = found.read(current, moment)
            if answer is not None:
                verdict = answer if isinstance(answer, Verdict) else Verdict(code=answer)
                rule = found.name if current is exc else f"{found.name} (the cause of {class_name(type(exc))})"
                return _failure(exc, current, verdict, rule, moment, idempotent=idempotent)
        current = _beneath(current)
    return _unknown(exc, moment)


def message_of(exc: BaseException) -> str:
    """Return what the exception says, cut to a bounded length, even when its `__str__` raises."""
    try:
        text = str(exc)
    except Exception:  # noqa: BLE001 - a broken __str__ of a foreign class must not hide the failure.
        text = f"<{type(exc).__name__} whose message cannot be read>"
    return text if len(text) <= MESSAGE_MAX else text[:MESSAGE_MAX] + "..."


def class_name(kind: type[BaseException]) -> str:
    """Return the dotted name of an exception class; built-in ones go without a module."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


@lru_cache(maxsize=4096)
def lineage_of(kind: type[BaseException]) -> tuple[str, ...]:
    """Return the dotted names of the class and of every exception class it derives from."""
    return tuple(class_name(cls) for cls in kind.__mro__ if issubclass(cls, BaseException))


def _beneath(exc: BaseException) -> BaseException | None:
    """Return the exception to look at next when this one has no rule."""
    if exc.__cause__ is not None:
        return exc.__cause__
    if exc.__suppress_context__ or isinstance(exc, BUG_TYPES):
        return None
    return exc.__context__


def _failure(
    exc: BaseException, known: BaseException, verdict: Verdict, rule: str, moment: Moment, *, idempotent: bool
) -> Failure:
    code = verdict.code
    told = sane(verdict.retry_after)
    if told is None:
        told = from_attributes(known, moment.now)
    if told is None and known is not exc:
        told = from_attributes(exc, moment.now)
    return Failure(
        code=code.name,
        category=code.category,
        retryable=code.retryable.holds(idempotent=idempotent),
        severity=code.severity,
        message=message_of(exc),
        error_class=class_name(type(exc)),
        lineage=lineage_of(type(exc)) if known is exc else lineage_of(type(exc)) + lineage_of(type(known)),
        rule=rule,
        canonical=code.name,
        retry_after=told,
        http_status=verdict.http_status,
        provider_code=verdict.provider_code,
        request_id=verdict.request_id,
        is_reachability=code.is_reachability and not _is_client_status(verdict.http_status),
        max_attempts=code.max_attempts,
        line=code.line,
        hint=code.hint,
    )


def _asked(signal: Signal, moment: Moment) -> Failure:
    """Read a stage's own wish. The code of a `Fail` may be an application's own: its code set settles what that means."""
    asked, code, delay = Asked.CANCEL, taxonomy.CANCELLED, None
    if isinstance(signal, Retry):
        asked, code, delay = Asked.RETRY, taxonomy.RETRY_ASKED, signal.delay
    elif isinstance(signal, Snooze):
        asked, code, delay = Asked.SNOOZE, taxonomy.RETRY_ASKED, signal.delay
    elif isinstance(signal, Fail):
        asked, code = Asked.FAIL, taxonomy.CODES.get(signal.code, taxonomy.STAGE_FAILED)
    rule = f"the stage asked for it: {type(signal).__name__}"
    failure = _failure(signal, signal, Verdict(code=code, retry_after=delay), rule, moment, idempotent=False)
    named = signal.code if isinstance(signal, Fail) else failure.code
    return replace(failure, asked=asked, code=named, retryable=asked in {Asked.RETRY, Asked.SNOOZE}, is_reachability=False)


def _is_client_status(status: int | None) -> bool:
    """A 4xx proves the dependency alive, even a retryable one such as 408."""
    return status is not None and 400 <= status < 500


def _unknown(exc: BaseException, moment: Moment) -> Failure:
    is_bug = type(exc) in BUG_TYPES
    code = taxonomy.BUG_CODE if is_bug else taxonomy.BUG_UNKNOWN
    rule = "a bug by its type" if is_bug else "no rule knows it: unknown counts as a bug"
    failure = _failure(exc, exc, Verdict(code=code), rule, moment, idempotent=False)
    return failure if is_bug else replace(failure, is_unknown=True)


def _worst(
    group: BaseExceptionGroup[BaseException], lookup: Lookup, moment: Moment, *, idempotent: bool
) -> Failure:
    """Classify a group as its worst member: what cannot heal before what can, then the more severe; first come on a tie."""
    members = _leaves(group)
    failures = [classify(member, lookup, moment, idempotent=idempotent) for member in members]
    worst = max(failures, key=lambda failure: (not failure.retryable, _SEVERITIES[failure.severity]))
    told = max((failure.retry_after for failure in failures if failure.retry_after is not None), default=None)
    return _through(group, replace(worst, retry_after=told if worst.retryable else worst.retry_after))


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    leaves: list[BaseException] = []
    waiting: list[BaseException] = [group]
    while waiting and len(leaves) < MEMBERS_MAX:
        member = waiting.pop()
        if isinstance(member, BaseExceptionGroup):
            waiting.extend(reversed(member.exceptions))
        else:
            leaves.append(member)
    return leaves


def _through(outer: BaseException, failure: Failure) -> Failure:
    """Keep the answer, but say that it was found inside another exception."""
    rule = f"{failure.rule} (inside {class_name(type(outer))})"
    return replace(failure, rule=rule, error_class=class_name(type(outer)))
