# SPDX-License-Identifier: Apache-2.0
"""Submitting many jobs: in batches, by key, for a run; and what is said when one of them cannot be stored."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from redrive import ConfigurationError, Pipeline, Redrive, connect, stage
from redrive.client import connection
from redrive.core.budget import RunStatus
from redrive.core.stop_reason import LongHold
from redrive.engine.runs.runs import RunOptions, Runs
from redrive.errors import RunError, SerializationError
from redrive.testing import virtual_time
from tests.databases import Address


@stage
def double(number: int) -> int:
    return number * 2


SHOP = Pipeline("shop", [double])
OTHER = Pipeline("other", [double])


@pytest.fixture(autouse=True)
def _batches_of_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BATCH", 10)


def test_a_bad_payload_is_named_by_its_place_with_the_ids_of_what_was_stored_before(rd: Redrive) -> None:
    payloads = [*range(25), "x", *range(5)]

    with pytest.raises(SerializationError) as refused:
        rd.submit_many(SHOP, payloads)

    assert (refused.value.index, refused.value.stored) == (25, tuple(range(1, 21)))
    assert "payload 25, counting from 0" in str(refused.value)
    assert "20 jobs were stored before it" in str(refused.value)
    assert "payloads[20:]" in refused.value.hint
    assert rd.jobs.counts() == {"queued": 20}


def test_a_bad_payload_in_the_first_batch_leaves_nothing(rd: Redrive) -> None:
    with pytest.raises(SerializationError, match="no job was stored before it") as refused:
        rd.submit_many(SHOP, [1, 2, "x"])

    assert (refused.value.index, refused.value.stored) == (2, ())
    assert rd.jobs.counts() == {}


def test_after_a_refusal_the_rest_can_be_submitted_by_what_the_error_says(rd: Redrive) -> None:
    payloads: list[object] = [*range(12), "x", 13]
    with pytest.raises(SerializationError) as refused:
        rd.submit_many(SHOP, payloads)

    payloads[12] = 12
    ids = [*refused.value.stored, *rd.submit_many(SHOP, payloads[len(refused.value.stored) :])]

    assert ids == list(range(1, 15))


def test_a_source_that_raises_says_what_was_stored_before(rd: Redrive) -> None:
    def source() -> Iterator[int]:
        yield from range(15)
        raise LookupError("no more")

    with pytest.raises(LookupError, match="no more") as raised:
        rd.submit_many(SHOP, source())

    assert raised.value.__notes__ == ["submit_many had stored 10 jobs before it, with the ids 1 to 10"]


def test_a_key_made_of_the_payload_keeps_jobs_from_being_made_twice(rd: Redrive) -> None:
    def key(number: object) -> str | None:
        return None if number == 3 else f"order-{number}"

    first = rd.submit_many(SHOP, [1, 2, 3], key=key)
    again = rd.submit_many(SHOP, [1, 2, 3, 4], key=key)

    assert again[:2] == first[:2]
    assert again[2] != first[2]
    assert rd.jobs.counts() == {"queued": 5}


def test_a_bad_key_is_refused_with_the_place_of_its_payload(rd: Redrive) -> None:
    with pytest.raises(ConfigurationError, match=r"key of payload 11 ") as refused:
        rd.submit_many(SHOP, range(20), key=lambda number: "" if number == 11 else f"k{number}")

    assert refused.value.__notes__ == ["submit_many had stored 10 jobs before it, with the ids 1 to 10"]
    with pytest.raises(ConfigurationError, match="a function of the payload"):
        rd.submit_many(SHOP, range(20), key="order")  # type: ignore[arg-type]


def test_many_jobs_may_expire(rd: Redrive) -> None:
    with virtual_time() as clock:
        start = datetime.fromtimestamp(clock.wall(), UTC)
        rd.submit_many(SHOP, [1, 2], expires_at=start + timedelta(hours=1))
        clock.advance(7_200)
        rd.work([SHOP], until_idle=True)

    assert rd.jobs.counts() == {"failed": 2}


def test_jobs_submitted_for_a_run_are_its_items_and_the_run_is_driven_without_a_source(rd: Redrive) -> None:
    run = rd.runs.add("shop", RunOptions(), 0.0)

    ids = rd.submit_many(SHOP, range(12), run=run)
    ids += rd.submit_many(SHOP, range(12, 15), run=run)

    report = rd.runs.report(run)
    assert (report.total, report.open, rd.runs.is_fed(run)) == (15, 15, True)
    assert [rd.job(each).facts.run for each in ids] == [run] * 15
    assert rd.run(SHOP, None, resume=run).succeeded == 15


def test_a_run_that_is_paused_keeps_what_is_added(rd: Redrive) -> None:
    run = rd.runs.add("shop", RunOptions(), 0.0)
    rd.submit_many(SHOP, [1], run=run)
    Runs(rd.store).end(run, RunStatus.PAUSED, LongHold(seconds=9.0), 0.0)

    rd.submit_many(SHOP, [2], run=run)

    assert [rd.job(each).facts.waiting for each in (1, 2)] == ["paused"] * 2
    assert rd.run(SHOP, None, resume=run).succeeded == 2


def test_a_run_takes_no_jobs_that_are_not_its_own(rd: Redrive) -> None:
    over = rd.run(SHOP, [1]).id
    with pytest.raises(SerializationError):
        rd.run(SHOP, [1, object()])
    unfed = rd.runs.latest()[0].id
    fresh = rd.runs.add("shop", RunOptions(), 0.0)
    before = rd.jobs.counts()

    with pytest.raises(RunError, match="has ended as completed"):
        rd.submit_many(SHOP, [1], run=over)
    with pytest.raises(RunError, match="belongs to the pipeline shop"):
        rd.submit_many(OTHER, [1], run=fresh)
    with pytest.raises(RunError, match="there is no such run"):
        rd.submit_many(SHOP, [1], run=99)
    with pytest.raises(RunError, match="read only up to item 1, not to its end"):
        rd.submit_many(SHOP, [1], run=unfed)
    with pytest.raises(ConfigurationError, match="key"):
        rd.submit_many(SHOP, [1], run=fresh, key=str)

    assert rd.jobs.counts() == before


def test_it_is_the_same_to_await(address: Address) -> None:
    async def scene() -> tuple[list[int], list[int]]:
        later = datetime.now(UTC) + timedelta(hours=1)
        async with connect(address("async")) as rd:
            first = await rd.submit_many(SHOP, [1, 2], key=str, expires_at=later)
            return first, await rd.submit_many(SHOP, [1, 2], key=str)

    first, again = asyncio.run(scene())

    assert first == again == [1, 2]
