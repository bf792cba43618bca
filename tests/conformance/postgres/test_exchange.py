# SPDX-License-Identifier: Apache-2.0
"""How the store on a server commits: in one round trip, by what it remembers, and from where the last claim ended."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest
from msgspec.structs import replace

from redrive.errors import StoreUnavailableError
from redrive.store.postgres import settle
from redrive.store.postgres.arrays import column
from redrive.store.postgres.listen import channel_of
from redrive.store.postgres.session import Session
from redrive.store.postgres.store import PostgresStore
from redrive.store.records import (
    ClaimedJob,
    ClaimRequest,
    JobId,
    Row,
    Settlement,
    SubmittedJob,
)
from redrive.store.statements import workers as worker_sql
from redrive.testing.conformance.build import (
    NOW,
    advance,
    burial,
    claim,
    claimed,
    exchange,
    lanes_of,
    new,
    new_run,
    retry,
    settlement,
    statuses,
)
from tests.databases import Schemas


@contextmanager
def traced(store: PostgresStore, file: Path) -> Generator[None]:
    """Write all messages between the store and its server to a file."""
    link = store._server.link()
    with file.open("w") as trace:
        link.pgconn.trace(trace.fileno())
        yield
        link.pgconn.untrace()


def round_trips(file: Path) -> int:
    """How often the store has asked for answers. What it sends before they have come may cross them on the way."""
    fields = (line.split("\t") for line in file.read_text().splitlines())
    asks = [field[3] in {"Sync", "Flush", "Query"} for field in fields if len(field) > 3 and field[1] == "F"]
    return sum(ask and not before for before, ask in pairwise([False, *asks]))


def failed(one: ClaimedJob) -> Settlement:
    return retry(one, at=NOW)


@pytest.mark.parametrize("outcome", [settlement, failed])
def test_a_commit_is_one_round_trip(
    store: PostgresStore, tmp_path: Path, outcome: Callable[[ClaimedJob], Settlement]
) -> None:
    (lane,) = lanes_of(store)
    store.submit([new(lane)] * 200, NOW)
    store.submit([new(lane, payload=b'"' + b"x" * 10_000 + b'"')] * 2, NOW)
    done = claim(store, lane, 150)

    with traced(store, tmp_path / "trace"):
        answer = exchange(store, "w1", [outcome(one) for one in done], ClaimRequest((lane,), 100))

    assert len(answer.claimed) == (52 if outcome is settlement else 100)
    assert round_trips(tmp_path / "trace") == 1


def test_a_commit_that_looks_first_is_more_than_one_round_trip(store: PostgresStore, tmp_path: Path) -> None:
    """So the trace shows the difference."""
    (lane,) = lanes_of(store)
    store.submit([new(lane)] * 2, NOW)
    done = claim(store, lane, 1)
    store._paused = None

    with traced(store, tmp_path / "trace"):
        exchange(store, "w1", [settlement(one) for one in done], ClaimRequest((lane,), 1))

    assert round_trips(tmp_path / "trace") > 1


def test_a_commit_by_what_is_not_so_any_more_is_made_again(store: PostgresStore) -> None:
    """A lane was paused in the meantime, and resumed."""
    (lane,) = lanes_of(store)
    store.submit([new(lane)] * 3, NOW)
    (first,) = claim(store, lane, 1)
    store.apply(worker_sql.pause_lanes(now=NOW, pipeline="shop"))

    paused = exchange(store, "w1", [settlement(first)], ClaimRequest((lane,), 1))
    store.apply(worker_sql.resume_lanes(pipeline="shop"))
    (second,) = claim(store, lane, 1)
    dead = exchange(store, "nobody", [settlement(second)], ClaimRequest((lane,), 1))

    assert (paused.claimed, statuses(store)) == ((), {"complete": 2, "queued": 1})
    assert (dead.is_known, dead.claimed) == (False, ())


def test_claims_go_on_from_where_the_last_one_ended_and_find_what_came_before_it(
    store: PostgresStore,
) -> None:
    (lane,) = lanes_of(store)
    store.submit([new(lane, run_at=NOW + place / 1_000) for place in range(500)], NOW)

    claim(store, lane, 1, now=NOW + 1)
    first = [one.id for one in claim(store, lane, 100, now=NOW + 1)]
    (early,) = store.submit([new(lane, run_at=NOW - 1)], NOW)
    (urgent,) = store.submit([new(lane, run_at=NOW, priority=1)], NOW)
    second = [one.id for one in claim(store, lane, 100, now=NOW + 1.5)]
    third = [one.id for one in claim(store, lane, 100, now=NOW + 2.5)]

    assert first == list(range(2, 102))
    assert second == [urgent.id, *range(102, 201)]
    assert third[:2] == [early.id, 201]


def test_a_claim_that_finds_too_few_after_its_mark_is_followed_by_one_from_the_beginning(
    store: PostgresStore,
) -> None:
    (lane,) = lanes_of(store)
    store.submit([new(lane)] * 151, NOW)
    claim(store, lane, 1)
    claim(store, lane, 100)
    (early,) = store.submit([new(lane, run_at=NOW - 1)], NOW)

    rest = claim(store, lane, 100)
    last = claim(store, lane, 100)

    assert len(rest) == 50
    assert [one.id for one in last] == [early.id]


def test_small_claims_continue_from_the_mark_of_a_larger_one_and_leave_none_themselves(
    store: PostgresStore,
) -> None:
    """A busy worker claims a few jobs many times a second: each time from the beginning would read all that was claimed before."""
    (lane,) = lanes_of(store)
    store.submit([new(lane)] * 60, NOW)
    few = [one.id for one in claim(store, lane, 2, now=NOW)]
    (early,) = store.submit([new(lane, run_at=NOW - 1)], NOW)
    after_few = [one.id for one in claim(store, lane, 20, now=NOW)]
    (later,) = store.submit([new(lane, run_at=NOW - 1)], NOW)

    after_many = [[one.id for one in claim(store, lane, 2, now=NOW + at)] for at in (0, 0.5, 1.5)]

    assert few == [1, 2]
    assert after_few == [early.id, *range(3, 22)]
    assert after_many == [[22, 23], [24, 25], [later.id, 26]]


def test_a_clock_that_was_set_back_claims_from_the_beginning(store: PostgresStore) -> None:
    """Until it is again as late as it was, no mark would ever be old."""
    (lane,) = lanes_of(store)
    store.submit([new(lane)] * 60, NOW)
    claim(store, lane, 1, now=NOW + 100)
    claim(store, lane, 20, now=NOW + 100)
    (early,) = store.submit([new(lane, run_at=NOW - 1)], NOW)

    assert [one.id for one in claim(store, lane, 2, now=NOW + 50)] == [early.id, 22]


@pytest.mark.parametrize(("limit", "most"), [(100, 20), (20, 100)])
def test_a_claim_that_finds_all_it_may_leaves_marks_whatever_else_was_wanted(
    store: PostgresStore, limit: int, most: int
) -> None:
    """As many as its lanes may give, or as are wanted of all lanes together."""
    first, second = lanes_of(store, "fetch", "review")
    store.submit([new(lane) for lane in (first, second) for _ in range(60)], NOW)
    limits = {first: most, second: most if most > limit else 0}
    claim(store, first, 1)
    claimed(store, ClaimRequest((first, second), limit, limits))
    store.submit([new(first, run_at=NOW - 1)], NOW)

    assert [one.id for one in claim(store, first, 2)] == [22, 23]


def test_every_claim_moves_the_mark_on_and_one_from_the_beginning_renews_it(store: PostgresStore) -> None:
    """What was claimed after a mark is not read again either."""
    (lane,) = lanes_of(store)
    store.submit([new(lane, run_at=NOW + place / 1_000) for place in range(60)], NOW)
    for few in (1, 16, 2):
        claim(store, lane, few, now=NOW + 1)
    between = [one.id for one in store.submit([new(lane, run_at=NOW + at) for at in (0.0105, 0.0175)], NOW)]

    taken = [[one.id for one in claim(store, lane, 2, now=NOW + 1 + at)] for at in (0, 1.5)]
    store.submit([new(lane, run_at=NOW - 1)], NOW)
    after_that = [one.id for one in claim(store, lane, 2, now=NOW + 2.6)]

    assert taken == [[20, 21], between]
    assert after_that == [22, 23]


def test_a_small_claim_leaves_no_mark_in_a_lane_beside_one_that_has_one(store: PostgresStore) -> None:
    marked, small = lanes_of(store, "fetch", "review")
    store.submit([new(lane) for lane in (marked, small) for _ in range(60)], NOW)
    for lane, few in ((marked, 1), (marked, 20), (small, 2)):
        claim(store, lane, few)
    (early,) = store.submit([new(small, run_at=NOW - 1)], NOW)

    assert [one.id for one in claim(store, small, 1)] == [early.id]


def test_claims_start_from_the_beginning_less_often_while_nothing_is_found_there(
    store: PostgresStore,
) -> None:
    """Twice as long each time, up to a minute; a second again as soon as something is."""
    (lane,) = lanes_of(store)
    store.submit([new(lane)] * 60, NOW)
    claim(store, lane, 1, now=NOW)
    claim(store, lane, 20, now=NOW)
    at = NOW
    for patience in (1, 2, 4, 8, 16, 32, 60):
        at += patience
        claim(store, lane, 1, now=at)
    early = [one.id for one in store.submit([new(lane, run_at=NOW - 1)] * 2, NOW)]

    taken = [[one.id for one in claim(store, lane, 3, now=at + late)] for late in (59, 60)]
    (again,) = store.submit([new(lane, run_at=NOW - 1)], NOW)
    claims = [[one.id for one in claim(store, lane, 2, now=at + late)] for late in (60.5, 61)]

    assert taken == [[29, 30, 31], [*early, 32]]
    assert claims == [[33, 34], [again.id, 35]]


def test_many_jobs_are_copied_as_few_are_inserted(store: PostgresStore) -> None:
    (lane,) = lanes_of(store)
    kinds: list[dict[str, object]] = [
        {},
        {"owner": "ann", "priority": 9, "run_at": NOW + 7},
        {"payload": b'"' + b"x" * 10_000 + b'"', "expires_at": NOW + 9, "parent": JobId(3)},
        {"owner": "\u00fc", "trace": "00-" + "a" * 32 + "-" + "b" * 16 + "-01"},
    ]
    jobs = [new(lane, **kind) for kind in kinds]

    few = store.submit(jobs, NOW)
    many = store.submit(jobs * 50, NOW)

    def stored(ids: Sequence[SubmittedJob]) -> list[Row]:
        return store.read(
            "SELECT pipeline, lane_id, status, priority, run_at, key, owner, run_id, ordinal, parent_id, expires_at, payload, dispatch,"
            " attempt, created_at, (SELECT value FROM job_values WHERE job_id = id), (SELECT traceparent FROM job_traces WHERE job_id = id)"
            " FROM jobs WHERE id = ANY($1::bigint[]) ORDER BY id",
            (column("bigint", [one.id for one in ids]),),
        )

    assert [one.id for one in many] == list(range(few[-1].id + 1, few[-1].id + 201))
    assert stored(many) == stored(few) * 50


def test_items_of_a_run_are_copied_with_their_places(store: PostgresStore) -> None:
    (lane,) = lanes_of(store)
    run = new_run(store)

    store.submit([new(lane, run=run, ordinal=place) for place in range(120)], NOW)

    assert store.read("SELECT ordinal FROM jobs WHERE run_id = $1 ORDER BY id", (run,)) == [
        (place,) for place in range(120)
    ]
    assert store.read("SELECT items FROM runs WHERE id = $1", (run,)) == [(120,)]


def test_settling_announces_nothing_and_submitting_does(store: PostgresStore, schemas: Schemas) -> None:
    """NOTIFY takes a lock over the whole server when it commits, so that one per settlement would make all workers wait."""
    first, second = lanes_of(store, "fetch", "review")
    with psycopg.connect(schemas.server, autocommit=True) as listening:
        listening.execute(f'LISTEN "{channel_of(store.address.schema)}"')
        store.submit([new(first)] * 4, NOW)
        assert [note.payload for note in listening.notifies(timeout=30, stop_after=1)] == [""]

        done, onward, again, dead = claim(store, first, 4)
        settlements = [settlement(done), advance(onward, second), retry(again, at=NOW), burial(dead)]
        assert exchange(store, "w1", settlements).lost == ()
        listening.execute("SELECT pg_notify(%s, 'the next')", (channel_of(store.address.schema),))

        assert [note.payload for note in listening.notifies(timeout=30, stop_after=1)] == ["the next"]


def test_a_server_that_cannot_settle_now_breaks_no_row(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where rows are settled one by one, because one of them was lost."""
    (lane,) = lanes_of(store)
    store.submit([new(lane)] * 2, NOW)
    one, two = claim(store, lane)
    record = settle._record

    def busy(db: Session, worker: str, done: Sequence[Settlement]) -> None:
        if len(done) == 1:
            raise psycopg.errors.LockNotAvailable("somebody else has it")
        record(db, worker, done)

    monkeypatch.setattr(settle, "_record", busy)
    stale = replace(one, dispatch=7)

    with pytest.raises(StoreUnavailableError):
        exchange(store, "w1", [settlement(stale), settlement(two)])

    assert statuses(store) == {"processing": 2}
