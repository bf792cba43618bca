# SPDX-License-Identifier: Apache-2.0
"""Turn an exception into a failure, given the rules.

The outermost exception with a rule wins. A wrapper without a rule is classified by its `__cause__`; its `__context__` counts
only when the wrapper's type is unknown and is not a bug type. A group is classified by its worst member. An exception without
any rule is a bug and is not retried. The caller's `Lookup` finds the rules and loads their modules.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

from msgspec import Struct
from msgspec.structs import replace

from redrive.core import taxonomy
from redrive.core.failure import Code, Failure, Severity, SignalKind
from redrive.core.retry_after import from_attributes, plausible
from redrive.core.signals import Fail, Finish, Retry, Signal, Skip, Snooze
from redrive.core.verdict import RuleFunction, Verdict

CHAIN_MAX: Final = 100
"""How many causes are searched for one with a rule."""
MEMBERS_MAX: Final = 1000
"""How many members of an exception group are classified; the rest is ignored."""
DEPTH_MAX: Final = 20
"""How deep groups may be nested through the causes of their members."""
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
"""Types that mean a mistake in a program. What happened before it does not explain it, so their context is ignored."""

_BUG: Final = Verdict(code=taxonomy.BUG_CODE)
_MISPLACED: Final = Verdict(code=taxonomy.CONFIG_INVALID)
"""Of a `Finish` that a worker did not take: only the stage itself can finish its job, not a member of an exception group."""
_SEVERITIES: Final = {severity: rank for rank, severity in enumerate(Severity)}


@dataclass(frozen=True, slots=True)
class FoundRule:
    """A rule that applies to an exception type."""

    name: str
    apply: RuleFunction


@dataclass(frozen=True, slots=True)
class TypeRules:
    """The rules for an exception type, computed once per type."""

    rules: tuple[FoundRule, ...]
    """User rules before built-in ones, the most specific class first."""
    lineage: tuple[str, ...]


Lookup = Callable[[type[BaseException]], TypeRules]
"""Returns the rules for an exception type."""


def classify(exc: BaseException, lookup: Lookup, now: float, *, idempotent: bool = False) -> Failure:
    """Classify an exception; total: every exception gets a failure."""
    return _Classification(lookup, now, idempotent, {}).classify(exc)


def message_of(exc: BaseException) -> str:
    """Return the exception's message, cut to a bounded length, even when its `__str__` raises."""
    try:
        text = str(exc)
    except Exception:  # noqa: BLE001 - a broken __str__ of a foreign class must not hide the failure.
        text = f"<{type(exc).__name__} whose message cannot be read>"
    return text if len(text) <= MESSAGE_MAX else text[:MESSAGE_MAX] + "..."


def class_name(kind: type[BaseException]) -> str:
    """Return the dotted name of an exception class; a built-in one has no module in front."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def lineage_of(kind: type[BaseException]) -> tuple[str, ...]:
    """Return the dotted names of the class and of every exception class it derives from."""
    return tuple(class_name(cls) for cls in kind.__mro__ if issubclass(cls, BaseException))


class _Classification(Struct, frozen=True):
    """The classification of one exception."""

    lookup: Lookup
    now: float
    idempotent: bool
    groups: dict[int, Failure]
    """The failures of the groups found so far, so that none is classified twice, even if exceptions refer to each other."""

    def classify(self, exc: BaseException, depth: int = 0) -> Failure:
        if isinstance(exc, Signal):
            return self._from_signal(exc)
        current: BaseException | None = exc
        seen: set[int] = set()
        while current is not None and id(current) not in seen and len(seen) < CHAIN_MAX:
            seen.add(id(current))
            if isinstance(current, BaseExceptionGroup):
                return self._worst(exc, cast("BaseExceptionGroup[BaseException]", current), depth)
            known = self._known(exc, current)
            if known is not None:
                return known
            current = _inner(current)
        return self._unknown(exc)

    def _known(self, exc: BaseException, current: BaseException) -> Failure | None:
        """Apply the rules to one exception of the chain."""
        for rule in self.lookup(type(current)).rules:
            answer = rule.apply(current, self.now)
            if answer is not None:
                verdict = answer if isinstance(answer, Verdict) else Verdict(code=answer)
                return self._failure(exc, current, verdict, rule.name)
        if _is_plain_bug(type(current)):
            return self._failure(exc, current, _BUG, "a bug by its type")
        return None

    def _worst(self, outer: BaseException, group: BaseExceptionGroup[BaseException], depth: int) -> Failure:
        """Classify a group by its worst member: permanent before retryable, then the more severe, then the first."""
        worst = self.groups.get(id(group))
        if worst is None:
            # The answer for a member whose causes lead back to this group.
            self.groups[id(group)] = self._unknown(group)
            members = _members_of(group) if depth < DEPTH_MAX else []
            failures = [self.classify(member, depth + 1) for member in members]
            worst = max(failures, key=_badness, default=self._unknown(group))
            longest = max((f.retry_after for f in failures if f.retry_after is not None), default=None)
            worst = replace(
                worst, retry_after=longest, rule=f"{worst.rule} (the worst of {class_name(type(group))})"
            )
            self.groups[id(group)] = worst
        return replace(worst, exception=class_name(type(outer)), message=message_of(outer))

    def _unknown(self, exc: BaseException) -> Failure:
        if type(exc) is ValueError:
            return self._failure(exc, exc, _BUG, "a bug by its type")
        unknown = Verdict(code=taxonomy.BUG_UNKNOWN)
        failure = self._failure(exc, exc, unknown, "no rule matches: an unknown exception counts as a bug")
        return replace(failure, is_unknown=True)

    def _from_signal(self, signal: Signal) -> Failure:
        """Turn a stage's signal into a failure. `Fail` may carry an application's own code, which its code set explains."""
        if isinstance(signal, Finish):
            return self._failure(signal, signal, _MISPLACED, "Finish is valid only in a stage")
        kind, code, delay = SignalKind.CANCEL, taxonomy.CANCELLED, None
        if isinstance(signal, Skip):
            kind, code = SignalKind.SKIP, taxonomy.SKIPPED
        elif isinstance(signal, Retry):
            kind, code, delay = SignalKind.RETRY, taxonomy.RETRY_ASKED, signal.delay
        elif isinstance(signal, Snooze):
            kind, code, delay = SignalKind.SNOOZE, taxonomy.RETRY_ASKED, signal.delay
        elif isinstance(signal, Fail):
            kind, code = SignalKind.FAIL, taxonomy.CODES.get(signal.code, taxonomy.STAGE_FAILED)
        verdict = Verdict(code=code)
        failure = self._failure(signal, signal, verdict, f"the stage asked for it: {type(signal).__name__}")
        name = signal.code if isinstance(signal, Fail) else failure.code
        is_retryable = kind in {SignalKind.RETRY, SignalKind.SNOOZE}
        return replace(
            failure, signal=kind, code=name, retryable=is_retryable, is_reachability=False, retry_after=delay
        )

    def _failure(self, exc: BaseException, known: BaseException, verdict: Verdict, rule: str) -> Failure:
        code = verdict.code
        retry_after = plausible(verdict.retry_after)
        if retry_after is None:
            retry_after = from_attributes(known, self.now)
        lineage = self.lookup(type(exc)).lineage
        if known is not exc:
            lineage += self.lookup(type(known)).lineage
            rule = f"{rule} (inside {class_name(type(exc))})"
            retry_after = from_attributes(exc, self.now) if retry_after is None else retry_after
        return Failure(
            code=code.name,
            category=code.category,
            retryable=code.retryable.holds(idempotent=self.idempotent),
            severity=code.severity,
            message=_message(exc, known, code),
            exception=class_name(type(exc)),
            lineage=lineage,
            rule=rule,
            canonical=code.name,
            retry_after=retry_after,
            http_status=verdict.http_status,
            provider_code=verdict.provider_code,
            request_id=verdict.request_id,
            is_reachability=code.is_reachability and not _is_client_status(verdict.http_status),
            max_attempts=code.max_attempts,
            line=code.line,
            hint=code.hint,
        )


def _message(exc: BaseException, known: BaseException, code: Code) -> str:
    """Return the message of a failure; with that of the cause, if a wrong setting is hidden behind a general message."""
    message = message_of(exc)
    if known is exc or code is not taxonomy.CONFIG_INVALID:
        return message
    return f"{message.rstrip('.')}: {message_of(known)}"


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


def _inner(exc: BaseException) -> BaseException | None:
    """Return the exception to try next when this one has no rule."""
    if exc.__cause__ is not None:
        return exc.__cause__
    if exc.__suppress_context__ or isinstance(exc, BUG_TYPES):
        return None
    return exc.__context__


def _is_client_status(status: int | None) -> bool:
    """A 4xx proves the dependency alive, even a retryable one such as 408."""
    return status is not None and 400 <= status < 500


def _is_plain_bug(kind: type[BaseException]) -> bool:
    """Return whether the type alone means a bug. ValueError and users' subclasses do not: they also serve as wrappers."""
    return kind.__module__ == "builtins" and kind is not ValueError and issubclass(kind, BUG_TYPES)
