# SPDX-License-Identifier: Apache-2.0
"""A power cut: real submits, claims, settles and checkpoints on a disk that remembers, cut off anywhere, and what is left judged.

Whatever somebody relied on before the cut must be there after it: a submit that returned, a stage whose successor ran, a dead letter
of which a hook was called, a result that was read.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import cast

from redrive import Context, Job, Pipeline, Redrive, connect, stage
from redrive.errors import RedriveError
from redrive.ops.checkup.integrity import check_integrity
from redrive.store.sqlite.store import SqliteStore
from tests.faults.disk import Disk, Event, Fact, Recorder

ROUNDS = 3
JOBS = 6
CHECKPOINT_PAGES = 25
"""Write the log back after so many pages, so that it happens many times."""
VALUE = "x" * 1_500


def recorded(folder: Path) -> list[Event]:
    """Submit and work, a few times, with the database closed in between; return what happened on the disk."""
    recorder = Recorder(folder)

    @stage
    def first(number: int, ctx: Context) -> str:
        recorder.relies_on("started", ctx.job_id, "first")
        return VALUE * (number % 4)

    @stage
    async def second(value: str, ctx: Context) -> str:
        recorder.relies_on("ok", ctx.job_id, "first")
        if len(value) == len(VALUE):
            raise KeyError(ctx.job_id)
        return value

    async def on_dead(letter: object) -> None:
        recorder.relies_on("dead", cast("int", getattr(letter, "job_id")))  # noqa: B009 - a hook's message has it.

    flow = Pipeline("flow", [first, second], on_dead=on_dead)
    with recorder.recording():
        for _ in range(ROUNDS):
            with connect(folder / "jobs.db") as rd:
                store = cast("SqliteStore", rd.store)
                store._db.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
                submit_and_work(rd, flow, recorder)
    return recorder.events


def submit_and_work(rd: Redrive, flow: Pipeline, recorder: Recorder) -> None:
    jobs: list[Job] = []
    for number in range(JOBS):
        jobs.append(rd.submit(flow, number))
        recorder.relies_on("submitted", jobs[-1].id)
    for job_id in rd.submit_many(flow, range(JOBS)):
        recorder.relies_on("submitted", job_id)
    rd.work([flow], until_idle=True, concurrency=4)
    for job in jobs:
        if job.status == "complete":
            job.result()
            recorder.relies_on("ok", job.id, "second")


def losses(folder: Path, events: list[Event], *, seed: int, cuts: int) -> Generator[str]:
    """Cut the power at so many places; yield what is missing or broken afterwards."""
    chance = random.Random(seed)
    # A cut just after somebody relied on something is the hardest one.
    facts = [place + 1 for place, event in enumerate(events) if isinstance(event, Fact)]
    places = [
        chance.choice(facts) if chance.random() < 0.5 else chance.randrange(len(events)) for _ in range(cuts)
    ]
    disk = Disk(events)
    left = folder / "left"
    for place in sorted(places):
        disk.advance(place)
        shutil.rmtree(left, ignore_errors=True)
        left.mkdir()
        disk.cut(left, chance)
        for loss in judged(left / "jobs.db", disk.facts):
            yield f"seed {seed}, cut at {place} of {len(events)}: {loss}"


def judged(database: Path, facts: list[Fact]) -> list[str]:
    """Open what is left; return what is missing or broken."""
    if not facts and not database.exists():
        return []
    try:
        with connect(database) as rd:
            # What `doctor --deep` adds: pages, references, and every counter against a recount.
            found = [each.sentence for each in check_integrity(rd.store) if each.level == "problem"]
    except RedriveError as error:
        return [str(error)]
    with closing(sqlite3.connect(database)) as db:
        known = {
            "submitted": {(job, "") for (job,) in db.execute("SELECT id FROM jobs")},
            "started": {(job, "first") for (job,) in db.execute("SELECT id FROM jobs WHERE dispatch > 0")},
            "ok": set(
                db.execute(
                    "SELECT job_id, stage FROM attempts JOIN lanes ON lanes.id = lane_id WHERE outcome = 'ok'"
                )
            ),
            "dead": {(job, "") for (job,) in db.execute("SELECT job_id FROM dead_letters")},
        }
    return found + [
        f"lost: {fact.kind} {fact.job} {fact.stage}"
        for fact in facts
        if (fact.job, fact.stage) not in known[fact.kind]
    ]
