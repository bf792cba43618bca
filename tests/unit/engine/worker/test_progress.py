# SPDX-License-Identifier: Apache-2.0
"""What stages say about how far they are: written beside the heartbeat, never before it, and only what has changed."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

import pytest

from redrive import Context, Redrive
from redrive.engine.worker import progress as module
from redrive.engine.worker.dead_letter import literals_of, safe_text
from redrive.engine.worker.leases import Heartbeat, Leases
from redrive.engine.worker.progress import Progress
from redrive.engine.worker.threads import BackgroundThread
from redrive.errors import StoreUnavailableError
from redrive.store.records import ClaimedJob
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.unit.build import STUCK_SECONDS, bounded, jobs, leases_of, one_stage, until, worker_on, working

LEASE = 30.0


class Scene:
    """Jobs that run until they are dropped, whose stages report what a test wants."""

    def __init__(self, store: SqliteStore, rd: Redrive, count: int) -> None:
        self.store = store
        self.contexts: dict[int, Context] = {}
        self.pipeline = one_stage(self.wait, name="wait")
        rd.submit_many(self.pipeline, [{"customer": f"customer number {n}"} for n in range(count)])
        self.worker = worker_on(store, self.pipeline, lease=LEASE)
        self.count = count

    async def wait(self, _order: dict[str, str], ctx: Context) -> None:
        self.contexts[ctx.job_id] = ctx
        await asyncio.Event().wait()

    def say(self, text: str, *which: int) -> None:
        for number in which or self.contexts:
            self.contexts[number].progress(1, 2, text)

    def write(self) -> None:
        self.worker.progress.write(self.worker.name)

    @property
    def written(self) -> list[object]:
        return [text for (text,) in jobs(self.store, "progress")]


def played(store: SqliteStore, rd: Redrive, play: Callable[[Scene], None], *, count: int = 1) -> None:
    """Play something while all jobs of a scene run."""

    async def scene() -> None:
        made = Scene(store, rd, count)
        async with working(made.worker):
            await until(lambda: len(made.contexts) == count)
            play(made)

    bounded(scene())


def test_the_lease_is_renewed_before_progress_is_written(store: SqliteStore, clock: VirtualClock) -> None:
    held_for: list[float] = []

    def write(worker: str) -> None:
        ((ends_at,),) = store.read("SELECT expires_at FROM workers WHERE id = ?", (worker,))
        held_for.append(float(str(ends_at)) - clock.wall())

    store.start_worker("w1", clock.wall(), LEASE)
    leases = Leases(store, clock, lease=LEASE, on_dead=lambda _name: None, progress=write)
    clock.advance(LEASE / 3)
    leases.beat("w1")

    assert held_for == [pytest.approx(LEASE)]


def test_nothing_is_written_under_a_name_that_the_store_does_not_know(
    store: SqliteStore, clock: VirtualClock
) -> None:
    written: list[str] = []
    leases = Leases(store, clock, lease=LEASE, on_dead=lambda _name: None, progress=written.append)
    leases.beat("nobody")

    assert written == []


@pytest.mark.usefixtures("clock")
def test_what_has_not_changed_is_neither_redacted_nor_written_again(
    store: SqliteStore, rd: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    redacted: list[str] = []

    def counted(text: str, literals: dict[str, str]) -> str:
        redacted.append(text)
        return safe_text(text, literals)

    monkeypatch.setattr(module, "safe_text", counted)

    def play(scene: Scene) -> None:
        scene.say("pages")
        scene.write()
        counter = store.change_counter()
        scene.write()
        assert store.change_counter() == counter
        scene.say("leaves", 1)
        scene.write()
        assert scene.written == ["1 of 2 leaves", "1 of 2 pages"]

    played(store, rd, play, count=2)
    assert redacted == ["1 of 2 pages", "1 of 2 pages", "1 of 2 leaves"]


@pytest.mark.usefixtures("clock")
def test_the_values_of_a_job_are_looked_up_once_for_each_run(
    store: SqliteStore, rd: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def counted(job: ClaimedJob) -> dict[str, str]:
        asked.append(job.id)
        return literals_of(job)

    monkeypatch.setattr(module, "literals_of", counted)

    def play(scene: Scene) -> None:
        for text in ("a", "b", "for customer number 0"):
            scene.say(text)
            scene.write()
        assert str(scene.written[0]).startswith("1 of 2 for <payload:")

    played(store, rd, play)
    assert asked == [1]


def test_what_there_was_no_time_for_comes_first_the_next_time(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a stage that always reports something new does not keep the others from being written."""

    def slow(text: str, literals: dict[str, str]) -> str:
        clock.advance(LEASE / 12)
        return safe_text(text, literals)

    monkeypatch.setattr(module, "safe_text", slow)

    def play(scene: Scene) -> None:
        scene.say("one")
        for written in (2, 4, 5):
            began = clock.monotonic()
            scene.say(f"before {written}", 1, 2)
            scene.write()
            assert clock.monotonic() - began <= LEASE / 6 + 0.001
            assert sum(text is not None for text in scene.written) == written

    played(store, rd, play, count=5)


@pytest.mark.usefixtures("clock")
def test_progress_the_store_did_not_take_is_written_the_next_time_and_the_lease_is_renewed_all_the_same(
    store: SqliteStore,
    rd: Redrive,
    clock: VirtualClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def gone(*_steps: object) -> None:
        raise StoreUnavailableError(database="x", cause="gone")

    def play(scene: Scene) -> None:
        leases = leases_of(store, clock, scene.worker, lease=LEASE)
        scene.say("pages")
        clock.advance(LEASE / 3)
        with monkeypatch.context() as down:
            down.setattr(store, "apply", gone)
            leases.beat(scene.worker.name)
        assert (scene.written, leases.silent_for()) == ([None], 0.0)
        leases.beat(scene.worker.name)
        assert scene.written == ["1 of 2 pages"]

    played(store, rd, play)
    assert "progress is written later" in caplog.text


@pytest.mark.usefixtures("clock")
def test_a_text_that_cannot_be_redacted_is_left_out_once_and_keeps_nobody_waiting(
    store: SqliteStore, rd: Redrive, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def choosy(text: str, literals: dict[str, str]) -> str:
        if "bad" in text:
            raise ValueError(text)
        return safe_text(text, literals)

    monkeypatch.setattr(module, "safe_text", choosy)

    def play(scene: Scene) -> None:
        scene.say("bad", 1)
        scene.say("good", 2)
        scene.write()
        scene.write()
        assert scene.written == [None, "1 of 2 good"]

    with caplog.at_level(logging.WARNING):
        played(store, rd, play, count=2)
    assert caplog.text.count("job 1: its progress could not be redacted: ValueError") == 1
    assert "bad" not in caplog.text


def test_a_worker_whose_progress_takes_for_ever_to_write_is_not_reaped(
    store: SqliteStore, clock: VirtualClock
) -> None:
    """However often its heartbeat comes meanwhile, what came up is written once more, and not each time."""
    rounds: list[int] = []
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def write() -> None:
        rounds.append(1)
        begun.set()
        assert go_on.wait(STUCK_SECONDS)
        if len(rounds) == 2:
            ended.set()

    dead: list[str] = []
    for name in ("w1", "reaper"):
        store.start_worker(name, clock.wall(), LEASE)
    thread = BackgroundThread("redrive-progress", write)
    mine = Leases(store, clock, lease=LEASE, on_dead=dead.append, progress=lambda _name: thread.wake())
    heartbeat = Heartbeat(mine, lambda: "w1", lease=LEASE)
    reaper = Leases(store, clock, lease=LEASE, on_dead=dead.append)
    thread.start()
    heartbeat.run_once()
    assert begun.wait(STUCK_SECONDS)
    for _ in range(12):
        clock.advance(LEASE / 3)
        reaper.beat("reaper")
        heartbeat.run_once()

    assert dead == []
    go_on.set()
    assert ended.wait(STUCK_SECONDS)
    thread.stop()
    assert len(rounds) == 2


def test_a_progress_thread_continues_after_an_error_and_logs_it_redacted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rounds: list[int] = []
    again = threading.Event()

    def write() -> None:
        rounds.append(1)
        if len(rounds) == 1:
            thread.wake()
            raise RuntimeError("signing in with Bearer ghp_0123456789abcdef0123456789abcdef0123")
        again.set()

    thread = BackgroundThread("redrive-progress", write)
    thread.start()
    thread.wake()

    assert again.wait(STUCK_SECONDS)
    thread.stop()
    assert "redrive-progress failed and will run again: RuntimeError: signing in" in caplog.text
    assert "ghp_" not in caplog.text


def test_a_worker_writes_progress_on_a_thread_of_its_own(
    filed: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    written_on: list[str] = []
    names: list[str] = []
    written = threading.Event()
    plain = Progress.write

    def seen(self: Progress, worker: str) -> None:
        plain(self, worker)
        written_on.append(threading.current_thread().name)
        names.append(worker)
        written.set()

    monkeypatch.setattr(Progress, "write", seen)

    registered: list[str] = []

    def wait(number: int) -> int:
        assert written.wait(STUCK_SECONDS)
        registered.extend(each.id for each in filed.pipelines.workers())
        return number

    pipeline = one_stage(wait)
    filed.submit(pipeline, 1)
    filed.work([pipeline], until_idle=True, lease=600.0)

    assert written_on[0] == "redrive-progress"
    assert names[:1] == registered


@pytest.mark.usefixtures("clock")
def test_progress_that_could_not_be_written_is_written_with_the_next_heartbeat(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_args: object) -> object:
        raise StoreUnavailableError(database="x", cause="gone")

    async def scene() -> None:
        going = asyncio.Event()

        async def count(_number: int, ctx: Context) -> None:
            ctx.progress(1, 4)
            going.set()
            await asyncio.Event().wait()

        pipeline = one_stage(count)
        rd.submit(pipeline, 1)
        worker = worker_on(store, pipeline)
        leases = leases_of(store, clock, worker)
        async with working(worker):
            await going.wait()
            with monkeypatch.context() as down:
                down.setattr(store, "renew", unreachable)
                leases.beat(worker.name)
            leases.beat(worker.name)
            assert rd.job(1).facts.progress == "1 of 4"

    bounded(scene())
