# SPDX-License-Identifier: Apache-2.0
"""What a user declares: stages as plain functions, and pipelines as lists of them.

A stage stays callable as the function it was, so that it can be tested without redrive. Its types are read from its annotations:
the first parameter is its input, a parameter annotated `Context` gets the context, the return annotation is its output.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Generic, ParamSpec, TypeVar, get_type_hints, overload

from redrive.core.breaker import Breaker
from redrive.core.checks import flag, seconds
from redrive.core.policy import RetryPolicy
from redrive.engine.codec import Codec, codec_for
from redrive.errors import ConfigurationError

P = ParamSpec("P")
R = TypeVar("R")

NAME_MAX: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a stage may know about the job it works on."""

    job_id: int
    pipeline: str
    stage: str
    attempt: int
    """The place in the stage's budget, from 1; holds and crashes repeat the number."""

    @property
    def idempotency_key(self) -> str:
        """The same for every run of this stage of this job, so that an effect can be recognised as already done."""
        return f"{self.pipeline}:{self.job_id}:{self.stage}"


@dataclass(frozen=True, slots=True, eq=False)
class Stage(Generic[P, R]):
    """A function with a policy. Build one with `@stage`."""

    fn: Callable[P, R]
    name: str
    retry: RetryPolicy
    timeout: float | None
    breaker: Breaker | None
    is_idempotent: bool
    is_async: bool
    input: Codec
    output: Codec
    context_name: str | None
    """The parameter that gets the context, if there is one."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself."""
        return self.fn(*args, **kwargs)


@overload
def stage(fn: Callable[P, R], /) -> Stage[P, R]: ...
@overload
def stage(
    *,
    retry: RetryPolicy | None = None,
    timeout: timedelta | float | None = None,
    breaker: Breaker | None = None,
    idempotent: bool = False,
    name: str | None = None,
) -> Callable[[Callable[P, R]], Stage[P, R]]: ...
def stage(
    fn: Callable[P, R] | None = None,
    /,
    *,
    retry: RetryPolicy | None = None,
    timeout: timedelta | float | None = None,
    breaker: Breaker | None = None,
    idempotent: bool = False,
    name: str | None = None,
) -> Stage[P, R] | Callable[[Callable[P, R]], Stage[P, R]]:
    """Make a function a stage; use it as `@stage` or `@stage(...)`.

    A bare stage makes three attempts, one second apart and doubling up to a minute, with full jitter. `timeout` limits each attempt
    of an async function. `breaker` holds the stage's jobs while the dependency behind it is down; its state is in the store, known
    by its name. `idempotent` says that running the stage twice does no harm, which makes conflicts retryable.
    """

    def declare(function: Callable[P, R]) -> Stage[P, R]:
        made_name = name or str(getattr(function, "__name__", ""))
        _check(made_name, function, retry, breaker)
        limit = None if timeout is None else seconds(f"stage({made_name}).timeout", timeout, above=True)
        is_async = inspect.iscoroutinefunction(function)
        if limit is not None and not is_async:
            raise ConfigurationError(
                field=f"stage({made_name}).timeout",
                value=timeout,
                rule="cannot be kept on a sync function, because a running thread cannot be stopped",
                fix="Set the client's own timeout inside it, or make it async.",
            )
        shape = _shape(made_name, function)
        return Stage(
            fn=function,
            name=made_name,
            retry=retry or RetryPolicy(),
            timeout=limit,
            breaker=breaker,
            is_idempotent=flag(f"stage({made_name}).idempotent", idempotent),
            is_async=is_async,
            input=shape.input,
            output=shape.output,
            context_name=shape.context_name,
        )

    return declare if fn is None else declare(fn)


@dataclass(frozen=True, slots=True, eq=False)
class Pipeline:
    """Stages in order. A job goes through all of them; the output of one is the input of the next."""

    name: str
    stages: tuple[Stage[..., object], ...]

    def __init__(self, name: str, stages: Sequence[Stage[..., object]]) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "stages", tuple(stages))
        _check_name("Pipeline.name", name)
        if not self.stages:
            raise ConfigurationError(
                field=f"Pipeline({name}).stages",
                value=stages,
                rule="must hold at least one stage",
                fix="Pipeline(name, [fetch]).",
            )
        seen: set[str] = set()
        for one in self.stages:
            if not isinstance(one, Stage):
                raise ConfigurationError(
                    field=f"Pipeline({name}).stages",
                    value=one,
                    rule="must hold stages",
                    fix="Put @stage on the function.",
                )
            if one.name in seen:
                raise ConfigurationError(
                    field=f"Pipeline({name}).stages",
                    value=one.name,
                    rule="must have names of their own",
                    fix="Give one of them another: @stage(name=...).",
                )
            seen.add(one.name)


@dataclass(frozen=True, slots=True)
class _Shape:
    input: Codec
    output: Codec
    context_name: str | None


def _shape(name: str, function: Callable[..., object]) -> _Shape:
    """Read the types of a function; what is not annotated, or cannot be resolved, takes whatever JSON holds."""
    try:
        hints: dict[str, object] = get_type_hints(function)
    except NameError:
        hints = {}
    parameters = list(inspect.signature(function).parameters.values())
    context = next((each.name for each in parameters if hints.get(each.name) is Context), None)
    inputs = [each for each in parameters if each.name != context]
    required = [
        each for each in inputs[1:] if each.default is inspect.Parameter.empty and each.kind in _NAMED
    ]
    if not inputs or required:
        raise ConfigurationError(
            field=f"stage({name})",
            value=str(inspect.signature(function)),
            rule="must take exactly one input, and perhaps a Context",
            fix="Put what belongs together into one dataclass.",
        )
    taken = hints.get(inputs[0].name)
    return _Shape(
        codec_for(f"{name} (input)", taken), codec_for(f"{name} (output)", hints.get("return")), context
    )


_NAMED: Final = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
)


def _check(name: str, function: object, retry: object, breaker: object) -> None:
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
    _check_name("stage.name", name)
    if retry is not None and not isinstance(retry, RetryPolicy):
        raise ConfigurationError(
            field=f"stage({name}).retry",
            value=retry,
            rule="must be a RetryPolicy",
            fix="RetryPolicy(max_attempts=5).",
        )
    if breaker is not None and not isinstance(breaker, Breaker):
        raise ConfigurationError(
            field=f"stage({name}).breaker",
            value=breaker,
            rule="must be a Breaker",
            fix='Breaker("api", consecutive=5).',
        )


def _check_name(field: str, name: object) -> None:
    if not isinstance(name, str) or not name.strip() or len(name) > NAME_MAX:
        raise ConfigurationError(
            field=field,
            value=name,
            rule=f"must be a name of at most {NAME_MAX} characters",
            fix='"fetch", for example.',
        )
