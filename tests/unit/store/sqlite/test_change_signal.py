# SPDX-License-Identifier: Apache-2.0
"""The signal that reports changes of the store, and the idle worker that it wakes."""

from __future__ import annotations

import asyncio
import ctypes
import select
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

from redrive import Pipeline, connect, stage
from redrive.engine.worker import idle
from redrive.store.protocol import ChangeSignal
from redrive.store.sqlite import change_signal, file_lock
from redrive.store.sqlite.store import SqliteStore
from redrive.store.statements import jobs as job_sql
from redrive.testing.conformance.build import NOW, lanes_of, new


@stage
def double(number: int) -> int:
    return 2 * number


FLOW = Pipeline("doubles", [double])


def is_readable(signal: ChangeSignal) -> bool:
    return bool(select.select([signal], [], [], 0)[0])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def store(path: Path) -> Generator[SqliteStore]:
    with closing(SqliteStore(path)) as made:
        yield made


@pytest.fixture
def signal(store: SqliteStore) -> Generator[ChangeSignal]:
    made = store.change_signal()
    assert made is not None
    with closing(made):
        yield made


@pytest.mark.parametrize("is_same", [True, False])
def test_the_signal_reports_what_anybody_writes_until_it_is_cleared(
    store: SqliteStore, path: Path, signal: ChangeSignal, is_same: bool
) -> None:
    with closing(SqliteStore(path)) as other:
        writer = store if is_same else other
        assert not is_readable(signal)

        writer.submit([new(lanes_of(writer)[0])], NOW)

        assert is_readable(signal)
        signal.clear()
        assert not is_readable(signal)
        signal.clear()


def test_the_signal_is_silent_while_everybody_only_reads(store: SqliteStore, signal: ChangeSignal) -> None:
    store.query(job_sql.counts())
    store.upcoming([])

    assert not is_readable(signal)


def test_a_store_in_memory_has_no_signal() -> None:
    with closing(SqliteStore(":memory:")) as store:
        assert store.change_signal() is None


def test_a_file_that_cannot_be_watched_has_no_signal(tmp_path: Path) -> None:
    assert change_signal.change_signal(str(tmp_path / "missing")) is None


def test_a_system_without_inotify_has_no_signal(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())

    assert store.change_signal() is None


@pytest.mark.parametrize("has_signal", [True, False])
def test_an_idle_worker_starts_what_another_process_submits_without_waiting_for_its_next_poll(
    path: Path, monkeypatch: pytest.MonkeyPatch, has_signal: bool
) -> None:
    monkeypatch.setattr(idle, "POLL_SECONDS", 3_600.0)
    if not has_signal:
        monkeypatch.setattr(file_lock, "change_signal", lambda _: None)

    async def submit_to_an_idle_worker() -> list[object]:
        async with connect(path) as worker, connect(path) as rd:
            working = asyncio.ensure_future(worker.work([FLOW]))
            made = [await rd.submit(FLOW, number) for number in range(3)]
            results: list[object] = [await each.result(timeout=30) for each in made]
            results.append(await (await rd.submit(FLOW, 3)).result(timeout=30))
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            return results

    assert asyncio.run(submit_to_an_idle_worker()) == [0, 2, 4, 6]
