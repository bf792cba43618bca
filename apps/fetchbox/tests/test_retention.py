# SPDX-License-Identifier: Apache-2.0
"""Retention in virtual time: a worker deletes tasks, snapshots and dead letters at the ticks of the schedule, each at its age."""

from __future__ import annotations

import asyncio
from pathlib import Path

from nats.js.api import StreamConfig

from apps.fetchbox.api.jobs import Jobs, Order, Snapshot
from apps.fetchbox.api.routes import schedule_retention
from apps.fetchbox.manifest import Manifest, Resource
from apps.fetchbox.pipeline import pipeline_of
from apps.fetchbox.settings import JobType, Settings
from apps.fetchbox.tests.box import Box, task, until
from redrive import Redrive, connect
from redrive.engine.retention import RetentionDriver
from redrive.ops.audit import operations
from redrive.sinks.nats import connected
from redrive.testing import VirtualClock
from redrive.web import ProblemError
from tests.embedded import read_rows
from tests.inline import at_once

DAY = 86_400.0
SHA = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"


def ticked(rd: Redrive, clock: VirtualClock) -> dict[str, int]:
    """Let the part of a worker that prunes look once; return what was deleted.

    Not a whole worker: beside its threads virtual time would run away.
    """
    asyncio.run(RetentionDriver(rd.store, clock, name=lambda: "w1", ask_store=at_once).prune_due())
    return {kind: count for kind, count in (rd.schedules.list()[0].deleted or {}).items() if count}


def worked(rd: Redrive, settings: Settings) -> tuple[float, float]:
    """Work until the sink has the letter, because it is not deleted before; return when the first and the last thing ended."""

    def is_delivered() -> bool:
        rd.work([pipeline_of(settings)], until_idle=True)
        return bool(rd.letters.list().letters[0].receipts)

    until(is_delivered)
    ((first, last),) = read_rows(
        rd,
        "SELECT min(at), max(at) FROM (SELECT finished_at AS at FROM jobs UNION ALL SELECT ended_at FROM runs) ends",
    )
    return first, last


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
        first, last = worked(rd, settings)
        schedule_retention(rd, settings)
        found: list[tuple[dict[str, int], Snapshot | str, int]] = []

        for days in (7, 30, 90):
            for at in (first + (days - 0.1) * DAY, last + (days + 0.1) * DAY):
                clock.advance(at - clock.wall())
                found.append((ticked(rd, clock), seen(jobs), len(rd.letters.list().letters)))

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
