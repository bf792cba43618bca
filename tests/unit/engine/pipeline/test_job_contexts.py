# SPDX-License-Identifier: Apache-2.0
"""Context variables: every run has those of the program that started the worker, and none that another job set."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar

import pytest

from redrive import Redrive
from redrive.store.sqlite.store import SqliteStore
from tests.unit.build import bounded, one_stage, threaded_parts, worker_on

TENANT: ContextVar[str] = ContextVar("tenant", default="nobody")

Factory = Callable[[asyncio.AbstractEventLoop, Coroutine[object, object, object]], "asyncio.Task[object]"]


def plain_tasks(
    loop: asyncio.AbstractEventLoop, body: Coroutine[object, object, object]
) -> asyncio.Task[object]:
    """Make tasks as programs did before tasks could be given a context."""
    return asyncio.Task(body, loop=loop)


@pytest.mark.parametrize("factory", [None, plain_tasks])
def test_what_an_async_stage_sets_is_not_there_for_the_job_that_takes_its_place(
    store: SqliteStore, rd: Redrive, factory: Factory | None
) -> None:
    seen: list[str] = []

    async def serve(number: int) -> int:
        seen.append(TENANT.get())
        TENANT.set(f"tenant {number}")
        await asyncio.sleep(0)
        return number

    pipeline = one_stage(serve)
    rd.submit_many(pipeline, range(20))

    async def scene() -> None:
        asyncio.get_running_loop().set_task_factory(factory)  # type: ignore[arg-type]
        TENANT.set("the program's")
        await worker_on(store, pipeline, concurrency=2).run(until_idle=True)

    bounded(scene())
    assert seen == ["the program's"] * 20


def test_what_a_sync_stage_sets_is_not_there_for_the_next_job_on_its_thread(
    store: SqliteStore, rd: Redrive
) -> None:
    seen: list[str] = []

    def serve(number: int) -> int:
        seen.append(TENANT.get())
        TENANT.set(f"tenant {number}")
        return number

    pipeline = one_stage(serve)
    rd.submit_many(pipeline, range(20))

    async def scene() -> None:
        TENANT.set("the program's")
        await worker_on(store, pipeline, parts=threaded_parts(1)).run(until_idle=True)

    bounded(scene())
    assert seen == ["the program's"] * 20


def test_what_a_stage_set_on_its_thread_is_not_there_where_its_failure_is_settled(
    store: SqliteStore, rd: Redrive
) -> None:
    seen: list[str] = []

    class Refused(Exception):
        def __str__(self) -> str:
            seen.append(TENANT.get())
            return "refused"

    def serve(number: int) -> int:
        TENANT.set(f"tenant {number}")
        raise Refused

    pipeline = one_stage(serve)
    rd.submit_many(pipeline, range(5))

    async def scene() -> None:
        await worker_on(store, pipeline, parts=threaded_parts(1), concurrency=1).run(until_idle=True)

    bounded(scene())
    assert set(seen) == {"nobody"}
