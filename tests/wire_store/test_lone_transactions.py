# SPDX-License-Identifier: Apache-2.0
"""A job that is suspected of killing workers has its transaction in a process of its own: exactly once there, too."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from redrive import Job, Pipeline, Redrive
from redrive.engine.worker.dispatch import SUSPECT_MIN
from redrive.engine.worker.processes import Processes
from redrive.store.callers import RefusedSettlementError
from redrive.store.postgres.stage_transactions import ServerStageTransaction
from redrive.store.postgres.store import PostgresStore

from .lone_stages import CHARGES, CHARGES_ASYNC, Order

Effects = psycopg.Connection[tuple[Any, ...]]
FLOWS = [CHARGES, CHARGES_ASYNC]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run on a thread what would run in a process, one at a time: a process has one transaction."""
    monkeypatch.setattr(Processes, "_pool", lambda _self, size: ThreadPoolExecutor(size))


def schema_of(url: str) -> str:
    return url.rpartition("=")[2]


def suspects(rd: Redrive, url: str, effects: Effects, flow: Pipeline, *moments: str) -> list[Job[Any]]:
    """Submit a job for each moment, under suspicion of having killed workers."""
    table = f"{schema_of(url)}_shop.effects"
    jobs: list[Job[Any]] = [rd.submit(flow, Order(table, place, each)) for place, each in enumerate(moments)]
    effects.execute(f"UPDATE {schema_of(url)}.jobs SET suspect_count = {SUSPECT_MIN}")
    return jobs


def written(effects: Effects) -> list[int]:
    return [row[0] for row in effects.execute("SELECT number FROM effects ORDER BY 1").fetchall()]


def outcomes(job: Job[Any]) -> list[str]:
    return [each.outcome for each in job.attempts()]


def test_it_is_given_up_when_its_process_dies_before_the_commit_and_done_when_it_dies_after(
    rd: Redrive, url: str, effects: Effects
) -> None:
    good, poison, settled, committed = jobs = suspects(
        rd, url, effects, CHARGES, "", "effect", "settled", "committed"
    )

    rd.work([CHARGES], until_idle=True)

    assert outcomes(good) == outcomes(committed) == ["ok"]
    assert outcomes(poison) == outcomes(settled) == ["crashed", "dead"]
    assert [job.facts.error_code for job in jobs] == [None, "WORKER_CRASH", "WORKER_CRASH", None]
    assert good.result(0) != os.getpid()
    assert [len(job.children()) for job in jobs] == [1, 0, 0, 1]
    assert written(effects) == [0, 3, 1_000, 1_003]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("flow", FLOWS, ids=["sync", "async"])
def test_what_it_wrote_is_committed_with_its_checkpoint_or_rolled_back(
    rd: Redrive, url: str, effects: Effects, flow: Pipeline
) -> None:
    jobs = suspects(rd, url, effects, flow, "", "raise", "constraint")

    rd.work([flow], until_idle=True, concurrency=1)

    assert [outcomes(job) for job in jobs] == [["ok"], ["dead"], ["dead"]]
    assert [job.facts.error_code for job in jobs] == [None, "BUG_CODE", "CONFLICT"]
    assert [len(job.children()) for job in jobs] == [1, 0, 0]
    assert written(effects) == [0, 1_000]


@pytest.mark.usefixtures("here")
def test_a_lease_that_was_lost_meanwhile_rolls_it_back(
    rd: Redrive, url: str, effects: Effects, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle, seen = ServerStageTransaction.settle, list[str]()

    def lose(self: ServerStageTransaction, worker: str, one: Any) -> bool:
        if not seen:
            store = PostgresStore(url)
            effects.execute(f"UPDATE {schema_of(url)}.workers SET expires_at = 0")
            store.reap(0.0)
            store.close()
        seen.append(worker)
        return settle(self, worker, one)

    monkeypatch.setattr(ServerStageTransaction, "settle", lose)
    (job,) = suspects(rd, url, effects, CHARGES, "")

    rd.work([CHARGES], until_idle=True, concurrency=1)

    assert outcomes(job) == ["crashed", "ok"]
    assert len(set(seen)) == 2
    assert written(effects) == [0, 1_000]


@pytest.mark.usefixtures("here")
def test_a_settlement_that_cannot_be_stored_is_a_failure_of_the_stage(
    rd: Redrive, url: str, effects: Effects, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: ServerStageTransaction, _worker: str, _one: Any) -> bool:
        self.roll_back()
        raise RefusedSettlementError(None)

    monkeypatch.setattr(ServerStageTransaction, "settle", refuse)
    (job,) = suspects(rd, url, effects, CHARGES, "")

    rd.work([CHARGES], until_idle=True, concurrency=1)

    assert (outcomes(job), job.facts.error_code) == (["dead"], "SCHEMA_INVALID")
    assert written(effects) == []


@pytest.mark.usefixtures("here")
def test_a_database_that_refuses_its_session_is_a_failure_of_the_attempt(
    rd: Redrive, url: str, effects: Effects, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed, close = list[PostgresStore](), PostgresStore.close

    def closing(store: PostgresStore) -> None:
        closed.append(store)
        close(store)

    def refuse(*_args: object, **_options: object) -> None:
        raise psycopg.errors.TooManyConnections

    monkeypatch.setattr("redrive.store.postgres.stage_transactions.ServerStageTransactions.begin", refuse)
    monkeypatch.setattr(PostgresStore, "close", closing)
    (job,) = suspects(rd, url, effects, CHARGES, "")

    rd.work([CHARGES], until_idle=True, concurrency=1)

    assert (outcomes(job), written(effects)) == (["dead"], [])
    assert [store.address.schema for store in closed] == [schema_of(url)]
