# SPDX-License-Identifier: Apache-2.0
"""The connection: submitting, looking, working, and what is refused."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive import ConfigurationError, Pipeline, Redrive, connect, stage
from redrive.client import connection
from redrive.engine.pipeline import submission
from redrive.errors import JobNotFoundError, SerializationError
from redrive.store.records import ClaimRequest, ExchangeRequest
from redrive.testing import VirtualClock, virtual_time
from tests.databases import Address


@stage
def double(number: int) -> int:
    return number * 2


@stage
def show(number: int) -> str:
    if number == 26:
        raise PermissionError(13, "denied")
    return f"it is {number}"


SHOP = Pipeline("shop", [double, show])


def test_jobs_are_submitted_worked_on_and_accounted_for(rd: Redrive) -> None:
    made = rd.submit(SHOP, 4)
    ids = rd.submit_many(SHOP, range(10, 15))
    rd.work([SHOP], until_idle=True)

    assert (made.status, rd.job(made.id).status) == ("complete", "complete")
    assert [rd.job(each).status for each in ids] == ["complete"] * 3 + ["failed"] + ["complete"]
    failed = rd.job(ids[3]).facts
    assert (failed.stage, failed.error_code) == ("show", "IO_DENIED")
    assert rd.jobs.counts() == {"complete": 5, "failed": 1}


def test_a_key_is_unique_and_says_so(rd: Redrive) -> None:
    first = rd.submit(SHOP, 1, key="order-1", owner="ann")
    second = rd.submit(SHOP, 1, key="order-1")

    assert (second.id, second.is_duplicate, first.is_duplicate) == (first.id, True, False)


@pytest.mark.untraced
def test_a_job_waits_until_it_may_run(rd: Redrive) -> None:
    with virtual_time() as clock:
        start = clock.wall()
        rd.submit(SHOP, 1, run_at=datetime.fromtimestamp(start, UTC) + timedelta(minutes=2))
        rd.work([SHOP], until_idle=True)

        assert clock.wall() - start >= 120
    assert rd.jobs.counts() == {"complete": 1}


def test_many_jobs_are_stored_in_batches(rd: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BATCH", 10)

    assert rd.submit_many(SHOP, range(25)) == list(range(1, 26))
    assert rd.submit_many(SHOP, []) == []


def test_a_payload_that_does_not_fit_is_refused_at_once_naming_the_field(
    rd: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SerializationError, match="double"):
        rd.submit(SHOP, "four")
    with pytest.raises(SerializationError, match="double"):
        rd.submit(SHOP, object())
    monkeypatch.setattr(submission, "PAYLOAD_MAX", 3)
    with pytest.raises(SerializationError, match="limit is 3 bytes"):
        rd.submit(SHOP, 10_000)

    assert rd.jobs.counts() == {}


@pytest.mark.parametrize(
    ("misuse", "field"),
    [
        (lambda rd: rd.submit(SHOP, 1, priority=10), "priority"),
        (lambda rd: rd.submit(SHOP, 1, priority="high"), "priority"),
        (
            lambda rd: rd.submit(SHOP, 1, run_at=datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)),
            "run_at",
        ),
        (lambda rd: rd.work([SHOP], concurrency=0), "concurrency"),
        (lambda rd: rd.work([SHOP], lease=0), "lease"),
        (lambda rd: rd.work([SHOP], until_idle=True, health=("127.0.0.1", 99_999)), "health"),
        (lambda rd: rd.work([SHOP], until_idle=True, health=("127.0.0.1", True)), "health"),
        (lambda rd: rd.work([SHOP], until_idle=True, health=8080), "health"),
        (lambda rd: rd.work([SHOP], until_idle=True, health=("", 8080)), "health"),
        (lambda rd: rd.work(["shop"], until_idle=True), "pipelines"),
        (lambda rd: rd.submit("shop", 1), "pipeline"),
        (lambda rd: rd.run("shop", [1]), "pipeline"),
        (lambda rd: rd.run(SHOP, 5), "items"),
        (lambda rd: rd.job("x"), "job_id"),
        (lambda rd: rd.jobs.cancel("x"), "job_id"),
        (lambda rd: rd.jobs.cancel(True), "job_id"),
        (lambda _rd: connect(5), "url"),  # type: ignore[arg-type]
        (lambda _rd: connect(b"jobs.db"), "url"),  # type: ignore[arg-type]
        (lambda _rd: connect("mysql://u:secret@host/db"), "url"),
        (lambda _rd: connect("sqlite://"), "url"),
    ],
)
def test_misuse_is_refused_by_name(rd: Redrive, misuse: object, field: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        misuse(rd)  # type: ignore[operator]

    assert field in refused.value.field
    assert "secret" not in str(refused.value)
    assert rd.jobs.counts() == {}
    assert rd.runs.latest() == []


@pytest.mark.parametrize("given", [SHOP, "shop", None, 5])
def test_work_asks_for_a_list_of_pipelines(rd: Redrive, given: Any) -> None:
    with pytest.raises(ConfigurationError, match="must be a list of pipelines"):
        rd.work(given, until_idle=True)


def test_misuse_is_refused_in_async_code_as_well(rd: Redrive, address: Address) -> None:
    async def scene() -> None:
        async with connect(address("jobs")) as here:
            for misuse in (
                lambda: here.work(SHOP, until_idle=True),  # type: ignore[arg-type]
                lambda: here.run("shop", [1]),  # type: ignore[arg-type]
                lambda: here.run(SHOP, [1], thresholds=(0.4, 0.1)),  # type: ignore[arg-type]
            ):
                with pytest.raises(ConfigurationError):
                    await misuse()

    asyncio.run(scene())

    assert rd.runs.latest() == []


def test_several_pipelines_may_come_from_anything_that_yields_them(rd: Redrive) -> None:
    rd.submit(SHOP, 1)

    assert rd.work((each for each in [SHOP]), until_idle=True) == "idle"  # type: ignore[arg-type]
    assert rd.jobs.counts() == {"complete": 1}


def test_work_says_how_to_call_it_from_async_code(rd: Redrive) -> None:
    async def wrong() -> None:
        rd.work([SHOP])

    async def right() -> None:
        await asyncio.to_thread(rd.work, [SHOP], until_idle=True)

    rd.submit(SHOP, 1)
    with pytest.raises(ConfigurationError, match="Write: await"):
        asyncio.run(wrong())
    asyncio.run(right())

    assert rd.jobs.counts() == {"complete": 1}


def test_an_unknown_job_is_said_to_be_unknown(rd: Redrive) -> None:
    with pytest.raises(JobNotFoundError, match="no job 99"):
        rd.job(99)


@pytest.mark.parametrize(
    ("url", "environment", "made"),
    [
        ("jobs.db", None, "jobs.db"),
        ("sqlite:///some.db", None, "some.db"),
        ("sqlite:///{here}/abs.db", None, "abs.db"),
        (None, "sqlite:///env.db", "env.db"),
        (None, None, "redrive.db"),
    ],
)
def test_where_the_jobs_live(
    url: str | None, environment: str | None, made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REDRIVE_DATABASE_URL", raising=False)
    if environment:
        monkeypatch.setenv("REDRIVE_DATABASE_URL", environment)

    with connect(url.format(here=tmp_path) if url else None):
        pass

    assert (tmp_path / made).is_file()
    with connect(tmp_path / made) as found:
        assert found.jobs.counts() == {}


def test_a_second_worker_takes_over_what_a_dead_one_held(rd: Redrive, address: Address) -> None:
    rd.submit(SHOP, 1)
    clock = VirtualClock()
    with virtual_time(clock=clock), connect(address("jobs")) as other:
        other.store.start_worker("gone", clock.wall(), 5)
        lanes = other.store.lanes("shop", ["double", "show"])
        other.store.exchange(
            ExchangeRequest("gone", [], ClaimRequest(tuple(lanes), 1), now=clock.wall() + 1e9, token=1)
        )
        other.store.reap(clock.wall() + 1e10)
    rd.work([SHOP], until_idle=True)

    assert rd.jobs.counts() == {"complete": 1}
