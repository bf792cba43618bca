# SPDX-License-Identifier: Apache-2.0
"""What the worker logs about errors that should not have happened: redacted, and without a traceback."""

from __future__ import annotations

import asyncio

import pytest

from redrive import Redrive
from redrive.engine.error_text import error_text
from redrive.engine.worker.leases import Heartbeat, Leases
from redrive.engine.worker.runner import Runner
from redrive.engine.worker.threads import StageThreads
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.unit.build import bounded, jobs, one_stage, until, worker_on

TOKEN = "ghp_0123456789abcdef0123456789abcdef0123"
SAID = f"signing in with Bearer {TOKEN}"


def broken(*_args: object, **_options: object) -> object:
    try:
        raise ConnectionResetError(SAID)
    except ConnectionResetError as error:
        raise RuntimeError(SAID) from error


def is_logged(caplog: pytest.LogCaptureFixture, line: str) -> bool:
    assert TOKEN not in caplog.text
    return f"{line}: RuntimeError: signing in with Bearer <redacted:" in caplog.text


def test_a_heartbeat_that_broke_is_logged_without_secrets(
    store: SqliteStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(store, "renew", broken)
    leases = Leases(store, clock, lease=30.0, on_dead=lambda _name: None)

    Heartbeat(leases, lambda: "w1", lease=30.0).run_once()

    assert is_logged(caplog, "redrive-heartbeat failed and will run again")


def test_an_outcome_that_cannot_be_taken_in_is_logged_without_secrets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        heard: list[int] = []
        threads = StageThreads(1)
        threads.start(lambda of: of, 1, broken)  # type: ignore[arg-type]
        threads.start(lambda of: of, 2, lambda _of, result: heard.append(result))
        await until(lambda: heard)
        threads.close()

    bounded(scene())

    assert is_logged(caplog, "the result of a stage could not be delivered")


@pytest.mark.usefixtures("clock")
def test_a_job_that_cannot_be_settled_is_logged_without_secrets_and_values(
    store: SqliteStore, rd: Redrive, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def worse(*_args: object) -> object:
        raise RuntimeError(f"{SAID} for Annabel Lee of the sea")

    async def go(order: str) -> str:
        return order

    async def scene() -> None:
        task = asyncio.ensure_future(worker_on(store, pipeline).run())
        await until(lambda: "stays leased" in caplog.text)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    pipeline = one_stage(go)
    rd.submit(pipeline, "Annabel Lee of the sea")
    monkeypatch.setattr(Runner, "decide_now", broken)
    monkeypatch.setattr(Runner, "decide_broken", worse)
    bounded(scene())

    assert is_logged(caplog, "job 1 could not be settled and stays leased")
    assert "Annabel" not in caplog.text
    assert jobs(store) == [("queued",)]


def test_an_error_that_cannot_show_itself_is_named() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise ValueError(SAID)

    assert error_text(MuteError()).startswith("MuteError")
    assert TOKEN not in error_text(MuteError())


def test_an_error_that_cannot_be_redacted_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.redaction.process.redact_start", broken)

    assert error_text(ValueError(SAID)) == "ValueError"
