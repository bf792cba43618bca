# SPDX-License-Identifier: Apache-2.0
"""`guard`: policy and breaker on any callable, sync or async, with no store at all.

This module checks the arguments and builds the guarded function; `engine.guard.run` has the loops that run it,
`engine.guard.call` the decisions.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, ParamSpec, TypedDict, TypeVar, Unpack, cast, overload
from weakref import WeakKeyDictionary

from redrive.core.arguments import seconds
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
"""What answers for a call that was given up: a function of what it would have raised."""


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
    """A policy, a breaker and time limits, ready to be put on callables. Build one with `guard(...)`.

    One guard may decorate many functions; they then share the breaker, and nothing else.
    """

    def __init__(self, **options: Unpack[GuardOptions]) -> None:
        _check_options(cast("dict[str, object]", options))
        self.retry: Final = options.get("retry") or RetryPolicy()
        self.breaker: Final = options.get("breaker")
        self.timeout: Final = _limit(options.get("timeout"), "timeout")
        self.deadline: Final = _limit(options.get("deadline"), "deadline")
        self.hold_max: Final = seconds("guard(hold_max)", options.get("hold_max", HOLD_MAX), above=True)
        self._options: Final = options
        self._cells: Final[WeakKeyDictionary[Breakers, BreakerCell]] = WeakKeyDictionary()

    def __call__(self, fn: Callable[P, R]) -> Callable[P, R]:
        """Return the function with this guard on it; `__wrapped__` is the function without."""
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
            guarded = _falling_back_async(guarded, answer) if is_async else _falling_back(guarded, answer)
        return functools.update_wrapper(guarded, fn)

    def __repr__(self) -> str:
        """Show the options that were given."""
        return f"guard({', '.join(f'{name}={value!r}' for name, value in self._options.items())})"

    @property
    def cell(self) -> BreakerCell:
        """The breaker in this process: its `state`, and `open()`, `close()`, `isolate()` for an operator's hand."""
        cell = self._cell_in(CURRENT.get())
        if cell is None:
            raise ConfigurationError(
                field="guard(breaker)", value=None, rule="is not set", fix="Give the guard a breaker first."
            )
        return cell

    def _cell_in(self, runtime: Runtime) -> BreakerCell | None:
        """Return the breaker's cell in a runtime, held for as long as this guard and that runtime exist."""
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
        """Return what the fallback says; what is no failure to be bridged is raised."""
        # A signal is meant for the caller. A bug that is answered for would never be found.
        classifier = self._options.get("classifier") or DEFAULT
        if isinstance(error, Signal) or classifier.classify(error).canonical in _BUGS:
            raise error
        return fallback(error)

    def _check_sync(self, fn: object) -> None:
        if self.timeout is not None:
            raise ConfigurationError(
                field="guard(timeout)",
                value=self.timeout,
                rule="cannot be kept on a sync callable, because a running thread cannot be stopped",
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
    """Put a retry policy and a breaker on a callable; use it as `@guard` or `@guard(...)`.

    `retry` defaults to three attempts at what the classifier says can heal. `breaker` holds or refuses calls while the dependency
    is down: in mode "hold" a call waits until the breaker lets it probe, or until the deadline, then raises BreakerOpenError; in
    mode "fail_fast" it raises at once. `timeout` limits each attempt (async only), `deadline` the call as a whole, waits included.
    `idempotent` says that running the function twice does no harm, which makes conflicts retryable. `codes` names failures by an
    application's own codes. The hooks get a `CallEvent` each; their failures are logged and change nothing. `fallback` is called
    with what would be raised in the end, and what it returns is returned instead; bugs and signals are raised all the same.

    When it is over, the original exception is raised, with the history of the attempts attached as notes.

    A breaker remembers as long as its guard exists. So make a guard once, beside the function it is put on or in a module: one that
    is made anew in every call has a breaker that never opens. Guards share a breaker by being given the same object.
    """
    return Guard(**options) if fn is None else Guard(**options)(fn)


def _falling_back(guarded: Callable[P, R], answer: Fallback) -> Callable[P, R]:
    """Return the guarded function with an answer for what it raises."""

    def answered(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return guarded(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - whatever a function raises; what is not to be bridged is raised again.
            return cast("R", answer(error))

    return answered


def _falling_back_async(guarded: Callable[P, R], answer: Fallback) -> Callable[P, R]:
    """Return the guarded async function with an answer for what it raises."""

    async def answered(*args: P.args, **kwargs: P.kwargs) -> object:
        try:
            return await cast("Awaitable[object]", guarded(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - whatever a function raises; what is not to be bridged is raised again.
            made = answer(error)
            return await cast("Awaitable[object]", made) if inspect.isawaitable(made) else made

    return cast("Callable[P, R]", answered)


def _check_options(options: dict[str, object]) -> None:
    for name, value in options.items():
        if name not in GuardOptions.__annotations__:
            known = ", ".join(GuardOptions.__annotations__)
            raise ConfigurationError(
                field=f"guard({name})", value=value, rule="is no option of guard", fix=f"There are {known}."
            )
        if name in _KINDS and value is not None and not isinstance(value, _KINDS[name][0]):
            kind, example = _KINDS[name]
            raise ConfigurationError(
                field=f"guard({name})",
                value=value,
                rule=f"must be a {kind.__name__}",
                fix=f"Write {example}, for example.",
            )
        if name.startswith("on_") and inspect.iscoroutinefunction(value):
            raise ConfigurationError(
                field=f"guard({name})",
                value=value,
                rule="must be a sync function",
                fix="Hand the event to a queue or a task inside it.",
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
    """Say whether a callable is async, and refuse what cannot be guarded."""
    if isinstance(fn, classmethod | staticmethod):
        kind = "classmethod" if isinstance(fn, classmethod) else "staticmethod"
        raise ConfigurationError(
            field="guard",
            value=cast("object", fn),
            rule=f"cannot be put on a {kind} object",
            fix=f"Write @{kind} above @guard, not below it.",
        )
    if isinstance(fn, RetryPolicy | Breaker):
        option = "retry" if isinstance(fn, RetryPolicy) else "breaker"
        raise ConfigurationError(
            field="guard", value=fn, rule="takes its options by name", fix=f"Write guard({option}=...)."
        )
    if not callable(fn):
        raise ConfigurationError(
            field="guard", value=fn, rule="can only be put on a callable", fix="Guard a function or a method."
        )
    call = getattr(fn, "__call__", None)  # noqa: B004 - an instance with an async __call__ is an async callable.
    if any(inspect.isgeneratorfunction(made) or inspect.isasyncgenfunction(made) for made in (fn, call)):
        raise ConfigurationError(
            field="guard",
            value=fn,
            rule="cannot be put on a generator function, because what it already gave away cannot be taken back",
            fix="Guard the calls inside it.",
        )
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(call)
