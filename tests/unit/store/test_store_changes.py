# SPDX-License-Identifier: Apache-2.0
"""The store's side for people: named queries and changes, stamps, tallies, pausing; and commits that are not made for nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from redrive.core.lifecycle import JobState
from redrive.errors import StoreRefusedError
from redrive.store.records import Child, ClaimedJob, ClaimRequest, ExchangeRequest, Step
from redrive.store.sqlite.store import SqliteStore
from redrive.store.statements import jobs as job_sql
from redrive.store.statements import operations as operation_sql
from redrive.store.statements import runs as run_sql
from redrive.store.statements import workers as worker_sql
from redrive.testing.conformance.build import (
    NOW,
    burial,
    claim,
    exchange,
    lanes_of,
    retry,
    settlement,
    statuses,
)
from redrive.testing.conformance.build import new as job

CANCEL = "cancel_queued"


@pytest.fixture(autouse=True)
def workers(store: SqliteStore) -> None:
    store.start_worker("w1", NOW, 60)


def recounted(store: SqliteStore) -> dict[str, int]:
    counted: dict[str, int] = {}
    for _, _, status, jobs in store.query(job_sql.recount()):
        counted[str(status)] = counted.get(str(status), 0) + int(str(jobs))
    return counted


def log(text: str) -> Step:
    return Step("log", (NOW, "ann", text, "job", "1", None))


def test_a_change_returns_the_rows_of_each_step(store: SqliteStore) -> None:
    made = store.apply(
        run_sql.add_run(pipeline="shop", options=b"{}", now=NOW),
        run_sql.add_run(pipeline="shop", options=b"{}", now=NOW),
        log("x"),
    )

    assert made == [[1], [2], []]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_step_that_touches_other_rows_than_it_should_undoes_all_of_them(
    store: SqliteStore, place: int
) -> None:
    (lane,) = lanes_of(store)
    store.submit([job(lane)], NOW)
    steps = [log("before"), Step(CANCEL, (NOW, 1), rows=1)]
    steps.insert(place, Step(CANCEL, (NOW, 99), rows=1))

    assert store.apply(*steps) is None
    assert statuses(store) == {"queued": 1}
    assert store.query(operation_sql.operations(limit=10)) == []


def test_a_step_may_expect_to_touch_nothing(store: SqliteStore) -> None:
    assert store.apply(Step(CANCEL, (NOW, 99), rows=0)) == [[]]
    assert store.apply() == []


def test_a_change_that_breaks_an_invariant_is_an_error_of_the_store_and_leaves_nothing(
    store: SqliteStore,
) -> None:
    with pytest.raises(StoreRefusedError):
        store.apply(
            log("before"),
            run_sql.submit_tick(lane=1, priority=99, run_at=NOW, key="k", payload=b"1", now=NOW),
            Step("log", (None,) * 6),
        )

    assert store.query(operation_sql.operations(limit=10)) == []


def test_the_stamp_changes_with_commits_of_ones_own_and_of_others_and_only_then(tmp_path: Path) -> None:
    mine, other = SqliteStore(tmp_path / "jobs.db"), SqliteStore(tmp_path / "jobs.db")
    (lane,) = lanes_of(mine)
    lanes_of(other)
    seen = mine.change_counter()
    mine.query(job_sql.counts())
    mine.upcoming([lane])
    other.query(job_sql.counts())
    assert mine.change_counter() == seen

    mine.submit([job(lane)], NOW)
    after_mine = mine.change_counter()
    other.submit([job(lane)], NOW)
    after_other = mine.change_counter()

    assert len({seen, after_mine, after_other}) == 3
    assert mine.change_counter() == after_other
    mine.close()
    other.close()


def test_a_job_that_is_returned_during_a_look_is_upcoming_all_the_same(tmp_path: Path) -> None:
    """Due or held, whichever it was at that moment; a worker that saw neither would end while a job is queued."""
    mine, other = SqliteStore(tmp_path / "jobs.db"), SqliteStore(tmp_path / "jobs.db")
    (lane,) = lanes_of(mine)
    lanes_of(other)
    mine.submit([job(lane)], NOW)
    said: list[str] = []
    mine._db.set_trace_callback(said.append)
    mine.upcoming([lane])

    for nth in range(len(said)):
        other.start_worker("w2", NOW, 60)
        assert claim(other, lane, worker="w2")
        said.clear()

        def meanwhile(sql: str, nth: int = nth) -> None:
            if len(said) == nth:
                other.stop_worker("w2")
            said.append(sql)

        mine._db.set_trace_callback(meanwhile)
        seen = mine.upcoming([lane])
        mine._db.set_trace_callback(None)

        assert len(said) > nth
        assert (lane in seen.due) + seen.leased == 1, said[nth]
    mine.close()
    other.close()


def test_a_change_that_did_not_fit_leaves_the_stamp(store: SqliteStore) -> None:
    before = store.change_counter()
    store.apply(Step(CANCEL, (NOW, 99), rows=1))

    assert store.change_counter() == before


def test_an_exchange_for_which_nothing_is_due_writes_nothing(store: SqliteStore) -> None:
    (lane,) = lanes_of(store)
    store.submit([job(lane, run_at=NOW + 10)], NOW)
    before = store.change_counter()

    assert exchange(store, "w1", [], ClaimRequest((lane,), 10)).claimed == ()
    assert exchange(store, "w1", [], ClaimRequest((), 10)).claimed == ()
    assert exchange(store, "w1", [], ClaimRequest((lane,), 0), now=NOW + 20).claimed == ()
    assert store.change_counter() == before


@pytest.mark.parametrize("why", ["paused", "full"])
def test_an_exchange_writes_nothing_when_nothing_can_be_taken_because_a_lane_is(
    store: SqliteStore, why: str
) -> None:
    """Otherwise an idle worker would see its own empty commit as news, and never rest."""
    (lane,) = lanes_of(store)
    store.submit([job(lane)], NOW)
    if why == "paused":
        store.apply(worker_sql.pause_lanes(now=NOW, pipeline="shop"))
    before = store.change_counter()

    answer = exchange(store, "w1", [], ClaimRequest((lane,), 10, {lane: 0} if why == "full" else {}))

    assert answer.claimed == ()
    assert store.change_counter() == before


def test_what_is_held_under_a_token_is_told_to_a_worker_that_wants_nothing_more(store: SqliteStore) -> None:
    """When the answer was lost and there is no room any more; what others hold under it is theirs."""
    (lane,) = lanes_of(store)
    store.submit([job(lane)] * 2, NOW)
    store.start_worker("w2", NOW, 60)
    first = store.exchange(ExchangeRequest("w1", [], ClaimRequest((lane,), 1), now=NOW, token=79))

    again = store.exchange(ExchangeRequest("w1", [], ClaimRequest((), 0), now=NOW, token=79))
    others = store.exchange(ExchangeRequest("w2", [], ClaimRequest((), 0), now=NOW, token=79))

    assert (len(first.claimed), again.claimed, others.claimed) == (1, first.claimed, ())
    assert statuses(store) == {"queued": 1, "processing": 1}


def test_a_lane_with_a_limit_gives_no_more_and_the_next_lane_the_rest(store: SqliteStore) -> None:
    one, two = lanes_of(store, "one", "two")
    store.submit([job(one)] * 5 + [job(two)] * 5, NOW)

    taken = exchange(store, "w1", [], ClaimRequest((two, one), 6, {two: 2})).claimed

    assert [each.lane for each in taken] == [two] * 2 + [one] * 4


def test_a_paused_pipeline_gives_nothing_until_it_is_resumed(store: SqliteStore) -> None:
    one, two = lanes_of(store, "one", "two")
    (other,) = lanes_of(store, pipeline="other")
    store.submit([job(one), job(other)], NOW)
    store.apply(worker_sql.pause_lanes(now=NOW, pipeline="shop"))

    assert [each.lane for each in exchange(store, "w1", [], ClaimRequest((one, two, other), 9)).claimed] == [
        other
    ]
    assert store.upcoming([one, two]).paused == {one, two}
    store.apply(worker_sql.resume_lanes(pipeline="shop"))
    assert len(claim(store, one)) == 1


def test_tallies_are_exact_through_every_way_a_job_can_end(store: SqliteStore) -> None:
    fetch, review = lanes_of(store, "fetch", "review")
    store.submit([job(fetch) for _ in range(6)], NOW)
    first, second, third, fourth = claim(store, fetch, 4)
    exchange(
        store,
        "w1",
        [
            settlement(first),
            burial(second),
            settlement(third, status=JobState.CANCELLED, value=None, outcome="cancelled"),
            retry(fourth, at=NOW + 99),
        ],
    )
    store.apply(Step(CANCEL, (NOW, 5), rows=1))

    assert statuses(store) == recounted(store) == {"complete": 1, "failed": 1, "cancelled": 2, "queued": 2}
    assert claim(store, review) == ()


def test_tallies_stay_exact_when_a_job_is_sent_again_and_when_it_is_pruned(store: SqliteStore) -> None:
    (lane,) = lanes_of(store)
    store.submit([job(lane), job(lane)], NOW)
    one, two = claim(store, lane)
    exchange(store, "w1", [burial(one), settlement(two)])
    replay = (
        "UPDATE jobs SET status = 'queued', finished_at = NULL, error_code = NULL, error_message = NULL, "
        "round = round + 1, attempt = 1 WHERE id = 1"
    )
    store._db.execute("UPDATE dead_letters SET state = 'replaying'")
    store._db.execute(replay)
    assert statuses(store) == recounted(store) == {"queued": 1, "complete": 1}

    (again,) = claim(store, lane)
    assert again.round == 2
    exchange(store, "w1", [settlement(again)])
    assert statuses(store) == recounted(store) == {"complete": 2}

    store._db.execute("PRAGMA foreign_keys = OFF")
    store._db.execute("DELETE FROM jobs WHERE id = 2")
    assert statuses(store) == recounted(store) == {"complete": 1}


def test_tallies_of_a_run_keep_what_was_pruned(store: SqliteStore) -> None:
    (lane,) = lanes_of(store)
    store.apply(run_sql.add_run(pipeline="shop", options=b"{}", now=NOW))
    store.submit([job(lane, run=1, ordinal=place) for place in range(3)], NOW)
    exchange(store, "w1", [settlement(each) for each in claim(store, lane)])
    store._db.execute("PRAGMA foreign_keys = OFF")
    store._db.execute("DELETE FROM jobs WHERE ordinal = 1")

    assert store.query(run_sql.run(run=1))[0][9:13] == (3, 0, 0, 0)


def test_an_ordinal_of_a_run_is_there_once(store: SqliteStore) -> None:
    (lane,) = lanes_of(store)
    store.apply(run_sql.add_run(pipeline="shop", options=b"{}", now=NOW))
    store.submit([job(lane, run=1, ordinal=0)], NOW)

    with pytest.raises(StoreRefusedError):
        store.submit([job(lane, run=1, ordinal=0)], NOW)


def test_progress_is_written_only_for_the_dispatch_that_runs(store: SqliteStore) -> None:
    (lane,) = lanes_of(store)
    store.submit([job(lane)], NOW)
    (taken,) = claim(store, lane)

    store.apply(
        worker_sql.progress(
            progress="from another time", job=taken.id, worker="w1", dispatch=taken.dispatch + 1
        )
    )
    assert store.query(job_sql.job(job=taken.id))[0].progress is None
    store.apply(worker_sql.progress(progress="half", job=taken.id, worker="w1", dispatch=taken.dispatch))
    assert store.query(job_sql.job(job=taken.id))[0].progress == "half"


def test_a_heartbeat_brings_back_what_is_to_be_cancelled_of_ones_own(store: SqliteStore) -> None:
    (lane,) = lanes_of(store)
    store.start_worker("w2", NOW, 60)
    store.submit([job(lane), job(lane)], NOW)
    mine = claim(store, lane, 1)
    claim(store, lane, 1, worker="w2")
    for each in (1, 2):
        store.apply(job_sql.ask_to_cancel(job=each).touching(1))

    assert store.renew("w1", NOW, 60).cancel == tuple(each.id for each in mine)


def test_children_are_there_if_and_only_if_their_settlement_was_taken(store: SqliteStore) -> None:
    (lane,) = lanes_of(store)
    store.submit([job(lane)], NOW)
    (stale,) = claim(store, lane)
    store.stop_worker("w1")
    store.start_worker("w1", NOW, 60)
    (fresh,) = claim(store, lane)
    child = Child("shop", ("fetch",), job(lane, b'"child"', run_at=NOW + 500))

    assert exchange(store, "w1", [settlement(stale, children=(child,))]).lost == (stale.id,)
    assert statuses(store) == {"processing": 1}
    done = [settlement(fresh, children=(child, child))]
    exchange(store, "w1", done)
    exchange(store, "w1", done)

    assert statuses(store) == {"complete": 1, "queued": 2}
    assert store.read("SELECT parent_id FROM jobs WHERE id > 1") == [(fresh.id,)] * 2


def test_a_large_batch_is_settled_whole(store: SqliteStore) -> None:
    """More rows than any statement is made for, so that every size of it is used."""
    (lane,) = lanes_of(store)
    store.submit([job(lane) for _ in range(701)], NOW)
    taken: tuple[ClaimedJob, ...] = claim(store, lane, 701)

    exchange(store, "w1", [settlement(each) if each.id % 7 else burial(each) for each in taken])

    assert statuses(store) == recounted(store) == {"complete": 601, "failed": 100}
