# SPDX-License-Identifier: Apache-2.0
"""From an exception to a failure, given the rules.

The outermost exception with a rule wins. A wrapper without one is what it was raised `from`; the exception it merely happened
*during* counts only when the wrapper's type is unknown and is no bug type. A group is as bad as its worst member. What nobody
knows is a bug and is not retried. Finding rules (and loading the files they stand in) is the `Lookup`'s work, not this module's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

from msgspec.structs import replace

from redrive.core import taxonomy
from redrive.core.failure import Asked, Failure, Severity
from redrive.core.retry_after import from_attributes, sane
from redrive.core.signals import Fail, Retry, Signal, Snooze
from redrive.core.verdict import Moment, Read, Verdict

CHAIN_MAX: Final = 100
"""How many causes deep a rule is looked for."""
MEMBERS_MAX: Final = 1000
"""How many members of an exception group are read; the rest is left out."""
DEPTH_MAX: Final = 20
"""How many groups deep, each beneath a member of the one before, members are read."""
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

_BUG: Final = Verdict(code=taxonomy.BUG_CODE)
_SEVERITIES: Final = {severity: rank for rank, severity in enumerate(Severity)}


@dataclass(frozen=True, slots=True)
class Found:
    """A rule that applies to an exception type."""

    name: str
    read: Read


@dataclass(frozen=True, slots=True)
class Known:
    """What is known about an exception type, worth remembering between exceptions."""

    rules: tuple[Found, ...]
    """The user's before the built-in ones, the most specific class first."""
    lineage: tuple[str, ...]


Lookup = Callable[[type[BaseException]], Known]
"""Returns what is known about an exception type."""


def classify(exc: BaseException, lookup: Lookup, moment: Moment, *, idempotent: bool = False) -> Failure:
    """Return the failure that this exception is; total: whatever is raised, there is an answer."""
    return _Reader(lookup, moment, idempotent, {}).read(exc)


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


def lineage_of(kind: type[BaseException]) -> tuple[str, ...]:
    """Return the dotted names of the class and of every exception class it derives from."""
    return tuple(class_name(cls) for cls in kind.__mro__ if issubclass(cls, BaseException))


@dataclass(frozen=True, slots=True)
class _Reader:
    """One classification under way."""

    lookup: Lookup
    moment: Moment
    idempotent: bool
    groups: dict[int, Failure]
    """What the groups met so far are, so that none is read twice, however the exceptions refer to each other."""

    def read(self, exc: BaseException, depth: int = 0) -> Failure:
        if isinstance(exc, Signal):
            return self._asked(exc)
        current: BaseException | None = exc
        seen: set[int] = set()
        while current is not None and id(current) not in seen and len(seen) < CHAIN_MAX:
            seen.add(id(current))
            if isinstance(current, BaseExceptionGroup):
                return self._worst(exc, cast("BaseExceptionGroup[BaseException]", current), depth)
            known = self._known(exc, current)
            if known is not None:
                return known
            current = _beneath(current)
        return self._unknown(exc)

    def _known(self, exc: BaseException, current: BaseException) -> Failure | None:
        """Ask the rules about one exception of the chain."""
        for found in self.lookup(type(current)).rules:
            answer = found.read(current, self.moment)
            if answer is not None:
                verdict = answer if isinstance(answer, Verdict) else Verdict(code=answer)
                return self._failure(exc, current, verdict, found.name)
        if _is_plain_bug(type(current)):
            return self._failure(exc, current, _BUG, "a bug by its type")
        return None

    def _worst(self, outer: BaseException, group: BaseExceptionGroup[BaseException], depth: int) -> Failure:
        """Read a group as its worst member: what cannot heal before what can, then the more severe; first come on a tie."""
        worst = self.groups.get(id(group))
        if worst is None:
            self.groups[id(group)] = self._unknown(
                group
            )  # What a member says that leads back to its own group.
            members = _members_of(group) if depth < DEPTH_MAX else []
            failures = [self.read(member, depth + 1) for member in members]
            worst = max(failures, key=_badness, default=self._unknown(group))
            told = max((f.retry_after for f in failures if f.retry_after is not None), default=None)
            worst = replace(
                worst, retry_after=told, rule=f"{worst.rule} (the worst of {class_name(type(group))})"
            )
            self.groups[id(group)] = worst
        return replace(worst, error_class=class_name(type(outer)), message=message_of(outer))

    def _unknown(self, exc: BaseException) -> Failure:
        if type(exc) is ValueError:
            return self._failure(exc, exc, _BUG, "a bug by its type")
        unknown = Verdict(code=taxonomy.BUG_UNKNOWN)
        failure = self._failure(exc, exc, unknown, "no rule knows it: unknown counts as a bug")
        return replace(failure, is_unknown=True)

    def _asked(self, signal: Signal) -> Failure:
        """Read a stage's own wish. The code of a `Fail` may be an application's own: its code set settles what that means."""
        asked, code, delay = Asked.CANCEL, taxonomy.CANCELLED, None
        if isinstance(signal, Retry):
            asked, code, delay = Asked.RETRY, taxonomy.RETRY_ASKED, signal.delay
        elif isinstance(signal, Snooze):
            asked, code, delay = Asked.SNOOZE, taxonomy.RETRY_ASKED, signal.delay
        elif isinstance(signal, Fail):
            asked, code = Asked.FAIL, taxonomy.CODES.get(signal.code, taxonomy.STAGE_FAILED)
        verdict = Verdict(code=code)
        failure = self._failure(signal, signal, verdict, f"the stage asked for it: {type(signal).__name__}")
        named = signal.code if isinstance(signal, Fail) else failure.code
        can_heal = asked in {Asked.RETRY, Asked.SNOOZE}
        return replace(
            failure, asked=asked, code=named, retryable=can_heal, is_reachability=False, retry_after=delay
        )

    def _failure(self, exc: BaseException, known: BaseException, verdict: Verdict, rule: str) -> Failure:
        code = verdict.code
        told = sane(verdict.retry_after)
        if told is None:
            told = from_attributes(known, self.moment.now)
        lineage = self.lookup(type(exc)).lineage
        if known is not exc:
            lineage += self.lookup(type(known)).lineage
            rule = f"{rule} (beneath {class_name(type(exc))})"
            told = from_attributes(exc, self.moment.now) if told is None else told
        return Failure(
            code=code.name,
            category=code.category,
            retryable=code.retryable.holds(idempotent=self.idempotent),
            severity=code.severity,
            message=message_of(exc),
            error_class=class_name(type(exc)),
            lineage=lineage,
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


def _badness(failure: Failure) -> tuple[bool, int]:
    return not failure.retryable, _SEVERITIES[failure.severity]


def _members_of(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """Return the members of a group and of the groups in it, each once, in order."""
    members: dict[int, BaseException] = {}
    waiting: list[BaseException] = [group]
    while waiting and len(members) < MEMBERS_MAX:
        member = waiting.pop()
        if isinstance(member, BaseExceptionGroup):
            waiting.extend(reversed(cast("BaseExceptionGroup[BaseException]", member).exceptions))
        else:
            members.setdefault(id(member), member)
    return list(members.values())


def _beneath(exc: BaseException) -> BaseException | None:
    """Return the exception to look at next when this one has no rule."""
    if exc.__cause__ is not None:
        return exc.__cause__
    if exc.__suppress_context__ or isinstance(exc, BUG_TYPES):
        return None
    return exc.__context__


def _is_client_status(status: int | None) -> bool:
    """A 4xx proves the dependency alive, even a retryable one such as 408."""
    return status is not None and 400 <= status < 500


def _is_plain_bug(kind: type[BaseException]) -> bool:
    """Built-in bug types speak for themselves. ValueError and users' subclasses are also used as wrappers, so they do not."""
    return kind.__module__ == "builtins" and kind is not ValueError and issubclass(kind, BUG_TYPES)
