# SPDX-License-Identifier: Apache-2.0
"""A small world for the real worker: virtual time, several workers on one store, and faults from a seed.

Nothing here models the engine: the workers, leases and breakers are the real ones, on the real SQLite store in memory. A fault is a
store call that fails before it does anything, one whose answer is lost after it was committed, a worker that dies between two store
calls and never touches the store again, or one that freezes for longer than its lease and then goes on as if nothing had happened; and
for all of them, an outage of the store that is longer than a lease, or a jump of the clock. At a moment from the seed all faults stop,
and everything has to settle. The ledger of effects stands outside the store and is what the store is judged by.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, cast
from unittest import mock

from redrive import (
    Backoff,
    Breaker,
    Context,
    Finish,
    Jitter,
    Pipeline,
    Redrive,
    RetryPolicy,
    Skip,
    stage,
)
from redrive.engine.runtime import CURRENT
from redrive.engine.worker import prefetch
from redrive.engine.worker.idle import IdleWait
from redrive.engine.worker.leases import Leases
from redrive.engine.worker.worker import Worker
from redrive.errors import StoreUnavailableError
from redrive.store.records import JobId, NewJob, Renewal
from redrive.store.sqlite import settle
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock, virtual_time
from redrive.testing.clock import MONOTONIC_START, WALL_START
from tests.inline import T, inline_parts

from .stages import batch_stage
from .watch import ATTEMPTS_MAX, LEASE, LIVE_LETTER, PROCESS, Process, Watch

JUMP_MAX = 300.0
"""So far from the right time clocks are at most."""
SETTLE_MAX = 1_800.0
"""Virtual seconds after the last fault within which everything has settled."""
SECRET = "a value that belongs to nobody else"
"""Stands in every payload, and in what stages raise and note; it may stand nowhere else."""


class Died(BaseException):
    """The process is gone; not even its clean-up runs."""


@dataclass
class Faults:
    """How often what goes wrong: per store call, and for all at once whenever the weather changes."""

    refuse: float = 0.02
    lose_answer: float = 0.02
    die: float = 0.004
    freeze: float = 0.004
    outage: float = 0.3
    jump: float = 0.5

    def stop(self) -> None:
        """Let nothing go wrong any more."""
        vars(self).update(vars(CALM))


CALM = Faults(0, 0, 0, 0, 0, 0)


class JumpingClock(VirtualClock):
    """The clock of the machine; somebody may set it."""

    is_off = False
    """True while it is wrong."""

    def set_off(self, by: float) -> None:
        """Make wall time wrong by so many seconds, as compared with the start."""
        self._offset = WALL_START - MONOTONIC_START + by
        self.is_off = by != 0


class OwnClock(VirtualClock):
    """The clock of the machine as one process sees it, which may be wrong for a while."""

    def __init__(self, machine: VirtualClock, process: Process) -> None:
        super().__init__()
        self._process = process
        self._machine = machine
        self.monotonic = machine.monotonic  # type: ignore[method-assign]
        self.sleep = machine.sleep  # type: ignore[method-assign]
        self.asleep = machine.asleep  # type: ignore[method-assign]

    def wall(self) -> float:
        """Return what this process takes for the time."""
        return self._machine.wall() + self._process.skew


class FaultyStore:
    """One worker's way to the store. Once dead, it never reaches it again."""

    def __init__(
        self,
        store: SqliteStore,
        chance: random.Random,
        faults: Faults,
        clock: VirtualClock,
        watch: Watch | None = None,
    ) -> None:
        self._store = store
        self._chance = chance
        self._faults = faults
        self._clock = clock
        self._frozen_until = 0.0
        self._watch = watch
        self.process = Process()

    async def thaw(self) -> None:
        """Wait until the process is no longer frozen; now and then, freeze it."""
        if self._chance.random() < self._faults.freeze:
            self._frozen_until = self._clock.monotonic() + 4 * LEASE
        while self._clock.monotonic() < self._frozen_until:
            await self._clock.asleep(self._frozen_until - self._clock.monotonic())

    async def elsewhere(self, work: Callable[[], T]) -> T:
        """Run what would block, once the process is not frozen."""
        await asyncio.sleep(0)
        await self.thaw()
        return work()

    def __getattr__(self, name: str) -> Callable[..., object]:
        method = getattr(self._store, name)

        def call(*args: object, **kwargs: object) -> object:
            # With a broken promise the story is over, and what follows from it need not come to any end.
            if self.process.is_dead or (self._watch is not None and self._watch.broken):
                raise Died
            draw = self._chance.random()
            if draw < self._faults.refuse:
                raise StoreUnavailableError(database="sim", cause="refused")
            if draw < self._faults.refuse + self._faults.die:
                self.process.is_dead = True
                raise Died
            answer = self._called(name, args, lambda: method(*args, **kwargs))
            if self._chance.random() < self._faults.lose_answer:
                raise StoreUnavailableError(database="sim", cause="the answer was lost")
            if self._watch is not None and isinstance(answer, Renewal):
                self._watch.heard(self.process, answer)
            return answer

        return call

    def _called(self, name: str, args: tuple[object, ...], method: Callable[[], object]) -> object:
        """Call the store under the eyes of the watch."""
        if self._watch is None:
            return method()
        answer = self._watch.call(name, method)
        if name == "start_worker" or (isinstance(answer, Renewal) and answer.is_known):
            self._watch.met(self.process, str(args[0]))
        return answer


@dataclass
class World:
    """One run of the simulation."""

    seed: int
    jobs: int = 30
    faults: Faults = field(default_factory=Faults)
    patience: float = 100_000.0
    """Virtual seconds after which jobs that have not ended never will."""
    ledger: list[tuple[int, str]] = field(default_factory=list)
    cancelled: set[int] = field(default_factory=set)
    """Jobs somebody asked to cancel before they had ended."""
    last_runs: dict[int, int] = field(default_factory=dict)
    """The dispatch in which a job was when it was cancelled; none may follow it."""
    store: SqliteStore = field(default_factory=lambda: SqliteStore(":memory:"))
    skews: tuple[float, ...] = ()
    """How wrong the clocks of the machines are, each for good, where the store has a clock of its own; none of them jumps then."""

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.is_calm = self.faults == CALM
        # A copy, because they stop some day.
        self.faults = replace(self.faults)
        self.clock = JumpingClock()
        self.processes: list[Process] = []
        self.is_overdue = False
        self.breaker = Breaker("api", consecutive=4, open_for=60)
        self.names = (f"w{n}" for n in itertools.count(1))
        self.watch = Watch(self.store, self.jobs, self.clock.monotonic)
        self.is_over = False

    def pipeline(self, clock: VirtualClock) -> Pipeline:
        """Build four stages that fail in every way, the second of them behind a breaker, the third for many jobs at once."""
        policy = RetryPolicy(ATTEMPTS_MAX, Backoff.exponential(1, cap=20, jitter=Jitter.full()))
        outage = (clock.monotonic() + 50, clock.monotonic() + 400)

        def made(name: str, breaker: Breaker | None) -> object:
            async def run(text: str, ctx: Context) -> str:
                job = JobId(ctx.job_id)
                with self.watch.running(PROCESS.get(), job) as going:
                    # Some are slow enough to hear, while they run, that nobody wants them any more.
                    await clock.asleep(self.chance.random() * (5 if job % 4 else 25))
                    if job % 2:
                        ctx.note("seen", text)
                    if breaker is not None and outage[0] < clock.monotonic() < outage[1]:
                        raise ConnectionRefusedError(111, "refused")
                    draw = self.chance.random()
                    if draw < 0.15:
                        raise ConnectionResetError(104, "reset")
                    if draw < 0.18:
                        raise KeyError(f"bug with {text}")
                    if draw < 0.20:
                        raise Skip(f"nothing in {text}")
                    self.watch.acts(going, job)
                    self.ledger.append((job, name))
                    if draw < 0.23:
                        raise Finish(text)
                    return text

            return stage(retry=policy, breaker=breaker, name=name)(run)

        made_stages = [
            made("fetch", None),
            made("llm", self.breaker),
            batch_stage(self.watch, self.chance, self.ledger, clock, policy),
            made("notify", None),
        ]
        return Pipeline("flow", made_stages)  # type: ignore[arg-type]

    def run(self, workers: int = 3) -> None:
        """Submit the jobs, let workers come, die and be replaced, and end when every job has."""
        # So few jobs make no uniform batch; in every other world, one job is a batch already.
        uniform_min = 1 if self.seed % 2 else settle.UNIFORM_MIN
        with (
            virtual_time(seed=self.seed, clock=self.clock) as clock,
            mock.patch.object(settle, "UNIFORM_MIN", uniform_min),
            # These wait on the loop's own clock, and how far a story has come by then would depend on the machine.
            mock.patch.object(IdleWait, "pause", _pause),
            mock.patch.object(prefetch, "PREFETCH_SECONDS", self.patience),
        ):
            pipeline = self.pipeline(clock)
            lane = self.store.lanes("flow", [each.name for each in pipeline.stages])[0]
            payload = f'"{SECRET}"'.encode()
            self.submit(NewJob(lane=lane, payload=payload, run_at=0.0), clock.wall())
            asyncio.run(self._live(pipeline, clock, workers))

    def submit(self, job: NewJob, now: float) -> None:
        """Submit the jobs."""
        self.store.submit([job] * self.jobs, now)

    async def _live(self, pipeline: Pipeline, clock: VirtualClock, workers: int) -> None:
        positions = [asyncio.ensure_future(self._position(pipeline, clock)) for _ in range(workers)]
        end = asyncio.ensure_future(self._give_up(clock))
        others = [asyncio.ensure_future(each) for each in (self.operate(clock), self._weather(clock))]
        everybody = asyncio.gather(*positions)
        first: list[asyncio.Future[Any]] = [everybody, end]
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        self.is_over = True
        for task in (*positions, end, *others):
            task.cancel()
        await asyncio.gather(*positions, end, *others, everybody, return_exceptions=True)

    async def operate(self, clock: VirtualClock) -> None:
        """Do what people do: cancel a few jobs at random, whatever they are doing, and rather those that run."""
        for _ in range(self.jobs // 10):
            await clock.asleep(self.chance.random() * 60)
            running = self.store.read("SELECT id FROM jobs WHERE status = 'processing' ORDER BY id")
            job = self.chance.randrange(self.jobs) + 1
            if running and self.chance.random() < 0.5:
                job = int(str(self.chance.choice(running)[0]))
            if Redrive(self.store).jobs.cancel(job).status in {"processing", "cancelled"}:
                self.cancelled.add(job)
                dispatch = self.store.read("SELECT dispatch FROM jobs WHERE id = ?", (job,))[0][0]
                self.last_runs.setdefault(job, int(str(dispatch)))

    async def _weather(self, clock: VirtualClock) -> None:
        """Let happen what happens to all at once, until the faults stop."""
        stop_at = clock.monotonic() + 100 + self.chance.random() * 900
        while not self.is_calm and clock.monotonic() < stop_at:
            # Two jumps within one beat could undo each other unseen.
            await clock.asleep(LEASE + self.chance.random() * 150)
            draw = self.chance.random()
            if draw < self.faults.outage:
                await self._outage(clock)
            elif draw < self.faults.outage + self.faults.jump:
                await self._jump(clock)
        self.faults.stop()

    async def _outage(self, clock: VirtualClock) -> None:
        """Keep everybody from the store until every lease has ended."""
        refuse, self.faults.refuse = self.faults.refuse, 1.0
        await clock.asleep(LEASE * (1.2 + 2 * self.chance.random()))
        self.faults.refuse = refuse
        self.watch.steady_since = clock.monotonic()

    async def _jump(self, clock: VirtualClock) -> None:
        """Set the clock of the machine, or for a while that of one process."""
        # Never by less than a lease: a few seconds are within what a lease has to spare, and nobody minds them.
        by = self.chance.uniform(LEASE, JUMP_MAX) * self.chance.choice([1, -1])
        if self.skews:
            return
        if self.chance.random() < 0.7:
            # Somebody sets it right again, or else wrong.
            self.clock.set_off(0.0 if self.clock.is_off else by)
            self.watch.steady_since = clock.monotonic()
            return
        process = self.chance.choice(self.processes)
        process.skew = by
        # One that stays wrong for a whole lease takes the right ones for dead; that is not promised away.
        await clock.asleep(self.chance.random() * LEASE * 0.8)
        process.skew = 0.0

    async def _give_up(self, clock: VirtualClock) -> None:
        """Wait until a promise was broken, or so long that nothing more will come."""
        end_at, settled_by = clock.monotonic() + self.patience, None
        while clock.monotonic() < end_at and not self.watch.broken:
            await clock.asleep(60)
            if settled_by is None and self.faults == CALM and self.may_end():
                settled_by = clock.monotonic() + SETTLE_MAX
            if settled_by is not None and clock.monotonic() > settled_by:
                self.is_overdue = True
                return

    async def _position(self, pipeline: Pipeline, clock: VirtualClock) -> None:
        """Keep one worker running; when it dies, a new one takes its place after a while."""
        while not self.is_over:
            store = FaultyStore(self.store, self.chance, self.faults, clock, self.watch)
            self.processes = [each for each in self.processes if not each.is_dead] + [store.process]
            own = OwnClock(clock, store.process)
            store.process.skew = self.chance.choice(self.skews) if self.skews else 0.0
            PROCESS.set(store.process)
            CURRENT.set(replace(CURRENT.get(), clock=own))
            try:
                worker = Worker(
                    store,  # type: ignore[arg-type]
                    [pipeline],
                    inline_parts(store.elsewhere),
                    names=self.names,
                    lease=LEASE,
                    concurrency=5,
                )
            except (StoreUnavailableError, Died):
                store.process.is_dead = True
                await clock.asleep(1)
                continue
            leases = Leases(
                store,  # type: ignore[arg-type]
                own,
                lease=LEASE,
                on_dead=worker.declare_dead,
                on_cancel=worker.cancel,
                progress=worker.progress.write,
            )
            tasks = [
                asyncio.ensure_future(worker.run(until_idle=True)),
                asyncio.ensure_future(self._beat(store, worker, leases, clock)),
                *(asyncio.ensure_future(each) for each in self.beside(store, worker, pipeline, clock)),
            ]
            done, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            is_over = not store.process.is_dead and not any(task.exception() for task in done)
            if is_over:
                with suppress(StoreUnavailableError, Died):
                    await self.at_end(store, clock)
            store.process.is_dead = True
            for task in waiting:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if is_over and self.may_end():
                return
            await clock.asleep(self.chance.random() * 40)

    async def at_end(self, _store: FaultyStore, _clock: VirtualClock) -> None:
        """Do what a worker does before it ends."""

    def may_end(self) -> bool:
        """Say whether a worker that has nothing left to do may go home."""
        return True

    def beside(
        self, _store: FaultyStore, _worker: Worker, _pipeline: Pipeline, _clock: VirtualClock
    ) -> list[Coroutine[object, object, None]]:
        """Return what else runs in the process of a worker."""
        return []

    async def _beat(self, store: FaultyStore, worker: Worker, leases: Leases, clock: VirtualClock) -> None:
        while not store.process.is_dead:
            await clock.asleep(LEASE / 3)
            await store.thaw()
            if worker.known_as is not None:
                leases.beat(worker.known_as)


async def _pause(self: IdleWait) -> None:
    """Wait as `IdleWait.pause` does, but in virtual time."""
    await self._sleep(await self._until_due())


def breaches(world: World) -> list[str]:
    """Say what the store and the ledger disagree about, and which promise was broken."""
    store, found = world.store, list(world.watch.broken)
    if world.is_overdue:
        found.append(f"not settled {SETTLE_MAX:g} s after the faults had stopped")
    statuses = Counter(row[0] for row in store.read("SELECT status FROM jobs"))
    if sum(statuses.values()) != world.jobs or set(statuses) - {"complete", "failed", "cancelled", "skipped"}:
        found.append(f"not every job has ended: {dict(statuses)}")
    if (
        strangers := {row[0] for row in store.read("SELECT id FROM jobs WHERE status = 'cancelled'")}
        - world.cancelled
    ):
        found.append(f"cancelled without being asked to: {strangers}")
    tallies = store.read("SELECT status, sum(jobs) FROM tallies GROUP BY status HAVING sum(jobs) > 0")
    tallied = dict(cast("list[tuple[str, int]]", tallies))
    if tallied != {
        status: count for status, count in statuses.items() if status not in {"queued", "processing"}
    }:
        found.append(f"the tally {tallied} is not the count {dict(statuses)}")
    if leaks := store.read(
        "SELECT job_id FROM attempts WHERE message LIKE ?1 OR decision LIKE ?1 OR notes LIKE ?1 UNION "
        "SELECT job_id FROM letters WHERE message LIKE ?1 OR stack LIKE ?1 OR context LIKE ?1 UNION "
        "SELECT id FROM jobs WHERE error_message LIKE ?1 OR progress LIKE ?1",
        (f"%{SECRET}%",),
    ):
        found.append(f"a payload leaked: {leaks}")
    again = store.read(
        "SELECT first.job_id FROM attempts first JOIN attempts later USING (job_id, lane_id)"
        " WHERE first.outcome = 'ok' AND later.dispatch > first.dispatch"
    )
    if again:
        found.append(f"a committed stage ran again: {again}")
    spent = store.read(
        "SELECT job_id FROM attempts WHERE burned = 1 AND outcome <> 'ok' GROUP BY job_id, lane_id, round HAVING count(*) > ?",
        (ATTEMPTS_MAX,),
    )
    if spent:
        found.append(f"more attempts burned than allowed: {spent}")
    held = store.read("SELECT job_id FROM attempts WHERE outcome IN ('hold', 'crashed') AND burned = 1")
    if held:
        found.append(f"a hold or a crash burned an attempt: {held}")
    if world.is_calm and store.read("SELECT 1 FROM attempts WHERE outcome = 'crashed'"):
        found.append("the lease of a living worker changed hands")
    letters = store.read(f"SELECT count(*) FROM dead_letters WHERE {LIVE_LETTER}")[0][0]
    if letters != statuses["failed"]:
        found.append(f"{letters} open dead letters for {statuses['failed']} failed jobs")
    ended_early = store.read(
        "SELECT id FROM jobs WHERE status = 'complete' AND NOT EXISTS (SELECT 1 FROM attempts WHERE job_id = jobs.id"
        " AND outcome = 'ok' AND (decision LIKE '%finish%' OR lane_id = (SELECT max(id) FROM lanes)))"
    )
    if ended_early:
        found.append(f"complete before the last stage without being finished: {ended_early}")
    return found + _cancel_breaches(world) + _ledger_breaches(world)


def _cancel_breaches(world: World) -> list[str]:
    """Say which jobs went on after they had been cancelled; a stage that was running may end, and the job with its last one."""
    ran = "SELECT dispatch, outcome FROM attempts WHERE job_id = ? AND dispatch > ? AND outcome NOT IN ('crashed', 'cancelled')"
    return [
        f"job {job} was cancelled, and ran again: {later}"
        for job, last in world.last_runs.items()
        if (later := world.store.read(ran, (job, last)))
    ]


def _ledger_breaches(world: World) -> list[str]:
    found = []
    effects = Counter(world.ledger)
    names = dict(cast("list[tuple[object, str]]", world.store.read("SELECT id, stage FROM lanes")))
    rows = world.store.read("SELECT job_id, lane_id, outcome FROM attempts")
    ok = Counter((job, names[lane]) for job, lane, outcome in rows if outcome == "ok")
    lost = Counter((job, names[lane]) for job, lane, outcome in rows if outcome == "crashed")
    for key, times in ok.items():
        if times > 1 or not effects[key]:  # type: ignore[index]
            found.append(f"{key}: {times} commits, {effects[key]} effects")  # type: ignore[index]
    for key, times in effects.items():
        if times > ok[key] + lost[key]:
            found.append(
                f"{key}: {times} effects, but only {ok[key]} commits and {lost[key]} crashes on record"
            )
    return found
