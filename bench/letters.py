# SPDX-License-Identifier: Apache-2.0
"""Dead letters by the million: what looking at them and starting a replay costs, and how fast a replay drains.

The letters are written by plain SQL, with the engine's own tables, indexes and triggers: 1,000,000 of them in 500 groups. What is
looked at is timed in the store alone, best of a few. The yardstick of the drain is the same number of jobs, never failed.
"""

from __future__ import annotations

import itertools
import os
import sqlite3
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from bench import ours
from bench.measure import Figure, figures_of, per_job
from bench.ours import PAYLOAD, pipeline_of
from bench.processes import measured, race
from redrive import connect
from redrive.core.replay import plan_of
from redrive.engine.replay.filter import LetterFilter
from redrive.engine.worker.dead_letter import FailedAttempt, JobRedactor, letter_of
from redrive.ops.audit import Actor
from redrive.ops.letters.details import letter_details
from redrive.ops.letters.freeze import freeze
from redrive.ops.letters.groups import list_groups
from redrive.ops.letters.pages import list_letters
from redrive.ops.replay import replays
from redrive.store.protocol import Store
from redrive.store.sqlite.store import SqliteStore
from redrive.store.statements import replays as replay_sql

LETTERS = 1_000_000
GROUPS = 500
CAUSES = 3
"""What a replay of many letters is about: a few causes, not hundreds."""
REPLAYED = 100_000
ROUNDS = 5
BUDGET_NS = 200e6
BY = Actor("bench", "measured")

OLD_GROUPS = """
WITH RECURSIVE old (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM old WHERE n < ?1 - 1)
INSERT INTO letter_groups (fingerprint, lane_id, code, category, exception, first_at, last_at)
SELECT printf('v1:%016x', n), (SELECT min(id) FROM lanes), printf('CODE_%d', n % 20), printf('category-%d', n % 5), 'builtins.KeyError', 1.5e9, 1.6e9
FROM old
"""
OLD_JOBS = """
WITH RECURSIVE old (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM old WHERE n < ?1)
INSERT INTO jobs (pipeline, lane_id, status, priority, run_at, key, owner, payload, error_code, error_message, dispatch, created_at,
    started_at, last_attempt_at, finished_at)
SELECT 'bench', (SELECT min(id) FROM lanes), 'failed', 5, 1.5e9 + n, CASE WHEN ?3 THEN 'key-' || n END, CASE WHEN ?3 THEN 'owner-' || (n % 1000) END, ?2,
    'CODE', 'refused', 1, 1.5e9 + n, 1.5e9 + n, 1.5e9 + n, 1.5e9 + n
FROM old
"""
OLD_LETTERS = """
INSERT INTO dead_letters (job_id, lane_id, group_id, round, state, owner, key, first_failure_at, last_failure_at)
SELECT jobs.id, jobs.lane_id, letter_groups.id, 1, CASE WHEN jobs.id % 10 = 3 THEN 'triaged' ELSE 'open' END, owner, key, run_at, run_at
FROM jobs JOIN letter_groups ON letter_groups.id = 1 + jobs.id % ?1
"""
# As long as those of an ordinary failure.
OLD_FACTS = """
INSERT INTO letter_facts (letter_id, code, category, is_retryable, exception, reason, message, context, stack)
SELECT dead_letters.id, code, category, 0, exception, 'permanent', printf('%.*c', 90, 'm'),
    CAST(printf('{"notes":"%.*c"}', 145, 'c') AS BLOB), printf('%.*c', 1500, 's')
FROM dead_letters JOIN letter_groups ON letter_groups.id = group_id
"""


def run() -> list[Figure]:
    """Fill a file, look at it, and replay; takes about four minutes."""
    looked = measured(look)
    names = [name for name, _ in looks()]
    figures = dict(zip(names, looked, strict=True))
    cost = {
        "goal: 300 microseconds": 300e3,
        "redaction and fingerprint of a 4 KB stack": letter_cost(holds_secret=False),
        "the same, with a secret in its message": letter_cost(holds_secret=True),
    }
    return [
        *figures_of("looking at 1,000,000 letters", {"goal: 200 ms": BUDGET_NS, **figures}, "nanoseconds"),
        *figures_of("a dead letter", cost, "nanoseconds"),
        *race(
            "a replay of 100,000 letters",
            {
                "jobs that never failed": [partial(ours.drain, is_async=True, jobs=REPLAYED)] * 2,
                "jobs that never failed, submitted and drained": [drain_submitted] * 2,
                "the same jobs, replayed": [drain_replayed] * 2,
            },
        ),
    ]


def looks() -> list[tuple[str, Callable[[Store], object]]]:
    """Return what is looked at, by name."""
    some = f"v1:{7:016x}"
    filters = {
        "no filter": LetterFilter(),
        "pipeline": LetterFilter(pipeline="bench"),
        "stage": LetterFilter(stage="stage-none"),
        "code": LetterFilter(code="CODE_7"),
        "category": LetterFilter(category="category-3"),
        "group": LetterFilter(group=some),
        "state": LetterFilter(state="triaged"),
        "state nobody is in": LetterFilter(state="ready"),
        "group and state": LetterFilter(group=some, state="ready"),
        "owner": LetterFilter(owner="owner-5"),
        "owner, code and state": LetterFilter(owner="owner-5", code="CODE_7", state="triaged"),
        "key": LetterFilter(key="key-77777"),
        "time": LetterFilter(since=1.5e9 + 1_000, until=1.5e9 + 2_000),
        "time and code": LetterFilter(since=1.5e9 + 1_000, until=1.5e9 + 2_000, code="CODE_7"),
    }
    asked: list[tuple[str, Callable[[Store], object]]] = [
        (f"first page: {name}", partial(_page, which=which)) for name, which in filters.items()
    ]
    return [
        ("groups", lambda store: list_groups(store, LetterFilter())),
        *asked,
        ("show", lambda store: letter_details(store, LETTERS // 2)),
        ("a frozen set of 1,000,000", lambda store: freeze(store, LetterFilter(pipeline="bench"))),
        ("the start of a replay of 100,000, by time", _start_by_time),
        ("the start of a replay of 200,000, by category", _start_by_category),
    ]


def look(folder: Path) -> list[float]:
    """Return how long the store takes for each look."""
    path = _filled(folder, LETTERS, groups=GROUPS, is_named=True)
    with connect(path) as rd:
        return [_best(partial(ask, rd.store)) for _, ask in looks()]


def drain_submitted(folder: Path) -> float:
    """Submit as many jobs as are replayed, and drain them: a replay, too, has to put its jobs into the queue."""
    pipeline = pipeline_of()
    with connect(folder / "submitted.db") as rd:

        def whole() -> None:
            rd.submit_many(pipeline, itertools.repeat(PAYLOAD, REPLAYED))
            rd.work([pipeline], until_idle=True, concurrency=ours.CONCURRENCY)

        spent = per_job(REPLAYED, whole)
        assert rd.jobs.counts() == {"complete": REPLAYED}, rd.jobs.counts()
    return spent


def drain_replayed(folder: Path) -> float:
    """Replay failed jobs, with no rate and no canary, until all are complete."""
    # The jobs it is compared with have neither key nor owner.
    path = _filled(folder, REPLAYED, groups=CAUSES, is_named=False)
    pipeline = pipeline_of()
    with connect(path) as rd:
        replays.start(rd.store, LetterFilter(pipeline="bench"), BY, plan=plan_of(()))
        spent = per_job(REPLAYED, lambda: rd.work([pipeline], until_idle=True, concurrency=ours.CONCURRENCY))
        assert rd.jobs.counts() == {"complete": REPLAYED}, rd.jobs.counts()
    return spent


def letter_cost(*, holds_secret: bool) -> float:
    """Return what it takes to make a dead letter of an exception with a stack of 4 KB; no two messages are the same."""
    from redrive import classify
    from redrive.core.decide import DeadLetter, Reason
    from redrive.core.fingerprint import frames_of
    from redrive.store.records import ClaimedJob, JobId, LaneId

    def one(depth: int, message: str) -> None:
        # Two that call each other: a function that only calls itself is shown once.
        other(depth - 1, message)

    def other(depth: int, message: str) -> None:
        if depth <= 0:
            raise KeyError(message)
        one(depth - 1, message)

    def failure_of(number: int) -> FailedAttempt:
        token = f", token=q8Zr4mN2vX7kP{number:05d}" if holds_secret else ""
        try:
            one(46, f"order {number} of customer {number * 7} is not in the list{token}")
        except KeyError as error:
            # Writing the stack down as text is the work of the traceback module, whatever becomes of it.
            return FailedAttempt(
                classify(error), stack="".join(traceback.format_exception(error)), frames=frames_of(error)
            )
        raise AssertionError

    job = ClaimedJob(
        JobId(1), 1, 1, LaneId(1), 1, 1, 0, 0, 0, 0, 0, None, None, b'{"text":"' + b"x" * 190 + b'"}'
    )
    decision = DeadLetter(reason=Reason.PERMANENT, code="BUG_CODE", attempt=1, max_attempts=1)

    def many(failures: Sequence[FailedAttempt]) -> None:
        for failed in failures:
            letter_of(failed, JobRedactor(job), "stage", decision, None)

    assert 3_000 < len(letter_of(failure_of(0), JobRedactor(job), "stage", decision, None).stack) < 6_000
    batches = [[failure_of(200 * turn + place) for place in range(200)] for turn in range(1, ROUNDS + 1)]
    return min(per_job(200, partial(many, batch)) for batch in batches)


def _page(store: Store, *, which: LetterFilter) -> object:
    return list_letters(store, which, limit=50)


def _start_by_time(store: Store) -> object:
    return _start(store, LetterFilter(pipeline="bench", since=1.5e9, until=1.5e9 + REPLAYED))


def _start_by_category(store: Store) -> object:
    return _start(store, LetterFilter(category="category-3"))


def _start(store: Store, which: LetterFilter) -> object:
    begun = replays.start(store, which, BY, plan=plan_of())
    # It is ended at once, so that the next one can be started.
    store.apply(
        replay_sql.cancel_replay(reason="measured", replay=begun.id),
        replay_sql.end_cancelled(now=0.0, replay=begun.id),
    )
    return begun


def _best(work: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        begun = time.perf_counter_ns()
        work()
        best = min(best, time.perf_counter_ns() - begun)
    return best


def _filled(folder: Path, count: int, *, groups: int, is_named: bool) -> Path:
    path = folder / "letters.db"
    store = SqliteStore(path)
    store.lanes("bench", [stage.name for stage in pipeline_of().stages])
    store.apply(replay_sql.put_rules(pipeline="bench", rules=b'{"evidence":"optional"}'))
    store.close()
    db = sqlite3.connect(path, isolation_level=None)
    # The old rows need not survive a power cut.
    for pragma in ("synchronous = OFF", "cache_size = -500000"):
        db.execute(f"PRAGMA {pragma}")
    payload = b'{"text":"' + PAYLOAD["text"].encode() + b'"}'
    db.execute("BEGIN")
    db.execute(OLD_GROUPS, (groups,))
    db.execute(OLD_JOBS, (count, payload, is_named))
    db.execute(OLD_LETTERS, (groups,))
    db.execute(OLD_FACTS)
    db.execute("COMMIT")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    # What the system has not written yet would be written during the first commits that are timed.
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return path
