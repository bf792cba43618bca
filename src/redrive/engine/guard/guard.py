# SPDX-License-Identifier: Apache-2.0
"""`guard`: a retry policy and a breaker on any callable, sync or async, without a store.

This module checks the options and builds the guarded function; the loops that run it are in `guard.run`, the decisions in
`guard.call`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, ParamSpec, TypedDict, TypeVar, Unpack, cast, overload
from weakref import WeakKeyDictionary

from redrive.core.arguments import instance, seconds
from redrive.core.breaker import Breaker
from redrive.core.codeset import CodeSet
from redrive.core.policy import RetryPolicy
from redrive.core.signals import Signal
from redrive.core.taxonomy import BUG_CODE, BUG_UNKNOWN
from redrive.engine.classifier import DEFAULT, Classifier
from redrive.engine.guard.breakers import BreakerCell, Breakers
from redrive.engine.guard.call import CallPlan
from redrive.engine.guard.events import Hook, Kind
from redrive.engine.guard.run import guard_async, guard_sync
from redrive.engine.runtime import CURRENT, Runtime
from redrive.errors import ConfigurationError

P = ParamSpec("P")
R = TypeVar("R")


Fallback = Callable[[Exception], object]
"""Returns a result in place of the exception that a guarded call would raise."""


class GuardOptions(TypedDict, total=False):
    """The options of `guard`; every one may be left out."""

    retry: RetryPolicy | None
    breaker: Breaker | None
    timeout: timedelta | float | None
    deadline: timedelta | float | None
    hold_max: timedelta | float
    name: str | None
    idempotent: bool
    codes: CodeSet | None
    classifier: Classifier | None
    on_retry: Hook | None
    on_hold: Hook | None
    on_dead: Hook | None
    fallback: Fallback | None


HOLD_MAX: Final = 600.0
"""Seconds a call without a deadline waits for a breaker, all its holds together."""


_KINDS: Final[dict[str, tuple[type, str]]] = {
    "retry": (RetryPolicy, "RetryPolicy(max_attempts=5)"),
    "breaker": (Breaker, 'Breaker("name", consecutive=5)'),
    "idempotent": (bool, "idempotent=True"),
    "name": (str, 'name="fetch"'),
    "codes": (CodeSet, 'CodeSet("app", [...], otherwise=...)'),
    "classifier": (Classifier, "Classifier([Rule(...)])"),
}


_BUGS: Final = frozenset({BUG_CODE.name, BUG_UNKNOWN.name})
_CALLED: Final = {"on_retry": "event", "on_hold": "event", "on_dead": "event", "fallback": "exception"}


class Guard:
    """A policy, a breaker and time limits for callables. Build one with `guard(...)`.

    One guard may decorate many functions; they share the breaker, and nothing else.
    """

    def __init__(self, **options: Unpack[GuardOptions]) -> None:
        _check_options(cast("dict[str, object]", options))
        self.retry: Final = options.get("retry") or RetryPolicy()
        codes = options.get("codes")
        self.retry.check_codes("guard(retry)", () if codes is None else codes.names)
        self.breaker: Final = options.get("breaker")
        if self.breaker is not None and self.breaker.key is not None:
            raise ConfigurationError(
                field="guard(breaker)",
                value=self.breaker.name,
                rule="has a key, and a guarded call has no job to take it from",
                fix="Make one guard for each key, with a breaker of its own.",
            )
        self.timeout: Final = _limit(options.get("timeout"), "timeout")
        self.deadline: Final = _limit(options.get("deadline"), "deadline")
        self.hold_max: Final = seconds("guard(hold_max)", options.get("hold_max", HOLD_MAX), above=True)
        self._options: Final = options
        self._cells: Final[WeakKeyDictionary[Breakers, BreakerCell]] = WeakKeyDictionary()

    def __call__(self, fn: Callable[P, R]) -> Callable[P, R]:
        """Return the guarded function; its `__wrapped__` is the original one."""
        is_async = _is_async(fn)
        if not is_async:
            self._check_sync(fn)
        guarded = (
            cast("Callable[P, R]", guard_async(self._plan(fn), cast("Callable[P, Awaitable[object]]", fn)))
            if is_async
            else guard_sync(self._plan(fn), fn)
        )
        fallback = self._options.get("fallback")
        if fallback is not None:
            answer = functools.partial(self._answer, fallback)
            guarded = _with_fallback_async(guarded, answer) if is_async else _with_fallback(guarded, answer)
        return functools.update_wrapper(guarded, fn)

    def __repr__(self) -> str:
        """Show the options that were given."""
        return f"guard({', '.join(f'{name}={value!r}' for name, value in self._options.items())})"

    @property
    def cell(self) -> BreakerCell:
        """The breaker in this process: its `state`, and `open()`, `close()`, `isolate()` for operators."""
        cell = self._cell_in(CURRENT.get())
        if cell is None:
            raise ConfigurationError(
                field="guard(breaker)", value=None, rule="is not set", fix="Give the guard a breaker first."
            )
        return cell

    def _cell_in(self, runtime: Runtime) -> BreakerCell | None:
        """Return the breaker's cell in a runtime; it lives as long as this guard and that runtime."""
        if self.breaker is None:
            return None
        cell = self._cells.get(runtime.breakers)
        if cell is None:
            cell = self._cells[runtime.breakers] = runtime.breakers.cell(self.breaker)
        return cell

    def _plan(self, fn: Callable[..., object]) -> CallPlan:
        options = self._options
        hooks: dict[Kind, Hook | None] = {
            "retry": options.get("on_retry"),
            "hold": options.get("on_hold"),
            "dead": options.get("on_dead"),
        }
        return CallPlan(
            name=options.get("name") or _name_of(fn),
            stage=options.get("name") or str(getattr(fn, "__name__", _name_of(fn))),
            policy=self.retry,
            cell_in=self._cell_in,
            timeout=self.timeout,
            deadline=self.deadline,
            hold_max=self.hold_max,
            idempotent=options.get("idempotent", False),
            codes=options.get("codes"),
            classifier=options.get("classifier") or DEFAULT,
            hooks={kind: hook for kind, hook in hooks.items() if hook is not None},
        )

    def _answer(self, fallback: Fallback, error: Exception) -> object:
        """Return the result of the fallback; raise signals and bugs."""
        # A signal is meant for the caller. A bug hidden by a fallback would never be found.
        classifier = self._options.get("classifier") or DEFAULT
        if isinstance(error, Signal) or classifier.classify(error).canonical in _BUGS:
            raise error
        return fallback(error)

    def _check_sync(self, fn: object) -> None:
        if self.timeout is not None:
            raise ConfigurationError(
                field="guard(timeout)",
                value=self.timeout,
                rule="cannot be enforced on a sync callable, because a running thread cannot be stopped",
                fix=f"Set the client's own timeout inside {_name_of(fn)}, make it async, or use deadline=.",
            )
        if inspect.iscoroutinefunction(self._options.get("fallback")):
            raise ConfigurationError(
                field="guard(fallback)",
                value=self._options.get("fallback"),
                rule="must be a sync function when a sync callable is guarded",
                fix="Use a sync fallback, or guard an async function.",
            )
        if self.breaker is not None and inspect.iscoroutinefunction(self.breaker.probe):
            raise ConfigurationError(
                field=f"Breaker({self.breaker.name}).probe",
                value=self.breaker.probe,
                rule="must be a sync function when a sync callable is guarded",
                fix="Use a sync probe, or guard an async function.",
            )


@overload
def guard(fn: Callable[P, R], /, **options: Unpack[GuardOptions]) -> Callable[P, R]: ...
@overload
def guard(**options: Unpack[GuardOptions]) -> Guard: ...
def guard(fn: Callable[P, R] | None = None, /, **options: Unpack[GuardOptions]) -> Callable[P, R] | Guard:
    """Add a retry policy and a breaker to a callable; use it as `@guard` or `@guard(...)`.

    `retry` defaults to three attempts for failures that the classifier calls retryable. `breaker` holds or refuses calls while
    the dependency is down: in mode "hold" a call waits until the breaker admits it as a probe, or until the deadline, then raises
    BreakerOpenError; in mode "fail_fast" it raises at once. `timeout` limits each attempt (async only), `deadline` the whole call
    including waits. `idempotent` means that the function may run twice without harm, which makes conflicts retryable. `codes`
    translates failures to an application's own codes. Each hook gets a `CallEvent`; a hook that fails is logged and changes
    nothing. `fallback` gets the exception that would be raised at the end, and its result is returned instead; bugs and signals
    are always raised.

    A call that fails for good raises the original exception, with the history of the attempts attached as notes.

    A breaker keeps its state as long as its guard exists. So create a guard once, at module level or beside its function: a guard
    created anew for every call has a breaker that never opens. Guards share a breaker by sharing the `Breaker` object.
    """
    return Guard(**options) if fn is None else Guard(**options)(fn)


def _with_fallback(guarded: Callable[P, R], answer: Fallback) -> Callable[P, R]:
    def answered(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return guarded(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - a function may raise anything; `answer` raises again what needs no fallback.
            return cast("R", answer(error))

    return answered


def _with_fallback_async(guarded: Callable[P, R], answer: Fallback) -> Callable[P, R]:
    async def answered(*args: P.args, **kwargs: P.kwargs) -> object:
        try:
            return await cast("Awaitable[object]", guarded(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - a function may raise anything; `answer` raises again what needs no fallback.
            result = answer(error)
            return await cast("Awaitable[object]", result) if inspect.isawaitable(result) else result

    return cast("Callable[P, R]", answered)


def _check_options(options: dict[str, object]) -> None:
    for name, value in options.items():
        if name not in GuardOptions.__annotations__:
            known = ", ".join(GuardOptions.__annotations__)
            raise ConfigurationError(
                field=f"guard({name})",
                value=value,
                rule="is not an option of guard",
                fix=f"The options are {known}.",
            )
        if name in _KINDS and value is not None:
            kind, example = _KINDS[name]
            instance(f"guard({name})", value, kind, fix=f"Write {example}, for example.")
        if name.startswith("on_") and inspect.iscoroutinefunction(value):
            raise ConfigurationError(
                field=f"guard({name})",
                value=value,
                rule="must be a sync function",
                fix="Pass the event to a queue or a task inside it.",
            )
        if name in _CALLED and value is not None and not callable(value):
            raise ConfigurationError(
                field=f"guard({name})",
                value=value,
                rule="must be callable",
                fix=f"Pass a function of one {_CALLED[name]}.",
            )


def _limit(value: timedelta | float | None, name: str) -> float | None:
    return None if value is None else seconds(f"guard({name})", value, above=True)


def _name_of(fn: object) -> str:
    return str(getattr(fn, "__qualname__", type(fn).__qualname__))


def _is_async(fn: object) -> bool:
    """Return whether a callable is async; refuse what cannot be guarded."""
    if isinstance(fn, classmethod | staticmethod):
        kind = "classmethod" if isinstance(fn, classmethod) else "staticmethod"
        raise ConfigurationError(
            field="guard",
            value=cast("object", fn),
            rule=f"cannot guard a {kind} object",
            fix=f"Write @{kind} above @guard, not below it.",
        )
    if isinstance(fn, RetryPolicy | Breaker):
        option = "retry" if isinstance(fn, RetryPolicy) else "breaker"
        raise ConfigurationError(
            field="guard", value=fn, rule="takes its options by name", fix=f"Write guard({option}=...)."
        )
    if not callable(fn):
        raise ConfigurationError(
            field="guard", value=fn, rule="can only guard a callable", fix="Guard a function or a method."
        )
    call = getattr(fn, "__call__", None)  # noqa: B004 - an instance with an async __call__ is an async callable.
    if any(inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each) for each in (fn, call)):
        raise ConfigurationError(
            field="guard",
            value=fn,
            rule="cannot guard a generator function, because values that it has yielded cannot be withdrawn",
            fix="Guard the calls inside it.",
        )
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(call)
