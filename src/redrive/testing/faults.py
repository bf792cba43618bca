# SPDX-License-Identifier: Apache-2.0
"""Injected faults: a pipeline whose stages fail, crash or run slowly as a test configures.

A fault wraps only the function of a stage, so the same pipeline works in `run_inline` and in a real worker, with its own policies,
types and names. Outside a job (a stage called as a plain function) no fault fires.
"""

from __future__ import annotations

import copy
import functools
import os
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Final, Literal, Self, cast

from redrive.core.arguments import seconds as in_seconds
from redrive.core.arguments import whole
from redrive.core.verdict import Verdict
from redrive.engine.pipeline.context import Context
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.pipeline.stage import Stage
from redrive.engine.runtime import CURRENT
from redrive.engine.worker.job_logging import CURRENT_CALL, CURRENT_JOB
from redrive.errors import AttemptTimeoutError, ConfigurationError

FaultKind = Literal["fail", "crash", "slow"]

EXIT_CODE: Final = 70
"""The exit code of a process with an injected crash."""
INLINE: Final[ContextVar[bool]] = ContextVar("redrive_inline", default=False)
"""True inside `run_inline`, where a crash must leave the test alive."""


class Crash(BaseException):
    """A crash in `run_inline`; not an `Exception`, so that no stage handles it as one."""


class InjectedError(Exception):
    """The exception of an injected failure. `rules.redrive` reads its verdict."""

    def __init__(self, message: str, verdict: Verdict) -> None:
        self.message = message
        self.verdict = verdict
        super().__init__(message, verdict)

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fault:
    kind: FaultKind
    stage: str
    place: int = 0
    attempts: Container[int] | None = None
    seconds: float = 0.0
    verdict: Verdict | None = None
    message: str = ""


class _Memory:
    """Which faults have fired, by their place in the list.

    `claim` returns whether a fault has not fired for a run before, and is true only for the first caller.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._claimed: set[tuple[int, str]] = set()
        self._counted: Counter[int] = Counter()

    def claim(self, place: int, run: str) -> bool:
        with self._lock:
            is_new = (place, run) not in self._claimed
            self._claimed.add((place, run))
        return is_new

    def add(self, place: int) -> None:
        with self._lock:
            self._counted[place] += 1

    def count(self, place: int) -> int:
        return self._counted[place]


class _Folder:
    """The same for processes that may die: a file per claim, made by the first process, and a byte per firing."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder

    def claim(self, place: int, run: str) -> bool:
        try:
            (self._folder / f"{place}-{run}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def add(self, place: int) -> None:
        with (self._folder / f"{place}.fired").open("ab") as file:
            file.write(b".")

    def count(self, place: int) -> int:
        file = self._folder / f"{place}.fired"
        return file.stat().st_size if file.exists() else 0


class Faults:
    """A list of faults for the stages of a pipeline, and how often each has fired.

    With `attempts`, a fault fires once for each of these attempt numbers of a job, although a hold or a crash repeats the number;
    without, it fires on every run. In one run, slowness comes first, then crashes, then failures.

    A process that crashes forgets which faults have fired. For a real worker that is started again, `marks` is an empty folder
    that records it for all its processes.
    """

    def __init__(self, *, marks: str | os.PathLike[str] | None = None) -> None:
        self._faults: list[_Fault] = []
        self._marks = _Memory() if marks is None else _Folder(Path(marks))

    def fail(
        self,
        stage: str,
        *,
        code: str,
        attempts: Iterable[int] | None = None,
        http_status: int | None = None,
        retry_after: timedelta | float | None = None,
        message: str = "",
    ) -> Self:
        """Raise an error that is classified as this canonical code, before the function of the stage is called."""
        if http_status is not None:
            whole("Faults.fail(http_status)", http_status, minimum=100, fix="503, for example.")
        delay = None if retry_after is None else in_seconds("Faults.fail(retry_after)", retry_after)
        verdict = Verdict.of(code, http_status=http_status, retry_after=delay)
        text = message or f"{code}, injected by a test"
        return self._add(_Fault(kind="fail", stage=stage, verdict=verdict, message=text), attempts)

    def crash(self, stage: str, *, attempts: Iterable[int] | None = None) -> Self:
        """End the process before the function of the stage is called, by `os._exit`; `run_inline` only simulates that."""
        return self._add(_Fault(kind="crash", stage=stage), attempts)

    def slow(self, stage: str, *, seconds: timedelta | float, attempts: Iterable[int] | None = None) -> Self:
        """Wait on the clock of the runtime, which is virtual in tests, before the function of the stage is called."""
        delay = in_seconds("Faults.slow(seconds)", seconds)
        return self._add(_Fault(kind="slow", stage=stage, seconds=delay), attempts)

    def on(self, pipeline: Pipeline) -> Pipeline:
        """Return a copy of the pipeline with these faults.

        A stage with `process=True` runs in the worker's own process here, because another process would import it without faults.

        Raises:
            ConfigurationError: a fault is for a stage that the pipeline does not have.
        """
        names = [stage.name for stage in pipeline.stages]
        for fault in self._faults:
            if fault.stage not in names:
                raise ConfigurationError(
                    field=f"Faults.{fault.kind}",
                    value=fault.stage,
                    rule=f"must name a stage of pipeline {pipeline.name}",
                    fix=f"Its stages: {', '.join(names)}.",
                )
        faulty = {fault.stage for fault in self._faults}
        # A copy, so that it has everything else of the pipeline, too.
        wrapped = copy.copy(pipeline)
        stages = tuple(self._wrap(each) if each.name in faulty else each for each in pipeline.stages)
        object.__setattr__(wrapped, "stages", stages)
        return wrapped

    def fired(self, stage: str, kind: FaultKind | None = None) -> int:
        """Return how often the faults of a stage have fired, or those of one kind; raises ConfigurationError if it has none."""
        own = [fault for fault in self._faults if fault.stage == stage and kind in {None, fault.kind}]
        if not own:
            known = ", ".join(f"{fault.kind} {fault.stage}" for fault in self._faults) or "none"
            raise ConfigurationError(
                field="Faults.fired",
                value=stage if kind is None else f"{kind} {stage}",
                rule="must name a stage that has such a fault",
                fix=f"There are: {known}.",
            )
        return sum(self._marks.count(fault.place) for fault in own)

    def _add(self, fault: _Fault, attempts: Iterable[int] | None) -> Self:
        numbers = None if attempts is None else _numbers(f"Faults.{fault.kind}(attempts)", attempts)
        self._faults.append(replace(fault, place=len(self._faults), attempts=numbers))
        return self

    def _wrap(self, stage: Stage[..., object]) -> Stage[..., object]:
        @functools.wraps(stage.fn)
        def wrapped(*args: object, **kwargs: object) -> object:
            if wait := self._delay(stage):
                CURRENT.get().clock.sleep(wait)
            call, failed = self._call_left(stage, args, kwargs)
            return _merged(failed, [] if call is None else call())

        @functools.wraps(stage.fn)
        async def awrapped(*args: object, **kwargs: object) -> object:
            if wait := self._delay(stage):
                await CURRENT.get().clock.asleep(wait)
                if stage.timeout is not None and wait > stage.timeout:
                    # Only a virtual clock gets here: on a real one the timeout has ended the wait.
                    raise AttemptTimeoutError(timeout=stage.timeout)
            call, failed = self._call_left(stage, args, kwargs)
            return _merged(failed, [] if call is None else await cast("Awaitable[object]", call()))

        made: Callable[..., object] = awrapped if stage.is_async else wrapped
        return replace(stage, fn=made, is_process=False)

    def _delay(self, stage: Stage[..., object]) -> float:
        """Return how long a call is delayed; that of a batch, as long as any of its jobs is."""
        slow = [fault for fault in self._faults if fault.kind == "slow"]
        contexts = (CURRENT_JOB.get(),) if stage.batch is None else CURRENT_CALL.get()
        delays = (
            sum(fault.seconds for fault in slow if self._fires(fault, stage.name, context))
            for context in contexts
        )
        return max(delays, default=0.0)

    def _call_left(
        self, stage: Stage[..., object], args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[Callable[[], object] | None, Mapping[int, InjectedError]]:
        """Fire; return the call that is left, if any. Jobs of a batch fail alone: they are returned by place, with how."""
        if stage.batch is None:
            self._fire(stage.name, CURRENT_JOB.get())
            return functools.partial(stage.fn, *args, **kwargs), {}
        failed: dict[int, InjectedError] = {}
        for place, context in enumerate(CURRENT_CALL.get()):
            try:
                self._fire(stage.name, context)
            except InjectedError as error:
                failed[place] = error

        def kept(of: object) -> list[object]:
            return [each for place, each in enumerate(cast("list[object]", of)) if place not in failed]

        rest = kept(args[0])
        if stage.context_name is not None:
            kwargs = {**kwargs, stage.context_name: kept(kwargs[stage.context_name])}
        return functools.partial(stage.fn, rest, **kwargs) if rest else None, failed

    def _fire(self, stage: str, context: Context | None) -> None:
        """End the process or raise, for the first fault that is due; crashes come before failures."""
        for fault in sorted(self._faults, key=lambda each: each.kind != "crash"):
            if fault.kind == "slow" or not self._fires(fault, stage, context):
                continue
            if fault.verdict is None and not INLINE.get():
                os._exit(EXIT_CODE)
            if fault.verdict is None:
                raise Crash
            raise InjectedError(fault.message, fault.verdict)

    def _fires(self, fault: _Fault, stage: str, context: Context | None) -> bool:
        """Return whether a fault is due in the run of this context, and if so, count it."""
        if context is None or fault.stage != stage:
            return False
        if fault.attempts is not None:
            run = f"{context.job_id}-{context.round}-{context.attempt}"
            if context.attempt not in fault.attempts or not self._marks.claim(fault.place, run):
                return False
        self._marks.add(fault.place)
        return True


def _merged(failed: Mapping[int, InjectedError], results: object) -> object:
    """Return the results of a batch function with the failures in their places; anything but a list stays what it is."""
    if not isinstance(results, list | tuple) or not failed:
        return results  # pyright: ignore[reportUnknownVariableType] - passed on.
    merged = list(cast("Iterable[object]", results))
    for place, error in sorted(failed.items()):
        merged.insert(place, error)
    return merged


def _numbers(field: str, attempts: Iterable[int]) -> Container[int]:
    """Check attempt numbers; a range is not expanded, however long it is."""
    numbers = attempts if isinstance(attempts, range) else _listed(attempts)
    looked_at = (*numbers[:1], *numbers[-1:]) if isinstance(numbers, range) else numbers
    if looked_at and all(type(each) is int and each >= 1 for each in looked_at):
        return numbers
    raise ConfigurationError(
        field=field,
        value=attempts,
        rule="must contain attempt numbers, which count from 1",
        fix="[1], or range(1, 3) for the first two; leave it out for every run.",
    )


def _listed(attempts: object) -> tuple[int, ...]:
    return tuple(cast("Iterable[int]", attempts)) if isinstance(attempts, Iterable) else ()
