# SPDX-License-Identifier: Apache-2.0
"""A worker whose store is gone, for a while or for good."""

from __future__ import annotations

import asyncio

import pytest

from redrive import Redrive
from redrive.engine.worker.leases import Leases
from redrive.errors import SchemaMismatchError, StoreUnavailableError
from redrive.store.records import WorkerFacts
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.unit.build import bounded, jobs, one_stage, turns, work, worker_on


def test_a_store_that_can_no_longer_be_worked_with_ends_the_worker_with_its_error(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def newer(*_args: object) -> object:
        raise SchemaMismatchError(database="x", found=9, known=1)

    async def scene() -> None:
        worker = worker_on(store, one_stage(lambda number: number, name="plain"))
        leases = Leases(store, clock, lease=30, on_dead=worker.declare_dead, on_lost_store=worker.lose_store)
        task = asyncio.ensure_future(worker.run())
        await turns()
        monkeypatch.setattr(store, "renew", newer)
        leases.beat(worker.name)
        await task

    with pytest.raises(SchemaMismatchError):
        bounded(scene())


def test_a_lease_begins_when_the_store_answers_and_not_when_it_was_asked_first(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, asked_at = store.start_worker, list[float]()

    def start_worker(worker: str, now: float, lease: float, about: WorkerFacts) -> None:
        asked_at.append(clock.wall() - now)
        if len(asked_at) < 5:
            raise StoreUnavailableError(database="x", cause="gone")
        start(worker, now, lease, about)

    monkeypatch.setattr(store, "start_worker", start_worker)
    work(store, one_stage(lambda number: number, name="plain"))

    assert asked_at == [0.0] * 5


@pytest.mark.parametrize("when", ["exchange", "upcoming"])
def test_a_worker_that_dies_during_an_outage_continues_under_a_new_name(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    async def scene() -> str:
        pipeline = one_stage(lambda number: number, name="plain")
        rd.submit(pipeline, 1, priority=0)
        worker = worker_on(store, pipeline)
        answer = getattr(store, when)

        def dying(*args: object, **options: object) -> object:
            if worker.name == "w1":
                store.reap(clock.wall() + 1_000)
                worker.declare_dead(worker.name)
                raise StoreUnavailableError(database="x", cause="gone")
            return answer(*args, **options)

        monkeypatch.setattr(store, when, dying)
        await worker.run(until_idle=True)
        return worker.name

    assert bounded(scene()) == "w2"
    assert jobs(store) == [("complete",)]
