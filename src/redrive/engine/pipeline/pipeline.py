# SPDX-License-Identifier: Apache-2.0
"""Pipelines: stages in order, the resources they share, and the hooks and sinks that are notified of failures, breakers and runs.

Declarations only: nothing here runs, opens or stores anything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, TypeAlias, cast

from redrive.core.arguments import distinct, function, instance, whole
from redrive.core.breaker import Breaker
from redrive.core.codeset import CodeSet
from redrive.core.limit import Limit
from redrive.core.replay import ReplayRules
from redrive.engine.pipeline.codec import Codec, codec_for
from redrive.engine.pipeline.stage import Stage, check_name
from redrive.engine.pipeline.wiring import check_wiring
from redrive.errors import ConfigurationError
from redrive.sinks.base import BreakerChange, Sink
from redrive.store.records import HOOK

if TYPE_CHECKING:
    # Defaults of type variables are newer than the oldest Python we support, and only type checkers need them.
    from typing_extensions import TypeVar

    from redrive.engine.runs.runs import RunReport

    In_contra = TypeVar("In_contra", contravariant=True, default=Any)
    Out_co = TypeVar("Out_co", covariant=True, default=object)
else:
    from typing import TypeVar

    In_contra = TypeVar("In_contra", contravariant=True)
    Out_co = TypeVar("Out_co", covariant=True)

I = TypeVar("I")  # noqa: E741 - as short as the other type variables.
O = TypeVar("O")  # noqa: E741 - as short as the other type variables.

CRASH_MAX: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What a hook gets about one attempt. Redacted; delivered at least once."""

    kind: str
    """`retry`, `hold` or `dead`."""
    job_id: int
    pipeline: str
    stage: str
    attempt: int
    round: int
    code: str
    message: str
    reason: str
    """Why it was decided so, in a word; `sentence` has it in full."""
    sentence: str
    at: datetime
    due_at: datetime
    """When the next attempt is due; for a dead letter, the end of the last one."""
    http_status: int | None = None
    notes: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    """What the stage noted in this attempt."""
    key: str | None = None
    """The job's key, as it was submitted and so not redacted: it identifies what the job was about. None without one."""
    category: str | None = None
    """None for a retry or a hold with an own code that has no category of its own."""
    exception: str = ""
    """Class of the exception, with its module; empty when nothing was raised."""
    stack: str = ""
    """Of a dead letter only."""
    is_escalated: bool = False
    """True for a dead letter if its replay failed again with the same permanent code: an operator has to look."""


Hook = Callable[[Event], Awaitable[None] | None]
"""A function that is notified; sync ones are called on a thread."""
BreakerHook = Callable[[BreakerChange], Awaitable[None] | None]
"""A function that is notified of a change of a breaker; sync ones are called on a thread."""
RunHook = Callable[["RunReport"], Awaitable[None] | None]
"""A function that is notified of the end of a run; sync ones are called on a thread."""
Resource = Callable[[], AbstractAsyncContextManager[Any] | AbstractContextManager[Any]]


OneStage: TypeAlias = tuple[Stage[Concatenate[I, ...], Coroutine[Any, Any, O] | O]]
SeveralStages: TypeAlias = tuple[
    Stage[Concatenate[I, ...], object],
    *tuple[Stage[..., object], ...],
    Stage[..., Coroutine[Any, Any, O] | O],
]


@dataclass(frozen=True, eq=False, repr=False)
class PipelineRef(Generic[In_contra, Out_co]):
    """A pipeline by its name and its payloads: all that is needed to submit jobs to it, without the code of its stages.

    `Pipeline.ref` makes one; a `Pipeline` is one that has its code, too. What is known of the stages without it is what a worker,
    or whoever submitted with the code, has recorded in the store.
    """

    name: str
    payload: Codec
    """What its payloads are."""

    def __repr__(self) -> str:
        """Show the name."""
        return f"Pipeline.ref({self.name})"


# Without slots: a frozen dataclass with them cannot be called as `Pipeline[In, Out](...)`.
@dataclass(frozen=True, eq=False, repr=False)
class Pipeline(PipelineRef[In_contra, Out_co]):
    """Stages in order. A job goes through all of them; the output of one is the input of the next.

    To a type checker it is a `Pipeline[In, Out]`, as you write it: `Pipeline[Order, Receipt]("shop", [price, pay])`. From a tuple
    of stages, pyright finds out both by itself.

    `resources` are functions that return a context manager, opened once per worker and closed when it ends, or objects that are
    ready, which stay open; stages get them by type. `on_retry`, `on_hold` and `on_dead` are called for failed attempts, after
    they were committed, at least once; a hook that raises is logged and called again, and never changes an outcome.
    `on_breaker` is called in the same way when a breaker of a stage opens, is half open, closes or is isolated, whoever changed
    it. `on_run_end` is called in the same way with the report of a run of this pipeline whose items have all ended, and again
    after a replay of some. `crash_max` is how often a job that runs alone may kill its process before it is given up. `replay`
    is what must be on record before failed jobs run again. `sinks` receive every change of a dead letter; each is tried until
    it has accepted it, and never changes an outcome either. `codes` names failures by the application's own codes, in attempts,
    letters and hooks alike.
    """

    stages: tuple[Stage[..., object], ...]
    resources: tuple[Resource | object, ...]
    hooks: dict[str, Hook]
    on_breaker: BreakerHook | None
    on_run_end: RunHook | None
    crash_max: int
    replay: ReplayRules
    sinks: tuple[Sink, ...]
    codes: CodeSet | None

    def __init__(
        self,
        name: str,
        stages: OneStage[In_contra, Out_co] | SeveralStages[In_contra, Out_co] | Sequence[Stage[..., object]],
        *,
        resources: Sequence[Resource | object] = (),
        on_retry: Hook | None = None,
        on_hold: Hook | None = None,
        on_dead: Hook | None = None,
        on_breaker: BreakerHook | None = None,
        on_run_end: RunHook | None = None,
        crash_max: int = CRASH_MAX,
        replay: ReplayRules | None = None,
        sinks: Sequence[Sink] = (),
        codes: CodeSet | None = None,
    ) -> None:
        check_name("Pipeline.name", name)
        hooks = {"retry": on_retry, "hold": on_hold, "dead": on_dead}
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "stages", _listed(name, "stages", stages))
        object.__setattr__(self, "resources", _listed(name, "resources", resources))
        object.__setattr__(self, "hooks", {kind: hook for kind, hook in hooks.items() if hook is not None})
        object.__setattr__(self, "on_breaker", on_breaker)
        object.__setattr__(self, "on_run_end", on_run_end)
        object.__setattr__(self, "crash_max", crash_max)
        object.__setattr__(self, "replay", replay or ReplayRules())
        object.__setattr__(self, "sinks", _listed(name, "sinks", sinks))
        object.__setattr__(self, "codes", codes)
        whole(f"Pipeline({name}).crash_max", crash_max, minimum=1, fix=f"{CRASH_MAX} is the default.")
        _check_stages(name, self.stages)
        object.__setattr__(self, "payload", self.stages[0].input)
        check_wiring(name, self.stages)
        if codes is not None:
            instance(f"Pipeline({name}).codes", codes, CodeSet, fix='CodeSet("app", [...], otherwise=...).')
        for one in self.stages:
            one.retry.check_codes(f"stage({one.name}).retry", () if codes is None else codes.names)
        _check_sinks(name, self.sinks)
        for option, given in {**hooks, "breaker": on_breaker, "run_end": on_run_end}.items():
            function(f"Pipeline({name}).on_{option}", given, fix="Pass the function itself.")

    @staticmethod
    def ref(name: str, *, payload: type[I]) -> PipelineRef[I]:
        """Name a pipeline whose code is elsewhere, to submit jobs to it: `rd.submit(Pipeline.ref("shop", payload=Order), order)`.

        When it is used, it is checked against what a worker has recorded: an unknown pipeline, or a payload that can never be one
        of its first stage, is refused.
        """
        check_name("Pipeline.ref", name)
        return PipelineRef(name, codec_for(f"{name} (payload)", payload))

    def __repr__(self) -> str:
        """Show the name and the stages' names; all settings would be too long."""
        return f"Pipeline({self.name}: {', '.join(stage.name for stage in self.stages)})"


def check_pipeline(field: str, value: object) -> Pipeline:
    """Return a pipeline; refuse anything else."""
    if not isinstance(value, Pipeline):
        raise ConfigurationError(
            field=field,
            value=value,
            rule="must be a pipeline",
            fix="Pass the Pipeline object itself; it comes before payloads and items.",
        )
    return cast("Pipeline", value)


def check_pipelines(field: str, value: object) -> tuple[Pipeline, ...]:
    """Return several pipelines with distinct names; refuse anything else."""
    if isinstance(value, Pipeline | str) or not isinstance(value, Iterable):
        given = value.name if isinstance(value, Pipeline) else value
        raise ConfigurationError(
            field=field, value=given, rule="must be a list of pipelines", fix="Put it in brackets: [orders]."
        )
    pipelines = tuple(check_pipeline(field, each) for each in cast("Iterable[object]", value))
    fix = "Jobs are known by the name of their pipeline: name each one once."
    distinct(field, (each.name for each in pipelines), fix=fix)
    _check_shared([(pipeline.name, stage) for pipeline in pipelines for stage in pipeline.stages])
    return pipelines


def _listed(name: object, option: str, given: object) -> tuple[object, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ConfigurationError(
            field=f"Pipeline({name}).{option}", value=given, rule="must be a list", fix="Put it in brackets."
        )
    return tuple(cast("Iterable[object]", given))


def _check_stages(name: str, stages: tuple[Stage[..., object], ...]) -> None:
    field = f"Pipeline({name}).stages"
    if not stages:
        raise ConfigurationError(
            field=field, value=stages, rule="must hold at least one stage", fix="Pipeline(name, [fetch])."
        )
    for one in stages:
        if not isinstance(one, Stage):
            raise ConfigurationError(
                field=field, value=one, rule="must hold stages", fix="Put @stage on the function."
            )
    distinct(field, (one.name for one in stages), fix="Give one of them another: @stage(name=...).")
    _check_shared([(name, one) for one in stages])


def _check_shared(stages: Sequence[tuple[str, Stage[..., object]]]) -> None:
    """Refuse breakers, or limits, of one name with different settings: stages share them, and their state in the store, by name."""
    known: dict[tuple[str, str], tuple[Breaker | Limit, str]] = {}
    for pipeline, stage in stages:
        where = f"stage({stage.name}) of Pipeline({pipeline})"
        shared: list[Breaker | Limit] = [*([] if stage.breaker is None else [stage.breaker]), *stage.limits]
        for one in shared:
            kind = type(one).__name__
            first, first_where = known.setdefault((kind, one.name), (one, where))
            if first != one:
                raise ConfigurationError(
                    field=f"{kind}({one.name})",
                    value=_differences(first, one),
                    rule=f"must have the same settings in {first_where} and {where}",
                    fix=f"Stages share a {kind.lower()} by its name: define it once, or give one of them another name.",
                )


def _differences(one: Breaker | Limit, other: Breaker | Limit) -> str:
    """Name the settings in which two breakers or limits differ, with both values."""
    pairs = [(each.name, getattr(one, each.name), getattr(other, each.name)) for each in fields(one)]
    return ", ".join(
        f"{name} {_named(mine)} and {_named(theirs)}" for name, mine, theirs in pairs if mine != theirs
    )


def _named(value: object) -> str:
    return str(getattr(value, "__qualname__", value))


def _check_sinks(name: str, sinks: tuple[Sink, ...]) -> None:
    field = f"Pipeline({name}).sinks"
    seen: set[str] = set()
    for sink in sinks:
        if not callable(getattr(sink, "deliver", None)) or not isinstance(getattr(sink, "name", None), str):
            raise ConfigurationError(
                field=field,
                value=sink,
                rule="must hold objects with a name and a function deliver",
                fix='sinks=[Files("dead-letters")].',
            )
        check_name(f"{field}.name", sink.name)
        if sink.name in seen or sink.name == HOOK:
            raise ConfigurationError(
                field=field,
                value=sink.name,
                rule=f"must have distinct printable names, none of them {HOOK!r}",
                fix='Give one of them another: Files("elsewhere", name="elsewhere").',
            )
        seen.add(sink.name)
