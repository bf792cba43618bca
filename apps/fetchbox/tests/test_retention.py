# SPDX-License-Identifier: Apache-2.0
"""Retention in virtual time: a worker deletes tasks, snapshots and dead letters at the ticks of the schedule, each at its age."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from pathlib import Path

import pytest
from nats.js.api import StreamConfig

from apps.fetchbox.api.jobs import Jobs, Order, Snapshot
from apps.fetchbox.api.routes import schedule_retention
from apps.fetchbox.manifest import Manifest, Resource
from apps.fetchbox.pipeline import pipeline_of
from apps.fetchbox.settings import JobType, Settings
from apps.fetchbox.tests.box import Box, task
from redrive import Redrive, connect
from redrive.ops.audit import operations
from redrive.sinks.nats import connected
from redrive.testing import VirtualClock, virtual_time
from redrive.web import ProblemError

DAY = 86_400.0
SHA = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"


@pytest.fixture
def clock() -> Generator[VirtualClock]:
    with virtual_time() as virtual:
        yield virtual


def ticked(rd: Redrive, settings: Settings) -> dict[str, int]:
    """Let a worker run until the schedule has ticked; return what was deleted."""
    before = rd.schedules.list()[0].last_at

    async def scene() -> None:
        async with connect(settings.database) as own:
            working = asyncio.ensure_future(own.work([pipeline_of(settings)]))
            async with asyncio.timeout(30):
                while (await own.schedules.list())[0].last_at == before:  # noqa: ASYNC110 - nobody signals a row.
                    await asyncio.sleep(0)
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    asyncio.run(scene())
    return {kind: count for kind, count in (rd.schedules.list()[0].deleted or {}).items() if count}


def seen(jobs: Jobs) -> Snapshot | str:
    try:
        return jobs.snapshot("fb-1", "default")
    except ProblemError as error:
        return error.problem.code


def test_tasks_snapshots_and_dead_letters_are_deleted_each_at_its_age_and_counted(
    clock: VirtualClock, tmp_path: Path
) -> None:
    settings = Settings(folder=str(tmp_path))
    (tmp_path / "objects").mkdir()
    (tmp_path / "objects/there").write_bytes(b"hello")
    manifest = Manifest(version=1, resources=[Resource("a", "http://a.example/")])
    order = Order(
        manifest=manifest, body=b"{}", kind=JobType(), tenant="default", trace_id="", idempotency_key=None
    )
    with connect(settings.database) as rd:
        jobs = Jobs(rd, pipeline_of(settings))
        # Neither needs a network: the object of two is there, the type of the third is not.
        good = [task(task_id=name, key="there", sha256=SHA, url="http://a.example/") for name in "ab"]
        jobs.open(order, "fb-1", [*good, task(task_id="c", type="gone", url="http://a.example/")])
        rd.work([pipeline_of(settings)], until_idle=True)
        schedule_retention(rd, settings)
        ended_at = clock.wall()
        found: list[tuple[dict[str, int], Snapshot | str, int]] = []

        for days in (6.9, 7.1, 29.9, 30.1, 89.9, 90.1):
            clock.advance(ended_at + days * DAY - clock.wall())
            found.append((ticked(rd, settings), seen(jobs), len(rd.letters.list().letters)))

        logged = [each.reason for each in operations(rd.store) if each.verb == "prune"]
    deleted, snapshots, letters = zip(*found, strict=True)
    assert deleted == ({}, {"complete": 2}, {}, {"runs": 1}, {}, {"failed": 1})
    # A snapshot still counts the tasks that are gone.
    for each in snapshots[:3]:
        assert isinstance(each, Snapshot)
        assert (each.status, each.resources_completed, each.resources_failed) == ("failed", 2, 1)
    assert snapshots[3:] == ("VALIDATION_UNKNOWN_JOB",) * 3
    assert letters == (1, 1, 1, 1, 1, 0)
    assert len(logged) == 6


def test_the_stream_keeps_its_messages_as_long_as_dead_letters_are_kept(box: Box) -> None:
    box.done("/status/404/aged")

    async def read() -> StreamConfig:
        client = await connected(box.broker.url)
        try:
            return (await client.jetstream().stream_info("jobs-dlq")).config
        finally:
            await client.close()

    assert asyncio.run(read()).max_age == 90 * DAY
