# SPDX-License-Identifier: Apache-2.0
"""Stages: plain functions with a policy.

A stage stays callable as the function it was, so that it can be tested without redrive. Its types are read from its annotations:
the first parameter is its input, a parameter annotated `Context` gets the context, further ones get the resource of their type,
the return annotation is its output. The function of a batch stage takes and returns lists; input and output are their elements.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Generic, Literal, ParamSpec, TypeVar, cast, get_type_hints, overload

from redrive.core.arguments import distinct, flag, instance, name, one_of, seconds, whole
from redrive.core.batch import Batch
from redrive.core.breaker import Breaker
from redrive.core.limit import Limit
from redrive.core.policy import RetryPolicy
from redrive.engine.pipeline.batch import input_element, output_element
from redrive.engine.pipeline.codec import Codec, codec_for
from redrive.engine.pipeline.context import Context
from redrive.errors import ConfigurationError

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")
_VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Stage(Generic[P, R_co]):
    """A function with a policy. Build one with `@stage`."""

    fn: Callable[P, R_co]
    name: str
    retry: RetryPolicy
    timeout: float | None
    breaker: Breaker | None
    limits: tuple[Limit, ...]
    """What its calls count against, besides `concurrency`."""
    concurrency: int | None
    """At most so many run at once in one worker; None for as many as the worker has slots."""
    batch: Batch | None
    """How many jobs share a call; None for one call for each job. Input and output are then those of one job."""
    version: str
    is_idempotent: bool
    is_abandoned: bool
    """True when an attempt that overruns its timeout is settled while its thread still runs."""
    is_process: bool
    """True when it runs in another process."""
    is_transactional: bool
    """True when it runs in a transaction that is committed with its outcome."""
    is_async: bool
    input: Codec
    output: Codec
    context_name: str | None
    """The parameter that gets the context, or the list of contexts of a batch, if there is one."""
    resources: dict[str, type]
    """The parameters that get a resource, and of which type."""
    config: str
    """A hash of these settings; it is stored with every attempt."""

    def __repr__(self) -> str:
        """Show the name; all settings would be too long."""
        return f"Stage({self.name})"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function itself."""
        return self.fn(*args, **kwargs)


@overload
def stage(fn: Callable[P, R], /) -> Stage[P, R]: ...
@overload
def stage(
    *,
    retry: RetryPolicy | int | None = None,
    timeout: timedelta | float | None = None,
    on_overrun: Literal["wait", "abandon"] = "wait",
    breaker: Breaker | None = None,
    limits: Limit | Iterable[Limit] = (),
    concurrency: int | None = None,
    idempotent: bool = False,
    process: bool = False,
    transactional: bool = False,
    batch: Batch | None = None,
    version: str = "1",
    name: str | None = None,
) -> Callable[[Callable[P, R]], Stage[P, R]]: ...
def stage(
    fn: Callable[P, R] | None = None,
    /,
    *,
    retry: RetryPolicy | int | None = None,
    timeout: timedelta | float | None = None,
    on_overrun: Literal["wait", "abandon"] = "wait",
    breaker: Breaker | None = None,
    limits: Limit | Iterable[Limit] = (),
    concurrency: int | None = None,
    idempotent: bool = False,
    process: bool = False,
    transactional: bool = False,
    batch: Batch | None = None,
    version: str = "1",
    name: str | None = None,
) -> Stage[P, R] | Callable[[Callable[P, R]], Stage[P, R]]:
    """Make a function a stage; use it as `@stage` or `@stage(...)`.

    Without options a stage makes three attempts, one second apart and doubling up to a minute, with full jitter; `retry=5`
    makes five. `timeout` limits an attempt: an async function is cancelled; a sync one cannot be, so it keeps its slot until it
    returns; a late result still counts and a late error is a timeout (`on_overrun="abandon"` settles it at once while the
    thread runs on; for idempotent stages only). `breaker` holds the stage's jobs while the dependency behind it is down; its
    state is in the store, under its name. `limits` bound how much it asks of a dependency, over all workers. `concurrency`
    bounds how many run at once in a worker. `idempotent` declares that running the stage twice does no harm, which makes
    conflicts retryable. `process` runs a CPU-bound function in another process. `transactional` gives the stage
    `ctx.connection`, whose transaction is committed with its outcome (on PostgreSQL only). `batch` calls the function for many
    jobs at once: with a list of inputs, for a list of outputs, exceptions or signals; `timeout` and `concurrency` then count calls.
    `version` is yours to raise when the stage changes its meaning; it is stored with every attempt.
    """

    def declare(function: Callable[P, R]) -> Stage[P, R]:
        made_name = name or str(getattr(function, "__name__", ""))
        _check(made_name, function, retry, breaker, batch)
        where = f"stage({made_name})"
        limit = None if timeout is None else seconds(f"{where}.timeout", timeout, above=True)
        if concurrency is not None:
            whole(f"{where}.concurrency", concurrency, minimum=1, fix="Leave it out for no limit.")
        is_async = inspect.iscoroutinefunction(function)
        taken, returned, context_name, resources = _shape(made_name, function, is_batch=batch is not None)
        policy = RetryPolicy(retry) if isinstance(retry, int) else retry or RetryPolicy()
        settings: tuple[object, ...] = (
            *(version, policy, limit, breaker, concurrency, idempotent, process, on_overrun),
            *(() if batch is None else (batch,)),
            *(("transactional",) if transactional else ()),
        )
        listed = _limits_of(where, limits)
        made = Stage(
            fn=function,
            name=made_name,
            retry=policy,
            timeout=limit,
            breaker=breaker,
            limits=listed,
            concurrency=concurrency,
            batch=batch,
            version=version,
            is_idempotent=flag(f"{where}.idempotent", idempotent),
            is_abandoned=on_overrun == "abandon",
            is_process=flag(f"{where}.process", process),
            is_transactional=flag(f"{where}.transactional", transactional),
            is_async=is_async,
            input=taken,
            output=returned,
            context_name=context_name,
            resources=resources,
            config=_digest((*settings, *listed)),
        )
        _check_options(made, on_overrun)
        return made

    return declare if fn is None else declare(fn)


def _digest(settings: tuple[object, ...]) -> str:
    """Return a hash of settings that is the same in every process: a function among them counts by its name, not its address."""
    return hashlib.sha256(_ADDRESS.sub("", repr(settings)).encode()).hexdigest()[:12]


def _shape(
    name: str, function: Callable[..., object], *, is_batch: bool
) -> tuple[Codec, Codec, str | None, dict[str, type]]:
    """Return input, output, context name and resources of a function; a parameter without annotation accepts any JSON."""
    try:
        hints: dict[str, object] = get_type_hints(function)
    except NameError as error:
        raise ConfigurationError(
            field=f"stage({name})",
            value=str(inspect.signature(function)),
            rule=f"has an annotation that cannot be resolved: {error}",
            fix="Define or import its class at the top of the module, not in a function or for the type checker alone.",
        ) from error
    parameters = list(inspect.signature(function).parameters.values())
    if parameters and parameters[0].name in {"self", "cls"} and "." in function.__qualname__:
        raise ConfigurationError(
            field=f"stage({name})",
            value=f"the method {function.__qualname__}",
            rule="must be a function: a worker has no object on which to call a method",
            fix="Take the object as a parameter annotated with its class, and open it with Pipeline(resources=...).",
        )
    wanted = list[Context] if is_batch else Context
    context = next((each.name for each in parameters if hints.get(each.name) == wanted), None)
    inputs = [each for each in parameters if each.name != context]
    required = [
        each for each in inputs[1:] if each.default is inspect.Parameter.empty and each.kind not in _VARIADIC
    ]
    resources = {
        each.name: kind for each in required if (kind := _class_of(hints.get(each.name))) is not None
    }
    if not inputs or len(resources) != len(required):
        raise ConfigurationError(
            field=f"stage({name})",
            value=str(inspect.signature(function)),
            rule="must take exactly one input, perhaps a Context, and resources annotated with their class",
            fix="Put what belongs together into one dataclass.",
        )
    taken, returned = hints.get(inputs[0].name), hints.get("return")
    if is_batch:
        if Context in resources.values():
            raise ConfigurationError(
                field=f"stage({name})",
                value="Context",
                rule="has one context for each job of a batch",
                fix="Annotate the parameter as list[Context]; its order is that of the inputs.",
            )
        taken, returned = input_element(name, taken), output_element(name, returned)
    return codec_for(f"{name} (input)", taken), codec_for(f"{name} (output)", returned), context, resources


def _class_of(hint: object) -> type | None:
    """Return the class of a resource; built-in types are none."""
    return hint if isinstance(hint, type) and hint.__module__ != "builtins" else None


def _check(name: str, function: object, retry: object, breaker: object, batch: object) -> None:
    if (
        not callable(function)
        or inspect.isgeneratorfunction(function)
        or inspect.isasyncgenfunction(function)
    ):
        raise ConfigurationError(
            field="stage",
            value=function,
            rule="can only be put on a function that returns",
            fix="Return the whole output at once.",
        )
    check_name("stage.name", name)
    if retry is not None and (isinstance(retry, bool) or not isinstance(retry, int)):
        instance(f"stage({name}).retry", retry, RetryPolicy, fix="retry=5, or retry=RetryPolicy(5, ...).")
    if breaker is not None:
        instance(f"stage({name}).breaker", breaker, Breaker, fix='Breaker("api", consecutive=5).')
    if batch is not None:
        instance(f"stage({name}).batch", batch, Batch, fix="Batch(size=64).")


def _limits_of(where: str, given: object) -> tuple[Limit, ...]:
    """Return the limits of a stage; one may be given alone."""
    listed: tuple[object, ...] = (given,)
    if isinstance(given, Iterable) and not isinstance(given, Limit | str):
        listed = tuple(cast("Iterable[object]", given))
    for one in listed:
        instance(f"{where}.limits", one, Limit, fix='limits=[Limit("openai", rate="500/min")].')
    limits = cast("tuple[Limit, ...]", listed)
    distinct(f"{where}.limits", (one.name for one in limits), fix="Give one of them another name.")
    return limits


def _check_options(made: Stage[P, R], on_overrun: str) -> None:
    """Refuse options that contradict each other."""
    where = f"stage({made.name})"
    one_of(f"{where}.on_overrun", on_overrun, ("wait", "abandon"))
    if made.is_abandoned and (made.is_async or made.timeout is None or not made.is_idempotent):
        raise ConfigurationError(
            field=f"{where}.on_overrun",
            value=on_overrun,
            rule="is for sync stages with a timeout that are idempotent, because the next attempt may run beside the old one",
            fix="Add timeout= and idempotent=True, or leave it out.",
        )
    if made.is_process and (made.is_async or made.resources):
        raise ConfigurationError(
            field=f"{where}.process",
            value=True,
            rule="is for sync functions without resources",
            fix="Leave async work on the loop; open what a process needs inside the function.",
        )
    if made.is_transactional and (
        made.is_process or made.is_abandoned or made.batch is not None or made.context_name is None
    ):
        raise ConfigurationError(
            field=f"{where}.transactional",
            value=True,
            rule='is for a stage with a Context, and without process=True, batch= and on_overrun="abandon"',
            fix="Add a parameter annotated with Context: its connection is in the transaction.",
        )
    if made.batch is not None and made.breaker is not None and made.breaker.key is not None:
        raise ConfigurationError(
            field=f"{where}.breaker",
            value=made.breaker.name,
            rule="has keys, and one call of a batch may be for several of them",
            fix="Leave out its key, or the batch.",
        )
    if made.batch is not None and (made.is_process or made.is_abandoned):
        raise ConfigurationError(
            field=f"{where}.batch",
            value=made.batch,
            rule='cannot be combined with process=True or on_overrun="abandon"',
            fix="Leave it out: a batch pays where a call has a fixed cost, and such calls wait, or release the interpreter.",
        )


def check_name(field: str, given: object) -> None:
    """Refuse a name that a stage or a pipeline cannot have."""
    name(field, given, fix='"fetch", for example; in Pipeline("shop", [fetch]) the name comes first.')
