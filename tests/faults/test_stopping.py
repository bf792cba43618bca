# SPDX-License-Identifier: Apache-2.0
"""A worker that is stopped ends although nothing can be stored, and an outage does not fill the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from redrive import Pipeline, Redrive, stage
from redrive.engine.worker.leases import Leases
from redrive.engine.worker.runner import GRACE_SECONDS
from redrive.engine.worker.worker import Ending, Worker
from redrive.errors import StoreUnavailableError
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import virtual_time
from tests.inline import inline_parts

from .flows import Order
from .fulldisk import Limited, noticed
from .herd import Herd, Scene, until

NINE_MINUTES = 540.0


class FillingStore(SqliteStore):
    """A store whose disk fills up."""

    is_full = False

    @contextmanager
    def _writing(self, **how: bool) -> Generator[object]:  # type: ignore[override]
        if self.is_full:
            raise StoreUnavailableError(database="jobs.db", cause="database or disk is full")
        with super()._writing(**how) as db:
            yield db


def warnings_of(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    return [message for message in caplog.messages if text in message]


@pytest.mark.parametrize("full_for", [0.0, NINE_MINUTES])
def test_a_stopped_worker_ends_within_its_grace_time_while_the_disk_is_full(
    caplog: pytest.LogCaptureFixture, full_for: float
) -> None:
    store, filled = FillingStore(":memory:"), asyncio.Event()

    @stage
    async def fill(number: int) -> int:
        store.is_full = True
        filled.set()
        return number

    with virtual_time() as clock, caplog.at_level(logging.WARNING, "redrive.worker"):
        pipeline = Pipeline("flow", [fill])
        Redrive(store).submit(pipeline, 1)

        async def scene() -> tuple[Ending, float]:
            worker = Worker(store, [pipeline], inline_parts(), names=iter(["w1"]))
            working = asyncio.ensure_future(worker.run())
            await filled.wait()
            await clock.asleep(full_for)
            worker.stop()
            stopped_at = clock.monotonic()
            return await working, clock.monotonic() - stopped_at

        ending, took = asyncio.run(scene())

    assert ending == "stopped"
    assert GRACE_SECONDS <= took <= GRACE_SECONDS + 3
    assert len(warnings_of(caplog, "the store did not answer")) <= 11
    assert len(warnings_of(caplog, "leases not released; they will expire")) == 1
    assert store.read("SELECT status FROM jobs") == [("processing",)]


def test_a_stopped_worker_waits_for_a_store_that_comes_back_in_time() -> None:
    store, filled = FillingStore(":memory:"), asyncio.Event()

    @stage
    async def fill(number: int) -> int:
        store.is_full = True
        filled.set()
        return number

    with virtual_time() as clock:
        pipeline = Pipeline("flow", [fill])
        Redrive(store).submit(pipeline, 1)

        async def scene() -> Ending:
            worker = Worker(store, [pipeline], inline_parts(), names=iter(["w1"]))
            working = asyncio.ensure_future(worker.run())
            await filled.wait()
            worker.stop()
            await clock.asleep(GRACE_SECONDS / 2)
            store.is_full = False
            return await working

        assert asyncio.run(scene()) == "stopped"

    assert store.read("SELECT status FROM jobs") == [("complete",)]
    assert store.read("SELECT count(*) FROM workers") == [(0,)]


def test_warnings_of_a_heartbeat_back_off_and_begin_anew_after_an_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = FillingStore(":memory:")
    with virtual_time() as clock, caplog.at_level(logging.WARNING, "redrive.worker"):
        store.start_worker("w1", clock.wall(), 30)
        leases = Leases(store, clock, lease=30, on_dead=lambda _: None)
        for _ in range(2):
            store.is_full = True
            for _ in range(100):
                leases.beat("w1")
            store.is_full = False
            leases.beat("w1")

    # The 1st, 2nd, 4th, 8th, 16th, 32nd and 64th of each outage.
    assert len(warnings_of(caplog, "no contact with the store")) == 14


def test_sigterm_ends_a_real_worker_whose_files_may_not_grow(scene: Scene) -> None:
    scene.submit([Order(0, "gate"), *(Order(number, seconds=0.01) for number in range(1, 60))])

    with Herd(scene, "--once", concurrency=8) as herd:
        until((scene.here / "ready-0").exists)
        Limited().fill(herd)
        until(lambda: len(noticed(herd.log())) == 1, what="the worker notices")
        herd.terminate()
        (scene.here / "gate").touch()
        assert herd.wait(6 * GRACE_SECONDS) == 0

    assert "leases not released; they will expire" in herd.log()
    with Herd(scene, "--until-idle") as herd:
        assert herd.wait() == 0
    assert scene.breaches() == []
    assert scene.count("status = 'complete'") == 60
