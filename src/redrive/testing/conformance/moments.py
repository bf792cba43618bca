# SPDX-License-Identifier: Apache-2.0
"""Reads of one moment: what is changed meanwhile is not seen, and nobody waits for anybody."""

from __future__ import annotations

import pytest

from redrive.errors import StoreRefusedError
from redrive.store.protocol import Store
from redrive.store.statements import jobs as job_sql
from redrive.testing.conformance.build import NOW, Scene, agree, lanes_of, new, statuses, taken


class MomentTests(Scene):
    """Questions that belong together."""

    def test_what_is_changed_between_two_questions_is_not_seen(self, store: Store) -> None:
        """Neither a new job, nor one that has moved; the store itself sees both, and so does the next moment."""
        (lane,) = lanes_of(store)
        store.submit([new(lane)], NOW)

        with store.reading() as moment:
            before = moment.query(job_sql.counts())
            store.submit([new(lane)], NOW)
            taken(store)
            agree(moment.query(job_sql.counts()), before)
            agree(moment.query(job_sql.recount()), before)

        with store.reading() as moment:
            agree(sum(row.jobs for row in moment.query(job_sql.counts())), 3)

    def test_a_moment_begins_with_the_scope_not_with_the_first_question(self, store: Store) -> None:
        """Who asks late gets the same answer."""
        (lane,) = lanes_of(store)

        with store.reading() as moment:
            store.submit([new(lane)], NOW)
            agree(moment.query(job_sql.counts()), [])
        agree(statuses(store), {"queued": 1})

    def test_several_moments_can_be_read_at_once(self, store: Store) -> None:
        """Each sees its own."""
        (lane,) = lanes_of(store)

        with store.reading() as first:
            store.submit([new(lane)], NOW)
            with store.reading() as second:
                store.submit([new(lane)], NOW)
                seen = [
                    len(moment.query(job_sql.nearest_jobs(first=0, last=9))) for moment in (first, second)
                ]

        agree(seen, [0, 1])

    def test_an_error_ends_the_scope_and_the_next_one_works(self, store: Store) -> None:
        """Whatever went wrong in it."""
        lanes_of(store)
        with pytest.raises(LookupError), store.reading():
            raise LookupError

        with store.reading() as moment:
            agree(moment.query(job_sql.counts()), [])

    def test_a_closed_store_has_no_moments(self, store: Store) -> None:
        """As it answers no questions."""
        store.close()

        with pytest.raises(StoreRefusedError), store.reading():
            pass
