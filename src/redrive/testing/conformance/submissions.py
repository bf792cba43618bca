# SPDX-License-Identifier: Apache-2.0
"""Lanes, and jobs that are stored: their ids, keys, runs, and values of any size.

What is handed out afterwards, and in which order, is the subject of `claims`.
"""

from __future__ import annotations

import pytest

from redrive.errors import StoreError
from redrive.store.protocol import Store
from redrive.store.records import INLINE_MAX
from redrive.store.statements import jobs as job_sql
from redrive.store.statements import runs as run_sql
from redrive.testing.conformance import build
from redrive.testing.conformance.build import NOW, Scene, agree, holds, lanes_of

SIZES = [INLINE_MAX - 1, INLINE_MAX, INLINE_MAX + 1, 1_000_000]
"""Bytes of values on both sides of the limit up to which they stand in the job's own row."""


def text_of(size: int) -> bytes:
    """Return a JSON text of so many bytes."""
    return b'"' + b"x" * (size - 2) + b'"'


class SubmissionTests(Scene):
    """Storing jobs."""

    def test_the_trace_of_a_submitter_is_stored_with_its_jobs(self, store: Store) -> None:
        """However they are submitted, and only for those that have one."""
        (lane,) = lanes_of(store)
        many = store.submit([build.new(lane, trace=trace) for trace in (None, "00-1", "00-2")], NOW)
        keyed = store.submit([build.new(lane, key="k", trace=trace) for trace in ("00-3", "00-4")], NOW)

        ids: list[int] = [*dict.fromkeys(one.id for one in (*many, *keyed))]
        found = store.query(job_sql.traces(ids=ids))
        agree(sorted(found, key=repr), [(ids[1], "00-1"), (ids[2], "00-2"), (ids[3], "00-3")])

    def test_lanes_keep_their_ids_and_new_stages_get_new_ones(self, store: Store) -> None:
        """A lane is (pipeline, stage), whatever stands between its neighbours."""
        fetch, review = lanes_of(store, "fetch", "review")
        again = lanes_of(store, "fetch", "check", "review")

        agree(again[::2], [fetch, review])
        holds(again[1] not in {fetch, review})
        holds(lanes_of(store, "fetch", pipeline="other") != [fetch])

    def test_submitted_jobs_get_ids_in_order_and_are_queued(self, store: Store) -> None:
        """Ids grow within a batch and from batch to batch."""
        (lane,) = lanes_of(store)
        made = store.submit([build.new(lane), build.new(lane)], NOW) + store.submit([build.new(lane)], NOW)

        ids = [one.id for one in made]
        agree(ids, sorted(set(ids)))
        agree([one.is_duplicate for one in made], [False] * 3)
        agree(build.statuses(store), {"queued": 3})
        agree(store.submit([], NOW), [])

    def test_a_job_keeps_what_it_was_submitted_with(self, store: Store) -> None:
        """Priority, key, owner, parent, and both times."""
        (lane,) = lanes_of(store)
        (parent,) = store.submit([build.new(lane)], NOW)
        changes = {"priority": 2, "key": "k", "owner": "o", "run_at": NOW + 5, "expires_at": NOW + 50}
        (made,) = store.submit([build.new(lane, parent=parent.id, **changes)], NOW)

        seen = build.facts(store, made.id)
        agree((seen.priority, seen.key, seen.owner, seen.parent), (2, "k", "o", parent.id))
        agree((seen.run_at.timestamp(), seen.created_at.timestamp()), (NOW + 5, NOW))
        agree(seen.expires_at and seen.expires_at.timestamp(), NOW + 50)
        (_, one) = build.claim(store, lane, now=NOW + 5)[::-1]
        agree((one.id, one.expires_at), (made.id, NOW + 50))

    def test_a_job_may_have_expired_before_anybody_counted_time(self, store: Store) -> None:
        """The first instant of the epoch is a time like any other."""
        (lane,) = lanes_of(store)
        store.submit([build.new(lane, expires_at=0.0)], NOW)

        agree([one.expires_at for one in build.claim(store, lane)], [0.0])

    @pytest.mark.parametrize("end", ["queued", "processing", "complete"])
    def test_a_key_belongs_to_one_queued_processing_or_complete_job(self, store: Store, end: str) -> None:
        """Who submits it again gets that job; other keys are not touched."""
        (lane,) = lanes_of(store)
        (made,) = store.submit([build.new(lane, key="a")], NOW)
        if end != "queued":
            (one,) = build.claim(store, lane)
            build.exchange(store, "w1", [build.settlement(one)] if end == "complete" else [])

        duplicate, other = store.submit([build.new(lane, key="a"), build.new(lane, key="b")], NOW)

        agree((duplicate.id, duplicate.is_duplicate, other.is_duplicate), (made.id, True, False))

    @pytest.mark.parametrize("end", [build.burial, build.cancellation])
    def test_the_key_of_a_failed_or_cancelled_job_is_free(self, store: Store, end: build.Settle) -> None:
        """What was given up may be submitted again."""
        one = build.taken(store, key="a")
        build.exchange(store, "w1", [end(one)])

        (made,) = store.submit([build.new(one.lane, key="a")], NOW)

        holds(not made.is_duplicate)
        which = job_sql.JobTerms(1 << 62, None, None, None, None, None, 10)
        found = store.query(job_sql.list_of_key(which=which, key="a"))
        agree([row.id for row in found], [made.id, one.id])

    def test_keys_are_per_pipeline(self, store: Store) -> None:
        """Two pipelines may use one key; two stages of one pipeline share it."""
        fetch, review = lanes_of(store, "fetch", "review")
        (elsewhere,) = lanes_of(store, pipeline="other")

        made = store.submit([build.new(lane, key="a") for lane in (fetch, elsewhere, review)], NOW)

        agree([one.is_duplicate for one in made], [False, False, True])

    def test_duplicates_within_one_batch_are_one_job(self, store: Store) -> None:
        """The second of them is a duplicate of the first."""
        (lane,) = lanes_of(store)

        first, second = store.submit([build.new(lane, key="a"), build.new(lane, key="a")], NOW)

        agree((second.id, second.is_duplicate), (first.id, True))
        agree(build.statuses(store), {"queued": 1})

    @pytest.mark.parametrize("size", SIZES)
    def test_a_payload_of_any_size_comes_out_as_it_went_in(self, store: Store, size: int) -> None:
        """In a batch with a small one, and again after a worker gave it back."""
        (lane,) = lanes_of(store)
        store.submit([build.new(lane, text_of(size)), build.new(lane, b"1")], NOW)

        agree([one.input for one in build.claim(store, lane)], [text_of(size), b"1"])
        store.stop_worker("w1")
        agree([one.input for one in build.claim(store, lane, worker="w2")], [text_of(size), b"1"])

    def test_an_ordinal_of_a_run_is_taken_once(self, store: Store) -> None:
        """A batch that holds one again is refused whole; another run has ordinals of its own."""
        (lane,) = lanes_of(store)
        run, other = build.new_run(store), build.new_run(store)
        store.submit([build.new(lane, run=run, ordinal=place) for place in range(3)], NOW)

        with pytest.raises(StoreError):
            store.submit([build.new(lane, run=run, ordinal=3), build.new(lane, run=run, ordinal=2)], NOW)
        store.submit([build.new(lane, run=other, ordinal=2)], NOW)

        agree(build.statuses(store), {"queued": 4})
        agree(store.query(run_sql.run(run=run))[0][8], 3)

    @pytest.mark.parametrize("size", SIZES)
    def test_the_items_of_a_run_can_be_read_back_by_their_ordinals(self, store: Store, size: int) -> None:
        """So that a resumed run can check whether its source still yields the same."""
        (lane,) = lanes_of(store)
        run = build.new_run(store)
        items = enumerate([b"0", text_of(size), b"2"])
        store.submit([build.new(lane, each, run=run, ordinal=place) for place, each in items], NOW)

        agree(store.query(run_sql.run_payloads(run=run, first=1, end=3)), [(1, text_of(size)), (2, b"2")])
