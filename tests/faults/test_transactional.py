# SPDX-License-Identifier: Apache-2.0
"""Workers that are killed while a stage's writes and its settlement are one transaction: an effect takes place exactly once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from redrive import Job, Pipeline, connect, stage
from redrive.engine.worker.dispatch import SUSPECT_MIN
from redrive.store.postgres.store import PostgresStore
from tests.databases import Schemas
from tests.faults.herd import until

FLOW = """
import os
import signal
import threading
from pathlib import Path
from redrive import Context, Pipeline, stage
from redrive.store.postgres import stage_transactions

MOMENT, TABLE = os.environ.get("MOMENT", ""), os.environ["TABLE"]

def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)

def end() -> None:
    if MOMENT == "effect":
        Path(os.environ["SIGN"]).touch()
        threading.Event().wait()
    if MOMENT == "poison":
        die()

@stage(transactional=True)
def charge(number: int, ctx: Context) -> int:
    ctx.connection.execute(f"INSERT INTO {TABLE} VALUES (%s, %s)", (number, os.getpid()))
    end()
    return number

@stage(transactional=True, name="charge")
async def charge_async(number: int, ctx: Context) -> int:
    await ctx.connection.execute(f"INSERT INTO {TABLE} VALUES (%s, %s)", (number, os.getpid()))
    end()
    return number

@stage
def send(number: int) -> int:
    return number

settle, commit = stage_transactions.settle_at_once, stage_transactions.ServerStageTransaction._settle

def settled(*args: object) -> None:
    settle(*args)
    if MOMENT == "settled":
        die()

def committed(*args: object) -> bool:
    is_ours = commit(*args)
    if MOMENT == "committed":
        die()
    return is_ours

stage_transactions.settle_at_once = settled
stage_transactions.ServerStageTransaction._settle = committed
flow = Pipeline("charges", [charge_async if os.environ["KIND"] == "async" else charge, send])
"""
WORK = [
    sys.executable,
    "-c",
    "import charging, redrive; redrive.connect().work([charging.flow], until_idle=True)",
]
Effects = psycopg.Connection[tuple[Any, ...]]


@stage
def charge(number: int) -> int:
    return number


@stage
def send(number: int) -> int:
    return number


CHARGES = Pipeline("charges", [charge, send])


@pytest.fixture
def url(schemas: Schemas) -> str:
    return schemas.address("killed")


@pytest.fixture
def effects(schemas: Schemas, url: str) -> Generator[Effects]:
    name = f"{url.rpartition('=')[2]}_shop"
    with psycopg.connect(schemas.server, autocommit=True) as db:
        db.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE; CREATE SCHEMA {name}; SET search_path TO {name}")
        db.execute("CREATE TABLE effects (number bigint, process bigint)")
        yield db
        db.execute(f"DROP SCHEMA {name} CASCADE")


def reap(url: str, effects: Effects) -> None:
    """Let the lease of the worker end, which takes as long as it is otherwise."""
    store = PostgresStore(url)
    effects.execute(f"UPDATE {store.address.schema}.workers SET expires_at = 0")
    store.reap(0.0)
    store.close()


@pytest.fixture
def env(url: str, tmp_path: Path) -> dict[str, str]:
    (tmp_path / "charging.py").write_text(FLOW, encoding="utf-8")
    table = f"{url.rpartition('=')[2]}_shop.effects"
    given = {"REDRIVE_DATABASE_URL": url, "SIGN": str(tmp_path / "sign"), "TABLE": table}
    return {**os.environ, **given, "PYTHONPATH": str(tmp_path)}


@pytest.mark.parametrize(
    ("moment", "kind", "outcomes"),
    [
        ("effect", "sync", ["crashed", "ok", "ok"]),
        ("effect", "async", ["crashed", "ok", "ok"]),
        ("settled", "sync", ["crashed", "ok", "ok"]),
        ("committed", "async", ["ok", "ok"]),
    ],
)
def test_an_effect_takes_place_once_when_its_worker_is_killed(
    url: str, effects: Effects, env: dict[str, str], moment: str, kind: str, outcomes: list[str]
) -> None:
    env["KIND"] = kind
    with connect(url) as rd:
        job: Job[Any] = rd.submit(CHARGES, 7)

        with subprocess.Popen(WORK, env={**env, "MOMENT": moment}) as killed:
            if moment == "effect":
                until(Path(env["SIGN"]).exists)
                killed.kill()
            assert killed.wait(60) == -signal.SIGKILL
        reap(url, effects)
        subprocess.run(WORK, env=env, check=True, timeout=120)

        assert job.result(0) == 7
        assert [each.outcome for each in job.attempts()] == outcomes
    found = effects.execute("SELECT number, process FROM effects").fetchall()
    assert [number for number, _ in found] == [7]
    assert (found[0][1] == killed.pid) is (moment == "committed")


def test_a_stage_that_kills_its_worker_each_time_is_given_up(
    url: str, effects: Effects, env: dict[str, str]
) -> None:
    env |= {"KIND": "async", "MOMENT": "poison"}
    with connect(url) as rd:
        job: Job[Any] = rd.submit(CHARGES, 7)

        for _ in range(SUSPECT_MIN):
            assert subprocess.run(WORK, env=env, check=False, timeout=120).returncode == -signal.SIGKILL
            reap(url, effects)
        subprocess.run(WORK, env=env, check=True, timeout=120)

        assert (job.status, [each.outcome for each in job.attempts()]) == (
            "failed",
            [*["crashed"] * 3, "dead"],
        )
        assert job.facts.error_code == "WORKER_CRASH"
    assert effects.execute("SELECT number FROM effects").fetchall() == []
