# SPDX-License-Identifier: Apache-2.0
"""Reports: how many retries jobs needed, which errors are frequent, how reliable stages are, and the account of jobs.

Each covers everything, one pipeline, one stage, or one run. They are computed when they are requested; pruned attempts are not in
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

from redrive.core.taxonomy import CODES
from redrive.core.units import instant
from redrive.engine.replay.filter import LetterFilter
from redrive.errors import ConfigurationError, RunError
from redrive.ops.letters.pages import list_letters
from redrive.ops.suggest import LAST_ID, unknown
from redrive.store.protocol import Store
from redrive.store.reader import Reader
from redrive.store.statements import reports as report_sql
from redrive.store.statements import runs as run_sql
from redrive.store.statements import workers as worker_sql
from redrive.store.statements.reports import StageReport
from redrive.store.statements.statement import Statement

R = TypeVar("R")
MANY: Final = 3
"""Jobs with this many retries or more are counted together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What a report covers; None covers all. A run implies its pipeline."""

    pipeline: str | None = None
    stage: str | None = None
    run: int | None = None

    def __str__(self) -> str:
        """Return the scope as text."""
        named = {"run": self.run, "pipeline": self.pipeline, "stage": self.stage}
        parts = [f"{kind} {name}" for kind, name in named.items() if name is not None]
        return ", ".join(parts) or "all pipelines"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """The jobs that needed this many retries."""

    retries: str
    """0, 1, 2, or `3+`."""
    jobs: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorReport:
    """One error code and its frequency."""

    code: str
    category: str | None
    """For an application's own code, the category of its latest dead letter; None if there is none."""
    failures: int
    jobs: int
    """Jobs that failed with it at least once."""
    share: float
    """Its share of all failures."""
    last_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The jobs of a run or a pipeline by state; every job is counted once."""

    subject: str
    total: int
    succeeded: int
    dead: int
    cancelled: int
    skipped: int
    queued: int
    processing: int
    pruned: int
    """Jobs that ended and were deleted since; not in the total."""
    items: int | None
    """Items read from the source of a run so far; None for a pipeline."""

    @property
    def open(self) -> int:
        """How many have not ended."""
        return self.queued + self.processing

    @property
    def difference(self) -> int:
        """The total minus the sum of the parts; 0 when the account adds up."""
        return self.total - (self.succeeded + self.dead + self.cancelled + self.skipped + self.open)

    @property
    def adds_up(self) -> bool:
        """Whether total = succeeded + dead + cancelled + skipped + open."""
        return self.difference == 0


def retry_histogram(store: Reader, scope: Scope) -> list[Bucket]:
    """Count jobs by how many retries they needed: 0, 1, 2, and 3 or more."""
    counts = [0] * (MANY + 1)
    rows = _within(store, scope, report_sql.retry_histogram, report_sql.retry_histogram_of_run)
    for retries, jobs in rows:
        counts[min(retries, MANY)] += jobs
    total = sum(counts)
    names = [*map(str, range(MANY)), f"{MANY}+"]
    return [
        Bucket(retries=name, jobs=jobs, share=jobs / total if total else 0.0)
        for name, jobs in zip(names, counts, strict=True)
    ]


def error_ranking(store: Reader, scope: Scope) -> list[ErrorReport]:
    """Return the error codes of failed attempts, the most frequent first."""
    rows = _within(store, scope, report_sql.error_ranking, report_sql.error_ranking_of_run)
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


def _within(store: Reader, scope: Scope, everywhere: Statement[..., R], of_run: Statement[..., R]) -> list[R]:
    """Return the rows of a report for its scope, by one of two statements."""
    check_scope(store, scope)
    if scope.run is None:
        return store.query(everywhere(pipeline=scope.pipeline, stage=scope.stage))
    return store.query(of_run(run=scope.run, stage=scope.stage))


def _category_of(store: Reader, scope: Scope, code: str) -> str | None:
    if code in CODES:
        return CODES[code].category.value
    # Attempts store only the code; the category of an application's own code is stored with its dead letters.
    pipeline = scope.pipeline if scope.run is None else store.query(run_sql.run(run=scope.run))[0].pipeline
    which = LetterFilter(pipeline=pipeline, stage=scope.stage, code=code)
    found = list_letters(store, which, limit=1).letters
    return found[0].category if found else None


def stage_reliability(store: Reader, scope: Scope) -> list[StageReport]:
    """Return the outcomes of each stage's attempts, in the order of the stages."""
    check_scope(store, scope)
    if scope.run is None:
        found = store.query(report_sql.stage_reliability(pipeline=scope.pipeline))
    else:
        found = store.query(report_sql.stage_reliability_of_run(run=scope.run))
    return [one for one in found if scope.stage in {None, one.stage}]


def account(store: Store, scope: Scope) -> Account:
    """Count the jobs of a run, or else of a pipeline, by state, and independently in total; at one moment, so that both agree."""
    items: int | None = None
    with store.reading() as moment:
        check_scope(moment, scope)
        if scope.run is not None:
            rows = moment.query(report_sql.run_account(run=scope.run))
            items, total = moment.query(report_sql.run_total(run=scope.run))[0]
        elif scope.pipeline is not None:
            rows = moment.query(report_sql.pipeline_account(pipeline=scope.pipeline))
            (total,) = moment.query(report_sql.pipeline_total(pipeline=scope.pipeline))
        else:
            raise ConfigurationError(
                field="account",
                value=str(scope),
                rule="needs a run or a pipeline",
                fix="Give --run or --pipeline; in a program, run= or pipeline=.",
            )
    counts = {row.status: row.jobs for row in rows}
    return Account(
        subject=str(scope),
        total=total,
        succeeded=counts.get("complete", 0),
        dead=counts.get("failed", 0),
        cancelled=counts.get("cancelled", 0),
        skipped=counts.get("skipped", 0),
        queued=counts.get("queued", 0),
        processing=counts.get("processing", 0),
        pruned=sum(row.pruned for row in rows),
        items=items,
    )


def check_scope(store: Reader, scope: Scope) -> None:
    """Refuse a pipeline, a stage or a run that this database does not have."""
    lanes = store.query(worker_sql.lane_names())
    known = {pipeline for pipeline, _ in lanes}
    if scope.pipeline is not None and scope.pipeline not in known:
        raise unknown(scope.pipeline, known, kind="pipeline", otherwise="There is no job in this database.")
    stages = {stage for pipeline, stage in lanes if scope.pipeline in {None, pipeline}}
    if scope.stage is not None and scope.stage not in stages:
        raise unknown(scope.stage, stages, kind="stage", otherwise="There is no job in this database.")
    if scope.run is not None:
        _check_run(store, scope, scope.run)


def _check_run(store: Reader, scope: Scope, run: int) -> None:
    rows = store.query(run_sql.run(run=run)) if 0 <= run < LAST_ID else []
    if not rows:
        last = [str(each) for each in store.query(run_sql.runs(limit=5))]
        fix = f"The last ones are: {', '.join(last)}." if last else "There is no run in this database."
        raise RunError(run=run, problem="is not known here", fix=fix)
    if scope.pipeline not in {None, rows[0].pipeline}:
        raise RunError(
            run=run,
            problem=f"belongs to pipeline {rows[0].pipeline!r}, not to {scope.pipeline!r}",
            fix="Leave the pipeline out.",
        )
