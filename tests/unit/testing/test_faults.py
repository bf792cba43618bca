# SPDX-License-Identifier: Apache-2.0
"""`Faults`: stages that fail, crash and dawdle as told, inline and in a real worker, and the count of it."""

from __future__ import annotations

import asyncio
import copy
import itertools
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from redrive import Backoff, Batch, Context, Jitter, Pipeline, RetryPolicy, connect, stage
from redrive.core.taxonomy import CODES
from redrive.engine.pipeline.stage import Stage
from redrive.engine.worker.worker import Worker
from redrive.errors import ConfigurationError
from redrive.store.sqlite.store import SqliteStore
from redrive.store.statements import jobs as job_sql
from redrive.testing import Faults, InlineResult, arun_inline, run_inline, virtual_time
from redrive.testing.faults import EXIT_CODE, InjectedError, _Folder, _Memory
from tests.inline import inline_parts
from tests.tidy.tree import ROOT

STEADY = RetryPolicy(4, Backoff.exponential(1, jitter=Jitter.none()))


def run_async(*args: object, **kwargs: object) -> InlineResult:
    return asyncio.run(arun_inline(*args, **kwargs))  # type: ignore[arg-type]


both = pytest.mark.parametrize("run", [run_inline, run_async], ids=["sync", "async"])
Run = Callable[..., InlineResult]


@stage(retry=STEADY, timeout=10)
def fetch(number: int) -> int:
    return number + 1


@stage(retry=STEADY, timeout=10)
async def review(number: int) -> int:
    return number * 10


flow = Pipeline("flow", [fetch, review])
either = pytest.mark.parametrize("name", ["fetch", "review"])


@pytest.mark.untraced
@pytest.mark.parametrize("code", list(CODES))
def test_any_canonical_code_can_be_injected(code: str) -> None:
    result = run_inline(flow, 1, faults=Faults().fail("fetch", code=code, attempts=[1]))

    assert result.attempts[0].code == code
    assert result.status == ("complete" if CODES[code].retryable == "yes" else "failed")


@both
@either
def test_what_the_dependency_tells_comes_with_the_failure(run: Run, name: str) -> None:
    faults = Faults().fail(
        name, code="RATE_LIMITED", attempts=[1], http_status=429, retry_after=25, message="slow down"
    )

    result = run(flow, 1, faults=faults)

    (failed,) = [each for each in result.attempts if each.outcome != "ok"]
    assert (failed.stage, failed.waited, failed.reason, failed.message) == (
        name,
        25,
        "retry_after",
        "slow down",
    )
    assert (result.value, faults.fired(name)) == (20, 1)


@both
@either
def test_a_crash_repeats_the_attempt_unburned(run: Run, name: str) -> None:
    faults = Faults().crash(name, attempts=[1])

    result = run(flow, 1, faults=faults)

    crashed, again = [each for each in result.attempts if each.stage == name]
    assert (crashed.attempt, crashed.outcome, crashed.burned) == (1, "crashed", False)
    assert (again.attempt, again.outcome) == (1, "ok")
    assert (result.value, faults.fired(name, "crash")) == (20, 1)


@both
@either
def test_a_job_that_crashes_whatever_runs_it_is_given_up_as_poison(run: Run, name: str) -> None:
    faults = Faults().crash(name)

    result = run(flow, 1, faults=faults)

    assert (result.status, result.attempts[-1].code) == ("failed", "WORKER_CRASH")
    # Twice in the company of others, then alone until the pipeline's crash_max.
    assert faults.fired(name) == 2 + flow.crash_max


@both
def test_an_async_stage_that_is_too_slow_times_out(run: Run) -> None:
    faults = Faults().slow("review", seconds=30, attempts=[1])

    result = run(flow, 1, faults=faults)

    assert [(each.outcome, each.code) for each in result.attempts[1:]] == [("retry", "TIMEOUT"), ("ok", None)]
    assert result.value == 20


@both
def test_a_sync_stage_that_is_too_slow_and_then_fails_has_timed_out(run: Run) -> None:
    faults = Faults().slow("fetch", seconds=30, attempts=[1]).fail("fetch", code="AUTH_DENIED", attempts=[1])

    result = run(flow, 1, faults=faults)

    assert [each.code for each in result.attempts] == ["TIMEOUT", None, None]
    assert (faults.fired("fetch"), faults.fired("fetch", "slow"), faults.fired("fetch", "fail")) == (2, 1, 1)


def test_a_stage_that_is_slow_within_its_timeout_is_only_slow() -> None:
    with virtual_time() as clock:
        result = run_inline(flow, 1, faults=Faults().slow("fetch", seconds=4).slow("review", seconds=5))

    assert (result.status, clock.waits, result.elapsed) == ("complete", [4, 5], 9)


def test_several_faults_of_a_stage_come_one_after_the_other() -> None:
    faults = (
        Faults()
        .fail("fetch", code="NETWORK_RESET", attempts=range(1, 3))
        .fail("fetch", code="RATE_LIMITED", attempts=[3])
        .crash("fetch", attempts=[1, 2])
    )

    result = run_inline(flow, 1, faults=faults)

    assert [(each.attempt, each.code or each.outcome) for each in result.attempts] == [
        (1, "crashed"),
        (1, "NETWORK_RESET"),
        (2, "crashed"),
        (2, "NETWORK_RESET"),
        (3, "RATE_LIMITED"),
        (4, "ok"),
        (1, "ok"),
    ]
    assert (faults.fired("fetch"), faults.fired("fetch", "fail"), faults.fired("fetch", "crash")) == (5, 3, 2)


def test_the_pipeline_keeps_its_names_types_and_policies_and_the_original_its_peace() -> None:
    told: list[object] = []

    @stage(process=True, retry=STEADY, version="7")
    def compute(number: int) -> int:
        return number

    pipeline = Pipeline("flow", [fetch, compute], on_dead=told.append, crash_max=5)
    faulty = Faults().fail("compute", code="AUTH_DENIED").on(pipeline)

    assert (faulty.name, faulty.hooks, faulty.crash_max) == (pipeline.name, pipeline.hooks, 5)
    assert faulty.stages[0] is fetch
    one, other = faulty.stages[1], pipeline.stages[1]
    for field in ("name", "retry", "timeout", "version", "config", "input", "output", "resources"):
        assert getattr(one, field) == getattr(other, field)
    assert not one.is_process
    assert one.fn.__name__ == "compute"
    assert run_inline(pipeline, 1).status == "complete"
    assert run_inline(faulty, 1).status == "failed"
    assert len(told) == 1


def test_a_stage_called_as_a_plain_function_has_no_faults() -> None:
    faulty = Faults().fail("fetch", code="AUTH_DENIED").crash("review").on(flow)

    assert faulty.stages[0](1) == 2
    assert asyncio.run(faulty.stages[1](2)) == 20  # type: ignore[arg-type]


def test_the_count_is_per_job_and_attempt_in_a_real_worker_too() -> None:
    faults = Faults().fail("review", code="NETWORK_RESET", attempts=[1, 2]).slow("fetch", seconds=3)
    store = SqliteStore(":memory:")
    names = (f"w{n}" for n in itertools.count(1))

    async def scene() -> None:
        await Worker(store, [faults.on(flow)], inline_parts(), names=names).run(until_idle=True)

    with virtual_time():
        from redrive import Redrive

        Redrive(store).submit_many(flow, range(5))
        asyncio.run(scene())

    assert store.query(job_sql.counts()) == [("flow", "review", "complete", 5)]
    assert (faults.fired("review"), faults.fired("fetch")) == (10, 5)
    store.close()


WORKER = """
import sys
import redrive
from redrive import Pipeline, stage
from redrive.testing import Faults

@stage
def notify(number: int) -> int:
    return number

faults = Faults(marks=sys.argv[2]).crash("notify", attempts=[1])
with redrive.connect(sys.argv[1]) as rd:
    rd.work([faults.on(Pipeline("flow", [notify]))], until_idle=True, lease=0.5)
"""


def test_a_crash_ends_a_real_worker_and_the_next_one_remembers_it(tmp_path: Path) -> None:
    database, marks, script = tmp_path / "jobs.db", tmp_path / "marks", tmp_path / "worker.py"
    script.write_text(WORKER, encoding="utf-8")
    plain = Pipeline("flow", [stage(name="notify")(lambda number: number)])  # type: ignore[misc]  # a stage without types
    with connect(database) as rd:
        job = rd.submit(plain, 1)

        ends = [
            subprocess.run(
                [sys.executable, script, database, marks], cwd=ROOT, timeout=60, check=False
            ).returncode
            for _ in range(2)
        ]

        assert ends == [EXIT_CODE, 0]
        assert [each.outcome for each in job.attempts()] == ["crashed", "ok"]
    faults = Faults(marks=marks).crash("notify", attempts=[1])
    assert faults.fired("notify") == 1


@pytest.mark.parametrize("where", ["memory", "folder"])
def test_marks_are_claimed_once_and_counted(where: str, tmp_path: Path) -> None:
    marks = _Memory() if where == "memory" else _Folder(tmp_path / "new" / "folder")

    assert [marks.claim(0, "1-1-1"), marks.claim(0, "1-1-1"), marks.claim(1, "1-1-1")] == [True, False, True]
    assert marks.count(0) == 0
    marks.add(0)
    marks.add(0)
    assert (marks.count(0), marks.count(1)) == (2, 0)


def test_a_fault_for_a_stage_that_does_not_exist_names_those_that_do() -> None:
    with pytest.raises(ConfigurationError, match=r"reviiew.*Its stages: fetch, review\."):
        run_inline(flow, 1, faults=Faults().crash("reviiew"))


def test_a_code_that_does_not_exist_names_those_that_do() -> None:
    with pytest.raises(ConfigurationError, match="RATE_LIMITED"):
        Faults().fail("review", code="RATE_LIMITS")


@pytest.mark.parametrize("attempts", [[], [0], [True], ["1"], range(3), range(0), 1])
def test_attempts_are_numbers_from_one(attempts: list[int]) -> None:
    with pytest.raises(ConfigurationError, match="count from 1"):
        Faults().crash("fetch", attempts=attempts)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Faults().slow("fetch", seconds=-1),
        lambda: Faults().fail("fetch", code="RATE_LIMITED", retry_after=-1),
        lambda: Faults().fail("fetch", code="RATE_LIMITED", http_status=20),
        lambda: Faults().fired("fetch"),
        lambda: Faults().crash("fetch").fired("fetch", "fail"),
    ],
)
def test_nonsense_is_refused_by_name(build: Callable[[], object]) -> None:
    with pytest.raises(ConfigurationError, match=r"Faults\."):
        build()


def test_an_injected_error_survives_copying_and_pickling() -> None:
    faults = Faults().fail("fetch", code="AUTH_DENIED", message="denied")
    error = run_inline(flow, 1, faults=faults).error
    assert isinstance(error, InjectedError)

    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (str(twin), twin.verdict) == ("denied", error.verdict)


def test_a_fault_sees_the_attempt_the_stage_sees() -> None:
    seen: list[int] = []

    @stage(retry=STEADY)
    def call(number: int, ctx: Context) -> int:
        seen.append(ctx.attempt)
        return number

    run_inline(Pipeline("flow", [call]), 1, faults=Faults().fail("call", code="TIMEOUT", attempts=[1, 2]))

    assert seen == [3]


@stage(retry=STEADY, batch=Batch(size=4), timeout=10, name="embed")
def embed(numbers: list[int], contexts: list[Context]) -> list[int]:
    for number, ctx in zip(numbers, contexts, strict=True):
        ctx.note("number", number)
    return [number * 10 for number in numbers]


@stage(retry=STEADY, batch=Batch(size=4), timeout=10, name="embed")
async def aembed(numbers: list[int]) -> list[int]:
    return [number * 10 for number in numbers]


batches = pytest.mark.parametrize("made", [embed, aembed], ids=["sync stage", "async stage"])


@both
@batches
def test_a_batch_stage_runs_inline_as_a_batch_of_one_and_waits_in_virtual_time(
    run: Run, made: Stage[..., object]
) -> None:
    result = run(Pipeline("flow", [made]), 4)

    assert (result.status, result.value, result.elapsed) == ("complete", 40, 0.05)


@both
@batches
def test_faults_of_a_batch_stage_fire_for_its_job(run: Run, made: Stage[..., object]) -> None:
    faults = (
        Faults()
        .fail("embed", code="RATE_LIMITED", attempts=[1])
        .crash("embed", attempts=[1])
        .slow("embed", seconds=20, attempts=[2])
    )
    result = run(Pipeline("flow", [made]), 4, faults=faults)

    late = "retry" if made.is_async else "ok"
    assert [each.outcome for each in result.attempts][:3] == ["crashed", "retry", late]
    assert result.value == 40
    assert (faults.fired("embed", "fail"), faults.fired("embed", "crash")) == (1, 1)


@batches
def test_in_a_call_of_many_jobs_a_fault_takes_only_the_jobs_it_is_for(made: Stage[..., object]) -> None:
    faults = Faults().fail("embed", code="RATE_LIMITED", attempts=[1])
    pipeline = faults.on(Pipeline("flow", [made]))
    with virtual_time() as clock, connect(":memory:") as rd:
        first = [rd.submit(pipeline, number) for number in range(2)]
        store = cast("SqliteStore", rd.store)
        store._db.execute("UPDATE jobs SET attempt = 2 WHERE id = 2")

        async def work() -> None:
            worker = Worker(store, [pipeline], inline_parts(), names=(f"w{n}" for n in itertools.count()))
            await worker.run(until_idle=True)

        asyncio.run(work())
        assert [job.result() for job in first] == [0, 10]
        assert store.read("SELECT job_id, outcome FROM attempts ORDER BY job_id, dispatch") == [
            (1, "retry"),
            (1, "ok"),
            (2, "ok"),
        ]
        assert clock.waits


def test_a_batch_function_that_returns_no_list_stays_wrong_with_faults() -> None:
    @stage(batch=Batch(size=4), name="embed")
    def broken(numbers: list[int]) -> list[int]:
        return 7  # type: ignore[return-value]

    faults = Faults().fail("embed", code="RATE_LIMITED", attempts=[9])
    result = run_inline(Pipeline("flow", [broken]), 4, faults=faults)

    assert result.letter is not None
    assert result.letter.message == "stage embed returned int, not a list, for 1 inputs"
