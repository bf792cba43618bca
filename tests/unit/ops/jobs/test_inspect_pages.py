# SPDX-License-Identifier: Apache-2.0
"""Jobs by id, page by page, and their events from where one left off."""

from __future__ import annotations

import pytest

from redrive import Redrive
from redrive.errors import JobNotFoundError
from redrive.ops.jobs import inspect
from redrive.ops.jobs.inspect import JobFilter
from tests.unit.ops.test_pipelines import SHOP


def test_an_unknown_id_is_refused_with_ids_that_are_near(rd: Redrive) -> None:
    rd.submit_many(SHOP, range(1, 4))

    for wrong, words in (
        (5, "Close to it are: 1, 2, 3"),
        (-1, "Close to it are: 1, 2, 3"),
        (900, "The last job is 3"),
    ):
        with pytest.raises(JobNotFoundError) as refused:
            inspect.job_details(rd.store, wrong)
        assert words in refused.value.hint


def test_pages_of_jobs_join_without_gap_or_overlap(rd: Redrive) -> None:
    rd.submit_many(SHOP, range(1, 24))
    seen: list[int] = []
    before = None
    while page := inspect.list_jobs(rd.store, JobFilter(status="queued"), before=before, limit=5):
        seen += [line.id for line in page]
        before = page[-1].id

    assert seen == list(range(23, 0, -1))


def test_events_go_on_where_they_were_left(rd: Redrive) -> None:
    rd.submit_many(SHOP, [1, 2])
    rd.work([SHOP], until_idle=True)
    first = inspect.events_after(rd.store, 0, limit=3)
    rest = inspect.events_after(rd.store, first[-1].seq)

    assert [event.seq for event in (*first, *rest)] == [1, 2, 3, 4]
    assert inspect.last_event(rd.store) == 4
