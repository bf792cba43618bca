# SPDX-License-Identifier: Apache-2.0
"""Errors of our own while an attempt runs or is settled: a failure of that attempt, and the worker continues."""

from __future__ import annotations

import logging

import pytest

from redrive import Redrive
from redrive.engine.pipeline.lanes import Lane
from redrive.engine.worker.dispatch import Dispatch
from redrive.engine.worker.runner import Runner
from redrive.engine.worker.slots import WorkerParts
from redrive.store.sqlite.store import SqliteStore
from tests.inline import InlineThreads, at_once
from tests.unit.build import ONCE, bounded, jobs, one_stage, turns, until, work, worker_on, working


@pytest.mark.usefixtures("clock")
def test_an_error_of_our_own_while_settling_is_logged_and_the_worker_continues(
    store: SqliteStore, rd: Redrive, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled = Runner.decide

    async def broken(self: Runner, dispatch: Dispatch, ended: object) -> object:
        if dispatch.job.id == 1:
            raise ZeroDivisionError("our own")
        return await settled(self, dispatch, ended)  # type: ignore[arg-type]

    monkeypatch.setattr(Runner, "decide", broken)
    monkeypatch.setattr(Runner, "decide_now", lambda *_: None)

    async def scene() -> None:
        pipeline = one_stage(lambda number: 1 / number, name="divide", retry=ONCE)
        rd.submit_many(pipeline, [0, 0])
        async with working(worker_on(store, pipeline)):
            await until(lambda: rd.jobs.counts().get("failed"))
            await turns()

    with caplog.at_level(logging.ERROR):
        bounded(scene())
    assert jobs(store, "status, error_message") == [("failed", "our own"), ("failed", "division by zero")]


@pytest.mark.usefixtures("clock")
def test_an_error_of_our_own_at_the_end_of_a_sync_stage_is_a_failure_of_its_attempt(
    store: SqliteStore, rd: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide_now = Runner.decide_now

    def broken(self: Runner, dispatch: Dispatch, ended: bytes | Exception) -> object:
        if isinstance(ended, bytes):
            raise ZeroDivisionError("our own")
        return decide_now(self, dispatch, ended)

    monkeypatch.setattr(Runner, "decide_now", broken)

    async def scene() -> None:
        pipeline = one_stage(lambda number: number, name="plain", retry=ONCE)
        rd.submit(pipeline, 1)
        async with working(worker_on(store, pipeline)):
            await until(lambda: rd.jobs.counts().get("failed"))

    bounded(scene())
    assert "our own" in str(jobs(store, "error_message"))


@pytest.mark.usefixtures("clock")
def test_a_process_that_cannot_even_be_started_is_a_failure_of_the_attempt(
    store: SqliteStore, rd: Redrive
) -> None:
    class Broken:
        size = 1

        def can_run(self, _lane: Lane) -> bool:
            return True

        async def run(self, _dispatch: Dispatch, *, is_alone: bool) -> bytes:
            raise OSError(12, "out of memory")

    pipeline = one_stage(lambda number: number, name="crunch", process=True, retry=ONCE)
    rd.submit(pipeline, 1)
    work(store, pipeline, parts=WorkerParts(ask_store=at_once, threads=InlineThreads(), processes=Broken()))

    assert jobs(store) == [("failed",)]
