# SPDX-License-Identifier: Apache-2.0
"""The desks of a connection for async code: the methods of the sync ones, to await, with the same names and filters.

Nothing is written twice: `awaited` takes a method of a sync desk, with its signature and its words, and asks it on a thread, so
that the loop never waits for a disk. Written out are only the methods whose answer is something else in async code.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from itertools import islice
from typing import Concatenate, Final, Generic, ParamSpec, TypeVar, Unpack

from redrive.client.async_job import AsyncJob
from redrive.client.letters import DeadLetters, Doing, Replays, Which
from redrive.client.reports import Reports
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.runs.runs import RunBook
from redrive.engine.schedules import ScheduleBook

STEP: Final = 200
"""Lines of an export that are fetched at once."""

D = TypeVar("D")
P = ParamSpec("P")
T = TypeVar("T")


class AsyncDesk(Generic[D]):
    """What stands before a sync desk."""

    def __init__(self, desk: D) -> None:
        self.desk = desk
        """The sync one."""


def awaited(
    method: Callable[Concatenate[D, P], T],
) -> Callable[Concatenate[AsyncDesk[D], P], Coroutine[None, None, T]]:
    """Return a method of a sync desk as one to await, with the same signature and the same words."""

    @functools.wraps(method)
    async def ask(at: AsyncDesk[D], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(method, at.desk, *args, **kwargs)

    return ask


class AsyncRuns(AsyncDesk[RunBook]):
    """What is known about runs; see `RunBook`. What moves a run is the matter of whoever drives it, and not here."""

    add = awaited(RunBook.add)
    report = awaited(RunBook.report)
    options = awaited(RunBook.options)
    is_fed = awaited(RunBook.is_fed)
    latest = awaited(RunBook.latest)


class AsyncSchedules(AsyncDesk[ScheduleBook]):
    """The schedules of a store; see `ScheduleBook`."""

    put = awaited(ScheduleBook.put)
    drop = awaited(ScheduleBook.drop)
    all = awaited(ScheduleBook.all)


class AsyncDeadLetters(AsyncDesk[DeadLetters]):
    """What failed for good; see `DeadLetters`."""

    list = awaited(DeadLetters.list)
    groups = awaited(DeadLetters.groups)
    show = awaited(DeadLetters.show)
    choose = awaited(DeadLetters.choose)
    triage = awaited(DeadLetters.triage)
    remediate = awaited(DeadLetters.remediate)
    discard = awaited(DeadLetters.discard)
    restore = awaited(DeadLetters.restore)
    assign = awaited(DeadLetters.assign)
    note = awaited(DeadLetters.note)
    take_in = awaited(DeadLetters.take_in)

    async def export(
        self,
        *,
        with_values: bool = False,
        actor: str = "api",
        reason: str | None = None,
        **which: Unpack[Which],
    ) -> AsyncIterator[bytes]:
        """Give letters as redacted JSON lines, one after the other: `async for line in rd.dead_letters.export()`."""
        lines = await asyncio.to_thread(
            self.desk.export, with_values=with_values, actor=actor, reason=reason, **which
        )
        while some := await asyncio.to_thread(lambda: [*islice(lines, STEP)]):
            for line in some:
                yield line


class AsyncReports(AsyncDesk[Reports]):
    """One job explained, and many added up; see `Reports`."""

    explain = awaited(Reports.explain)
    timeline = awaited(Reports.timeline)
    retries = awaited(Reports.retries)
    errors = awaited(Reports.errors)
    stages = awaited(Reports.stages)
    account = awaited(Reports.account)


class AsyncReplays(AsyncDesk[Replays]):
    """The way back for what failed; see `Replays`."""

    validate = awaited(Replays.validate)
    start = awaited(Replays.start)
    report = awaited(Replays.report)
    list = awaited(Replays.list)
    pause = awaited(Replays.pause)
    resume = awaited(Replays.resume)
    cancel = awaited(Replays.cancel)
    close = awaited(Replays.close)
    edit = awaited(Replays.edit)
    edits = awaited(Replays.edits)
    erase = awaited(Replays.erase)

    async def retry(
        self,
        job: int,
        *,
        from_start: bool = False,
        owner: str | None = None,
        pipelines: Iterable[Pipeline] = (),
        **doing: Unpack[Doing],
    ) -> AsyncJob:
        """Send a failed job back to the stage that failed; see `Replays.retry`."""
        back = await asyncio.to_thread(
            self.desk.retry, job, from_start=from_start, owner=owner, pipelines=pipelines, **doing
        )
        return AsyncJob(back)
