# SPDX-License-Identifier: Apache-2.0
"""The Nth call to the store fails, for every N: before it did anything or after, once or for a while. In virtual time.

Nobody dies here, so that no lease may change hands and every effect happens exactly as often as it is committed.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import cast

import pytest

from redrive import Backoff, Breaker, Context, Jitter, Pipeline, Redrive, RetryPolicy, stage
from redrive.client.schedules import Schedules
from redrive.engine.delivery.outbox import Delivery
from redrive.engine.observers import AttemptFacts, Observer, install, uninstall
from redrive.engine.pipeline.pipeline import Event
from redrive.engine.schedules import Ticker
from redrive.engine.worker.leases import Leases
from redrive.engine.worker.worker import Worker
from redrive.errors import StoreUnavailableError
from redrive.store.postgres.store import PostgresStore
from redrive.store.protocol import Store
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock, virtual_time
from tests.databases import Schemas
from tests.embedded import changing, read_rows
from tests.inline import at_once, inline_parts

from .ledger import breaches

LEASE = 6.0
WHEN = ["before", "after"]
FOR_CALLS = [1, 8]
"""Once, and so many times in a row that a whole commit with its probes and breakers is refused again and again."""
IN_FULL = os.environ.get("REDRIVE_TEST_STORES") == "all"
"""Whether every call fails in turn, also those to a server: `make sim-postgres`, for which `make test` has no time."""
STEADY = RetryPolicy(3, Backoff.fixed(2, jitter=Jitter.none()))


class NthCallFails:
    """A store whose calls fail from the Nth on, so many of them, before they did their work or after."""

    def __init__(self, store: Store, nth: int, when: str, calls: int) -> None:
        self._store = store
        self._bad = range(nth, nth + calls)
        self._when = when
        self.calls = 0
        self.names: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., object]:
        method = getattr(self._store, name)

        def call(*args: object, **kwargs: object) -> object:
            self.calls += 1
            self.names.append(name)
            is_bad = self.calls in self._bad
            if is_bad and self._when == "before":
                raise StoreUnavailableError(database="sweep", cause="refused")
            answer = method(*args, **kwargs)
            if is_bad:
                raise StoreUnavailableError(database="sweep", cause="the answer was lost")
            return answer

        return call


@dataclass
class Sweep:
    """One small world: six jobs of every kind, one worker, one fault."""

    nth: int = 10**9
    when: str = "before"
    calls: int = 1
    effects: list[tuple[int, str]] = field(default_factory=list)
    heard: list[int] = field(default_factory=list)
    submitted: set[int] = field(default_factory=set)
    store: Store = field(default_factory=lambda: SqliteStore(":memory:"))

    def __post_init__(self) -> None:
        self.faulty = NthCallFails(self.store, self.nth, self.when, self.calls)

    def pipelines(self, clock: VirtualClock) -> tuple[Pipeline, Pipeline]:
        """A flow of two stages, the second behind a breaker whose dependency is down at first, and one for children."""
        back_at = clock.wall() + 3
        breaker = Breaker("api", consecutive=2, open_for=1.5)

        def heard(event: Event) -> None:
            self.heard.append(event.job_id)

        @stage(retry=STEADY)
        async def child(act: str, ctx: Context) -> str:
            await clock.asleep(1)
            self.effects.append((ctx.job_id, "child"))
            return act

        children = Pipeline("children", [child])

        @stage(retry=STEADY)
        async def fetch(act: str, ctx: Context) -> str:
            await clock.asleep(1)
            if act == "flaky" and ctx.attempt == 1:
                raise ConnectionResetError(104, "reset")
            if act == "bug":
                raise KeyError(act)
            if act == "parent":
                ctx.submit(children, act)
            self.effects.append((ctx.job_id, "fetch"))
            return act

        @stage(retry=STEADY, breaker=breaker)
        async def send(act: str, ctx: Context) -> str:
            await clock.asleep(1)
            if clock.wall() < back_at:
                raise ConnectionRefusedError(111, "refused")
            self.effects.append((ctx.job_id, "send"))
            return act

        return Pipeline("flow", [fetch, send], on_dead=heard), children

    def run(self) -> None:
        with virtual_time() as clock:
            flow, children = self.pipelines(clock)
            rd = Redrive(self.store)
            self.submitted = set(rd.submit_many(flow, ["", "", "flaky", "bug", "parent", "late"]))
            asyncio.run(self._live(flow, children, clock))

    async def _live(self, flow: Pipeline, children: Pipeline, clock: VirtualClock) -> None:
        worker = self._worker(flow, children)
        leases = Leases(self.faulty, clock, lease=LEASE, on_dead=worker.declare_dead)  # type: ignore[arg-type]
        hooks = Delivery(self.faulty, worker.lanes, clock, ask_store=at_once, call=at_once)  # type: ignore[arg-type]
        working = asyncio.ensure_future(worker.run(until_idle=True))
        beating = asyncio.ensure_future(_beat(worker, leases, clock))
        await asyncio.wait([working], timeout=30)
        beating.cancel()
        if not working.done():
            working.cancel()
        await asyncio.gather(working, beating, return_exceptions=True)
        if not working.cancelled():
            working.result()
        # What cannot be told now comes up again when it is no longer hidden.
        for _ in range(2 + self.calls):
            await hooks.flush()
            clock.advance(61)

    def _worker(self, *pipelines: Pipeline) -> Worker:
        """Start a worker; one that cannot even begin is started again by whoever keeps it."""
        names = (f"w{n}" for n in itertools.count(1))
        while True:
            try:
                return Worker(self.faulty, pipelines, inline_parts(), names=names, lease=LEASE, concurrency=3)  # type: ignore[arg-type]
            except StoreUnavailableError:
                continue

    def breaches(self) -> list[str]:
        store = self.store
        with changing(store) as tables:
            found = breaches(tables, self.effects, self.submitted)
        counted = read_rows(store, "SELECT status, count(*) FROM jobs GROUP BY 1")
        statuses = dict(cast("list[tuple[str, int]]", counted))
        if statuses != {"complete": 6, "failed": 1}:
            found.append(f"not every job ended as it should: {statuses}")
        if len(self.effects) != len(set(self.effects)):
            found.append(f"an effect happened twice: {self.effects}")
        if read_rows(store, "SELECT 1 FROM attempts WHERE outcome = 'crashed'"):
            found.append("a lease changed hands")
        burned = read_rows(
            store, "SELECT job_id, code FROM attempts WHERE burned = 1 AND outcome IN ('retry', 'dead')"
        )
        refused = [row for row in burned if row[1] == "NETWORK_REFUSED"]
        # What cannot be written down cannot open the breaker, so that one failure more may come before it does.
        if (
            set(burned) - set(refused) != {(3, "NETWORK_RESET"), (4, "BUG_CODE")}
            or len(refused) > 1 + self.calls
        ):
            found.append(f"attempts burned without reason: {burned}")
        if set(self.heard) != {4}:
            found.append(f"the hook heard of {self.heard}")
        return found


async def _beat(worker: Worker, leases: Leases, clock: VirtualClock) -> None:
    while True:
        await clock.asleep(LEASE / 3)
        leases.beat(worker.name)


def test_without_a_fault_the_small_world_is_in_order() -> None:
    world = Sweep()
    world.run()

    assert world.breaches() == []
    assert {"exchange", "renew", "upcoming", "lanes", "swap_breaker", "apply"} <= set(world.faulty.names)


@pytest.mark.parametrize("calls", FOR_CALLS)
@pytest.mark.parametrize("when", WHEN)
def test_whichever_call_to_the_store_fails_every_promise_is_kept(
    when: str, calls: int, caplog: pytest.LogCaptureFixture
) -> None:
    calm = Sweep()
    calm.run()

    bad = []
    # Windows of several calls overlap in full, so that each call fails at the beginning of one and at the end of another. Of single
    # calls every third is enough elsewhere: one of each kind is among them, early and late.
    stride = max(1, calls // 2) if IN_FULL else max(3, calls)
    for nth in range(1, calm.faulty.calls + 1, stride):
        world = Sweep(nth, when, calls)
        world.run()
        failed = world.faulty.names[nth - 1] if len(world.faulty.names) >= nth else "none"
        bad += [f"call {nth} ({failed}): {breach}" for breach in world.breaches()]
        bad += [f"call {nth} ({failed}): {line}" for line in caplog.messages if "lease was lost" in line]
        caplog.clear()

    assert calm.faulty.calls > 50
    if bad:
        pytest.fail("\n".join([*bad[:10], f"{len(bad)} breaches"]), pytrace=False)


STRIDE = 1 if IN_FULL else 25
"""Of the calls to a server, every so many-th fails in `make test`."""


@pytest.mark.parametrize(("when", "calls"), [("before", 1), ("after", 1), ("after", 8)])
def test_whichever_call_to_a_server_fails_every_promise_is_kept(
    when: str, calls: int, schemas: Schemas
) -> None:
    def swept(nth: int) -> tuple[Sweep, list[str]]:
        with closing(PostgresStore(schemas.address("sweep"), clock="caller")) as store:
            world = Sweep(nth, when, calls, store=store)
            world.run()
            return world, world.breaches()

    calm, bad = swept(10**9)
    for nth in range(1 + calls % STRIDE, calm.faulty.calls + 1, STRIDE):
        bad += [f"call {nth}: {breach}" for breach in swept(nth)[1]]

    assert calm.faulty.calls > 50
    assert bad == []


@pytest.mark.parametrize("when", WHEN)
def test_whichever_call_fails_while_attempts_are_observed_every_promise_is_kept(when: str) -> None:
    observer = _Observing()
    install(observer)
    try:
        calm = Sweep()
        calm.run()
        bad = []
        for nth, name in enumerate(calm.faulty.names, start=1):
            # Nothing else asks while jobs are claimed.
            if name == "query":
                world = Sweep(nth, when)
                world.run()
                bad += world.breaches()
    finally:
        uninstall(observer)

    assert calm.faulty.names.count("query") > 10
    assert bad == []


class _Observing(Observer):
    """Wants to know the trace of every attempt."""

    def attempt_started(self, facts: AttemptFacts) -> None:
        assert facts.trace is None


@pytest.mark.parametrize("when", WHEN)
def test_a_tick_whose_call_fails_makes_one_job_when_it_is_made_again(when: str) -> None:
    for nth in range(1, 4):
        with virtual_time() as clock:
            store = SqliteStore(":memory:")
            pipeline, _ = Sweep().pipelines(clock)
            Schedules(store).add("hourly", pipeline, "", cron="0 * * * *")
            clock.advance(3_600)
            ticker = Ticker(NthCallFails(store, nth, when, 1), clock, ask_store=at_once)  # type: ignore[arg-type]
            for _ in range(3):
                try:
                    ticker.tick()
                except StoreUnavailableError:
                    continue

            assert store.read("SELECT count(*) FROM jobs") == [(1,)]


@pytest.mark.parametrize("when", WHEN)
def test_a_submission_whose_answer_was_lost_is_made_once_when_made_again_with_its_key(when: str) -> None:
    with virtual_time() as clock:
        store = SqliteStore(":memory:")
        pipeline, _ = Sweep().pipelines(clock)
        store.lanes(pipeline.name, [each.name for each in pipeline.stages])
        for nth in (1, 2, 3):
            rd = Redrive(NthCallFails(store, nth, when, 1))  # type: ignore[arg-type]
            with pytest.raises(StoreUnavailableError):
                rd.submit(pipeline, "", key=f"order-{nth}")
            again = rd.submit(pipeline, "", key=f"order-{nth}")

            assert again.is_duplicate == (nth == 3 and when == "after")
        assert store.read("SELECT count(*) FROM jobs") == [(3,)]


def test_a_worker_told_to_stop_twice_ends_while_the_store_is_down() -> None:
    with virtual_time() as clock:
        store = SqliteStore(":memory:")
        flow, _ = Sweep().pipelines(clock)
        Redrive(store).submit_many(flow, ["", ""])

        async def scene() -> str:
            faulty = NthCallFails(store, 10**9, "before", 0)
            worker = Worker(faulty, [flow], inline_parts(), names=iter(["w1"]), lease=LEASE)  # type: ignore[arg-type]
            faulty._bad = range(10**9)

            async def ask_to_stop() -> None:
                for _ in range(2):
                    await clock.asleep(5)
                    worker.stop()

            asking = asyncio.ensure_future(ask_to_stop())
            async with asyncio.timeout(5):
                ending = await worker.run()
            await asking
            return ending

        assert asyncio.run(scene()) == "stopped"
