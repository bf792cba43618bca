# SPDX-License-Identifier: Apache-2.0
"""What the attempts add up to: how many retries jobs needed, which errors are frequent, how reliable stages are, where jobs are.

Each report is about everything, one pipeline, one stage of it, or one run; all of it is asked of the store when it is wanted, and
attempts that were pruned are not in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, cast

from redrive.core.taxonomy import CODES
from redrive.engine.clock import instant
from redrive.engine.replay.filter import LetterFilter
from redrive.errors import ConfigurationError, RunError
from redrive.ops.letters.pages import list_letters
from redrive.ops.suggest import LAST_ID, unknown
from redrive.store.protocol import Row, Store

MANY: Final = 3
"""From so many retries on, jobs are counted together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What a report is about; what is left out does not matter. A run belongs to one pipeline, which need not be named."""

    pipeline: str | None = None
    stage: str | None = None
    run: int | None = None

    def __str__(self) -> str:
        """Say it in words."""
        named = {"run": self.run, "pipeline": self.pipeline, "stage": self.stage}
        parts = [f"{kind} {name}" for kind, name in named.items() if name is not None]
        return ", ".join(parts) or "all pipelines"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """How many jobs needed so many retries."""

    retries: str
    """0, 1, 2, or `3+`."""
    jobs: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorReport:
    """One error code, and how often it came."""

    code: str
    category: str | None
    """Of a code of an application's own, the one of its latest dead letter; None while there is none."""
    failures: int
    jobs: int
    """How many jobs had it."""
    share: float
    """Of all failures."""
    last_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StageReport:
    """One stage, and what its attempts came to."""

    pipeline: str
    stage: str
    attempts: int
    ok: int
    retry: int
    hold: int
    dead: int
    crashed: int
    cancelled: int
    success: float
    """The share of attempts that were good, of those that ended by themselves."""
    seconds: float
    """An attempt takes so long on average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Where the jobs of a run or a pipeline are; every one is in one place."""

    subject: str
    total: int
    succeeded: int
    dead: int
    cancelled: int
    queued: int
    processing: int
    pruned: int
    """Ended, and deleted since; not part of the total."""
    items: int | None
    """How many items the source of a run has given so far; None for a pipeline."""

    @property
    def open(self) -> int:
        """How many have not ended."""
        return self.queued + self.processing

    @property
    def difference(self) -> int:
        """How many jobs are missing in the parts, or too many; 0 when all adds up."""
        return self.total - (self.succeeded + self.dead + self.cancelled + self.open)

    @property
    def adds_up(self) -> bool:
        """Whether total = succeeded + dead + cancelled + open."""
        return self.difference == 0


def retry_histogram(store: Store, scope: Scope) -> list[Bucket]:
    """Count jobs by how many retries they needed: 0, 1, 2, and 3 or more."""
    rows = cast("list[tuple[int, int]]", _asked(store, "retry_histogram", scope))
    counts = [0] * (MANY + 1)
    for retries, jobs in rows:
        counts[min(retries, MANY)] += jobs
    total = sum(counts)
    names = [*map(str, range(MANY)), f"{MANY}+"]
    return [
        Bucket(retries=name, jobs=jobs, share=jobs / total if total else 0.0)
        for name, jobs in zip(names, counts, strict=True)
    ]


def error_ranking(store: Store, scope: Scope) -> list[ErrorReport]:
    """Return the error codes of failed attempts, the most frequent first."""
    rows = cast("list[tuple[str, int, int, float]]", _asked(store, "error_ranking", scope))
    total = sum(failures for _, failures, _, _ in rows)
    return [
        ErrorReport(
            code=code,
            category=_category_of(store, scope, code),
            failures=failures,
            jobs=jobs,
            share=failures / total,
            last_at=instant(last_at),
        )
        for code, failures, jobs, last_at in rows
    ]


def _category_of(store: Store, scope: Scope, code: str) -> str | None:
    if code in CODES:
        return CODES[code].category.value
    # Attempts keep the code alone; what an application takes its own one for is known from what failed with it for good.
    pipeline = scope.pipeline if scope.run is None else str(store.query("run", scope.run)[0][1])
    which = LetterFilter(pipeline=pipeline, stage=scope.stage, code=code)
    found = list_letters(store, which, limit=1).letters
    return found[0].category if found else None


def stage_reliability(store: Store, scope: Scope) -> list[StageReport]:
    """Return what the attempts of each stage came to, in the order of the stages."""
    rows = _asked(store, "stage_reliability", scope, takes_stage=False)
    told = [_reliability_of(row) for row in rows]
    return [one for one in told if scope.stage in {None, one.stage}]


def account(store: Store, scope: Scope) -> Account:
    """Account for the jobs of a run, or else of a pipeline: each is counted where it is, and all of them once more."""
    if scope.run is None and scope.pipeline is None:
        raise ConfigurationError(
            field="account",
            value=str(scope),
            rule="is about a run or a pipeline",
            fix="Name one: --run or --pipeline; from a program run= or pipeline=.",
        )
    check_scope(store, scope)
    items: int | None = None
    if scope.run is None:
        rows = store.query("pipeline_account", scope.pipeline)
        total = cast("int", store.query("pipeline_total", scope.pipeline)[0][0])
    else:
        rows = store.query("run_account", scope.run)
        items, total = cast("tuple[int, int]", store.query("run_total", scope.run)[0])
    counts = {str(status): cast("int", jobs) for status, jobs, _ in rows}
    return Account(
        subject=str(scope),
        total=total,
        succeeded=counts.get("complete", 0),
        dead=counts.get("failed", 0),
        cancelled=counts.get("cancelled", 0),
        queued=counts.get("queued", 0),
        processing=counts.get("processing", 0),
        pruned=sum(cast("int", pruned) for _, _, pruned in rows),
        items=items,
    )


def check_scope(store: Store, scope: Scope) -> None:
    """Refuse a pipeline, a stage or a run that is not known here."""
    lanes = [(str(pipeline), str(stage)) for _, pipeline, stage, *_ in store.query("lanes")]
    if scope.pipeline is not None and scope.pipeline not in {pipeline for pipeline, _ in lanes}:
        known = {pipeline for pipeline, _ in lanes}
        raise unknown(scope.pipeline, known, kind="pipeline", otherwise="There is no job in this database.")
    stages = {stage for pipeline, stage in lanes if scope.pipeline in {None, pipeline}}
    if scope.stage is not None and scope.stage not in stages:
        raise unknown(scope.stage, stages, kind="stage", otherwise="There is no job in this database.")
    if scope.run is not None:
        _check_run(store, scope)


def _check_run(store: Store, scope: Scope) -> None:
    run = cast("int", scope.run)
    rows = store.query("run", run) if 0 <= run < LAST_ID else []
    if not rows:
        last = [str(row[0]) for row in store.query("runs", 5)]
        fix = f"The last ones are: {', '.join(last)}." if last else "There is no run in this database."
        raise RunError(run=run, problem="is not known here", fix=fix)
    if scope.pipeline not in {None, rows[0][1]}:
        raise RunError(
            run=run,
            problem=f"belongs to pipeline {rows[0][1]!r}, not to {scope.pipeline!r}",
            fix="Leave the pipeline out.",
        )


def _asked(store: Store, name: str, scope: Scope, *, takes_stage: bool = True) -> Sequence[Row]:
    check_scope(store, scope)
    stage = (scope.stage,) if takes_stage else ()
    if scope.run is not None:
        return store.query(f"{name}_of_run", scope.run, *stage)
    return store.query(name, scope.pipeline, *stage)


def _reliability_of(row: Row) -> StageReport:
    stage, attempts, ok, retry, hold, dead, crashed, seconds, pipeline = cast(
        "tuple[str, int, int, int, int, int, int, float, str]", row
    )
    ended = ok + retry + dead
    return StageReport(
        pipeline=pipeline,
        stage=stage,
        attempts=attempts,
        ok=ok,
        retry=retry,
        hold=hold,
        dead=dead,
        crashed=crashed,
        cancelled=attempts - ended - hold - crashed,
        success=ok / ended if ended else 0.0,
        seconds=seconds,
    )
