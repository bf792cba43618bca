# SPDX-License-Identifier: Apache-2.0
"""One call for many jobs: each keeps its own outcome, attempt, retry, dead letter, notes and children."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from redrive import (
    Batch,
    Breaker,
    Cancel,
    Context,
    Fail,
    Finish,
    Pipeline,
    Redrive,
    Retry,
    RetryPolicy,
    Skip,
    Snooze,
    stage,
)
from redrive.engine.classifier import Classifier
from redrive.engine.worker.job_logging import jobs_in_log_records
from redrive.store.sqlite.store import SqliteStore
from redrive.store.statements import transfer as transfer_sql
from redrive.testing import VirtualClock
from tests.unit.build import ONCE, STEADY, attempts, jobs, letters, one_stage, work

Results = Callable[[list[int]], object]
both = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


def batched(
    function: Results, *, is_async: bool = False, batch: Batch | None = None, **options: Any
) -> Pipeline:
    """Build a pipeline of one batch stage."""

    def call(numbers: list[int]) -> list[object]:
        return function(numbers)  # type: ignore[return-value]

    async def acall(numbers: list[int]) -> list[object]:
        return function(numbers)  # type: ignore[return-value]

    return one_stage(acall if is_async else call, batch=batch or Batch(size=8), name="embed", **options)


@both
def test_one_call_serves_many_jobs_and_each_gets_its_own_result(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, is_async: bool
) -> None:
    calls: list[list[int]] = []

    def double(numbers: list[int]) -> list[int]:
        calls.append(numbers)
        return [2 * number for number in numbers]

    pipeline = batched(double, is_async=is_async)
    made = [rd.submit(pipeline, number) for number in range(20)]
    work(store, pipeline)

    assert calls == [[*range(8)], [*range(8, 16)], [*range(16, 20)]]
    assert [job.result() for job in made] == [2 * number for number in range(20)]
    assert attempts(store, "attempt, outcome") == [(1, "ok")] * 20


@both
def test_an_exception_or_a_signal_in_the_list_is_the_outcome_of_its_job_alone(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, is_async: bool
) -> None:
    outcomes = [
        1,
        ConnectionResetError(104, "reset"),
        Fail("NOT_FOUND"),
        Cancel("enough"),
        Snooze(5),
        Retry(2),
    ]
    calls = 0

    def mixed(numbers: list[int]) -> list[object]:
        nonlocal calls
        calls += 1
        return list(outcomes) if calls == 1 else list(numbers)

    pipeline = batched(mixed, is_async=is_async, retry=STEADY)
    rd.submit_many(pipeline, range(6))
    work(store, pipeline)

    assert [row[0] for row in jobs(store)] == [
        "complete",
        "complete",
        "failed",
        "cancelled",
        "complete",
        "complete",
    ]
    assert attempts(store, "outcome, burned")[:6] == [
        ("ok", 1), ("retry", 1), ("dead", 1), ("cancelled", 1), ("hold", 0), ("retry", 1),
    ]  # fmt: skip
    assert jobs(store, "attempt") == [(1,), (2,), (1,), (1,), (1,), (2,)]
    assert letters(store) == [("NOT_FOUND",)]


@both
def test_what_the_function_raises_is_a_failure_of_each_job_by_its_own_policy(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, is_async: bool
) -> None:
    calls: list[int] = []

    def refused(numbers: list[int]) -> list[int]:
        calls.append(len(numbers))
        if len(calls) <= 3:
            raise ConnectionRefusedError(111, "refused")
        return numbers

    pipeline = batched(refused, is_async=is_async, retry=STEADY, batch=Batch(size=3, on_error="fail"))
    rd.submit_many(pipeline, range(3))
    work(store, pipeline)

    assert calls == [3, 3, 3]
    assert jobs(store, "status, attempt") == [("failed", 3)] * 3
    assert letters(store) == [("NETWORK_REFUSED",)] * 3


@pytest.mark.untraced
@both
@pytest.mark.parametrize("bad", [0, 3, 6])
def test_a_call_that_would_give_a_job_up_is_halved_until_the_bad_one_is_alone(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, is_async: bool, bad: int
) -> None:
    calls: list[list[int]] = []

    def picky(numbers: list[int]) -> list[int]:
        calls.append(numbers)
        if bad in numbers:
            raise ValueError("one of them is bad")
        return numbers

    pipeline = batched(picky, is_async=is_async, batch=Batch(size=8, on_error="split"))
    rd.submit_many(pipeline, range(7))
    work(store, pipeline)

    assert [row[0] for row in jobs(store)] == [
        "failed" if number == bad else "complete" for number in range(7)
    ]
    assert [bad] in calls
    # Every other job was in exactly one call that succeeded.
    good = sorted(number for call in calls if bad not in call for number in call)
    assert good == [number for number in range(7) if number != bad]
    assert attempts(store, "attempt") == [(1,)] * 7


def test_what_can_heal_is_retried_whole_and_halved_only_at_the_last_attempt(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    calls: list[int] = []

    def poisoned(numbers: list[int]) -> list[int]:
        calls.append(len(numbers))
        if 2 in numbers:
            raise ConnectionResetError(104, "the server died of it")
        return numbers

    pipeline = batched(poisoned, retry=STEADY, batch=Batch(size=4, on_error="split"))
    rd.submit_many(pipeline, range(4))
    work(store, pipeline)

    assert calls == [4, 4, 4, 2, 2, 1, 1]
    assert jobs(store, "status, attempt") == [
        ("complete", 3), ("complete", 3), ("failed", 3), ("complete", 3),
    ]  # fmt: skip


def returned_too_few(numbers: list[int]) -> object:
    return numbers[1:]


def returned_too_many(numbers: list[int]) -> object:
    return [*numbers, 0]


def returned_no_list(numbers: list[int]) -> object:
    return dict.fromkeys(numbers)


@both
@pytest.mark.parametrize("on_error", ["fail", "split"])
@pytest.mark.parametrize(
    ("function", "text"),
    [
        (returned_too_few, "stage embed returned 2 results for 3 inputs"),
        (returned_too_many, "stage embed returned 4 results for 3 inputs"),
        (returned_no_list, "stage embed returned dict, not a list, for 3 inputs"),
    ],
)
def test_a_function_with_the_wrong_number_of_results_fails_every_job_and_both_counts_are_named(
    store: SqliteStore,
    rd: Redrive,
    clock: VirtualClock,
    is_async: bool,
    on_error: Any,
    function: Results,
    text: str,
) -> None:
    calls: list[int] = []

    def counted(numbers: list[int]) -> object:
        calls.append(len(numbers))
        return function(numbers)

    pipeline = batched(counted, is_async=is_async, batch=Batch(size=3, on_error=on_error), retry=STEADY)
    rd.submit_many(pipeline, range(3))
    work(store, pipeline)

    assert calls == [3]
    assert letters(store, "code, message") == [("BUG_CODE", text)] * 3


@both
def test_a_job_of_a_batch_can_be_skipped_or_finished_and_so_can_all_of_them(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, is_async: bool
) -> None:
    def some(numbers: list[int]) -> list[object]:
        if numbers == [7, 7]:
            raise Finish(70)
        return [numbers[0], Skip("spam"), Finish(20), Finish("no number")]

    first = batched(some, is_async=is_async, batch=Batch(size=4, wait=0)).stages[0]
    pipeline = Pipeline("shop", [first, stage(name="last")(_plus_one)])
    made = [rd.submit(pipeline, number) for number in range(4)]
    work(store, pipeline)
    made += [rd.submit(pipeline, 7) for _ in range(2)]
    work(store, pipeline)

    statuses = ["complete", "skipped", "complete", "failed", "complete", "complete"]
    assert [job.status for job in made] == statuses
    assert [made[place].result() for place in (0, 2, 4, 5)] == [1, 20, 70, 70]


def _plus_one(number: int) -> int:
    return number + 1


def test_one_signal_instead_of_a_list_is_for_all(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    pipeline = batched(lambda _numbers: Cancel("not today"))
    rd.submit_many(pipeline, range(3))
    work(store, pipeline)

    assert jobs(store) == [("cancelled",)] * 3


@both
def test_an_input_or_output_that_does_not_fit_fails_alone(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, is_async: bool
) -> None:
    calls: list[list[int]] = []

    def odd(numbers: list[int]) -> list[object]:
        calls.append(numbers)
        return [object() if number == 1 else number for number in numbers]

    pipeline = batched(odd, is_async=is_async)
    rd.submit_many(pipeline, range(4))
    store._db.execute("UPDATE jobs SET payload = CAST('\"text\"' AS BLOB) WHERE id IN (1, 4)")
    work(store, pipeline)

    assert calls == [[1, 2]]
    assert jobs(store) == [("failed",), ("failed",), ("complete",), ("failed",)]
    assert letters(store) == [("SCHEMA_INVALID",), ("BUG_CODE",), ("SCHEMA_INVALID",)]


@both
def test_a_function_is_not_called_when_no_input_fits(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, is_async: bool
) -> None:
    calls: list[list[int]] = []
    pipeline = batched(calls.append, is_async=is_async)
    rd.submit_many(pipeline, range(2))
    store._db.execute("UPDATE jobs SET payload = CAST('\"text\"' AS BLOB)")
    work(store, pipeline)

    assert calls == []
    assert letters(store) == [("SCHEMA_INVALID",)] * 2


def test_each_job_has_its_own_context_notes_and_children(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    children = one_stage(lambda number: number, "children", name="keep")
    seen: list[tuple[int, str]] = []

    @stage(batch=Batch(size=4))
    def embed(numbers: list[int], contexts: list[Context]) -> Sequence[int | Exception]:
        for number, ctx in zip(numbers, contexts, strict=True):
            seen.append((ctx.job_id, ctx.idempotency_key))
            ctx.note("number", number)
            ctx.submit(children, number)
        return [number or ValueError("zero") for number in numbers]

    pipeline = Pipeline("shop", [embed])
    made = [rd.submit(pipeline, number) for number in range(3)]
    work(store, pipeline)

    (installation,) = store.query(transfer_sql.installation())
    assert seen == [(job.id, f"shop:{installation}-{job.id}:embed") for job in made]
    assert attempts(store, "notes") == [(f'{{"number":"{number}"}}',) for number in range(3)]
    assert store.read("SELECT payload FROM jobs WHERE pipeline = 'children' ORDER BY id") == [
        (b"1",),
        (b"2",),
    ]


def test_no_value_of_another_job_stands_in_the_notes_of_a_success(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    @stage(batch=Batch(size=2))
    def embed(texts: list[str], contexts: list[Context]) -> list[int]:
        for ctx in contexts:
            ctx.note("texts", ", ".join(texts))
        return [len(text) for text in texts]

    pipeline = Pipeline("shop", [embed])
    rd.submit_many(pipeline, ["Anna Amalia 41", "Bert Brecht 17"])
    work(store, pipeline)

    assert attempts(store, "outcome, notes") == [("ok", '{"texts":"<payload:$>, <payload:$>"}')] * 2


@pytest.mark.parametrize("others", [[], ["x1"]], ids=["two jobs", "three"])
def test_no_value_of_another_job_stands_in_a_dead_letter_and_all_of_them_are_one_group(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, others: list[str]
) -> None:
    def leaky(texts: list[str]) -> list[str]:
        raise ValueError(f"cannot embed {', '.join(texts)}")

    def call(texts: list[str]) -> list[str]:
        return leaky(texts)

    pipeline = one_stage(call, batch=Batch(size=3), name="embed")
    secrets = ["Anna Amalia 41", "Bert Brecht 17", *others]
    rd.submit_many(pipeline, secrets)
    work(store, pipeline)

    rows = letters(store, "message, stack, fingerprint")
    assert len(rows) == len(secrets)
    assert not any(secret in f"{message} {stack}" for message, stack, _ in rows for secret in secrets[:2])
    assert len({fingerprint for *_, fingerprint in rows}) == 1


@both
def test_the_timeout_is_that_of_the_call(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, is_async: bool
) -> None:
    async def slow(numbers: list[int]) -> list[int]:
        clock.advance(9)
        await asyncio.Event().wait()
        return numbers

    def slow_sync(numbers: list[int]) -> list[int]:
        clock.advance(9)
        raise ValueError("late")

    pipeline = one_stage(
        slow if is_async else slow_sync, batch=Batch(size=3), timeout=0.01, retry=ONCE, name="embed"
    )
    rd.submit_many(pipeline, range(3))
    work(store, pipeline)

    assert letters(store) == [("TIMEOUT",)] * 3


def test_halves_have_their_own_time(store: SqliteStore, rd: Redrive, clock: VirtualClock) -> None:
    deadlines: set[str] = set()

    @stage(batch=Batch(size=4, on_error="split"), timeout=10)
    def picky(numbers: list[int], contexts: list[Context]) -> list[int]:
        deadlines.update(str(ctx.deadline) for ctx in contexts)
        clock.advance(6)
        if 0 in numbers:
            raise ValueError("zero")
        return numbers

    pipeline = Pipeline("shop", [picky])
    rd.submit_many(pipeline, range(4))
    work(store, pipeline)

    # A late error would be a timeout, and a late success be marked.
    assert letters(store) == [("BUG_CODE",)]
    assert store.read("SELECT DISTINCT decision FROM attempts WHERE outcome = 'ok'") == [(None,)]
    assert len(deadlines) > 1


def test_a_breaker_counts_a_call_once(store: SqliteStore, rd: Redrive, clock: VirtualClock) -> None:
    api = Breaker("api", consecutive=2, open_for=60)
    calls: list[int] = []

    def down(numbers: list[int]) -> list[object]:
        calls.append(len(numbers))
        if len(calls) <= 3:
            raise ConnectionRefusedError(111, "refused")
        return [
            ConnectionResetError(104, "reset") if number == 1 and len(calls) == 5 else number
            for number in numbers
        ]

    pipeline = batched(down, breaker=api, retry=STEADY, batch=Batch(size=4))
    rd.submit_many(pipeline, range(4))
    work(store, pipeline)

    # The first failure burns an attempt of each; the second opens the breaker and holds them; one job alone probes.
    assert calls[:3] == [4, 4, 1]
    assert jobs(store) == [("complete",)] * 4
    assert attempts(store, "outcome")[:9] == [("retry",)] * 4 + [("hold",)] * 5


def test_jobs_that_expired_or_were_cancelled_leave_their_call(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    calls: list[list[int]] = []

    def keep(numbers: list[int]) -> list[int]:
        calls.append(numbers)
        return numbers

    pipeline = batched(keep)
    rd.submit_many(pipeline, range(4))
    store._db.execute("UPDATE jobs SET expires_at = ? WHERE id = 2", (clock.wall() - 1,))
    store._db.execute("UPDATE jobs SET cancel_asked = 1 WHERE id = 3")
    work(store, pipeline)

    assert calls == [[0, 3]]
    assert jobs(store) == [("complete",), ("failed",), ("cancelled",), ("complete",)]


class OwnError(Exception):
    """An error that only the user's rule knows."""


def test_a_rule_that_breaks_fails_its_job_alone(store: SqliteStore, rd: Redrive, clock: VirtualClock) -> None:
    class Broken(Classifier):
        def classify(self, exc: BaseException, **options: Any) -> Any:
            if isinstance(exc, OwnError):
                raise LookupError("a broken rule")
            return super().classify(exc, **options)

    pipeline = batched(lambda numbers: [OwnError() if number == 1 else number for number in numbers])
    rd.submit_many(pipeline, range(3))
    work(store, pipeline, classifier=Broken())

    assert jobs(store) == [("complete",), ("failed",), ("complete",)]


def test_log_records_of_a_call_name_the_stage_and_how_many_jobs_it_is_for(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    def log(numbers: list[int]) -> list[int]:
        logging.getLogger("app").warning("embedding")
        return numbers

    pipeline = batched(log, batch=Batch(size=2))
    rd.submit_many(pipeline, range(3))
    with jobs_in_log_records():
        work(store, pipeline)

    first, second = (vars(record) for record in caplog.records if record.name == "app")
    assert (first["job"], first["job_id"], first["stage"]) == ("[2 jobs shop.embed] ", "", "embed")
    assert (second["job"], second["job_id"]) == ("[job 3 shop.embed attempt 1] ", 3)


def test_a_late_retry_policy_of_one_job_is_not_that_of_another(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    """One that has one attempt left is given up, one that has more is retried, by the same failure of the same call."""
    pipeline = batched(
        lambda _numbers: (_ for _ in ()).throw(ConnectionResetError(104, "reset")), retry=RetryPolicy(2)
    )
    rd.submit_many(pipeline, range(2))
    store._db.execute("UPDATE jobs SET attempt = 2 WHERE id = 1")
    work(store, pipeline)

    assert attempts(store, "job_id, outcome") == [(1, "dead"), (2, "retry"), (2, "dead")]
