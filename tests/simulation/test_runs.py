# SPDX-License-Identifier: Apache-2.0
"""Runs in a world of faults: each is decided once, when its last item has ended, and as its rule says; deliberate bugs are caught."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from redrive import Pipeline
from redrive.core.budget import FailureRule, RunStatus, RunThresholds, Tally, decide_status
from redrive.engine.runs.ending import RunStatusDriver
from redrive.engine.runs.runs import RunOptions, Runs, has_permanent
from redrive.engine.worker.worker import Worker
from redrive.store.records import NewJob
from redrive.store.sqlite import store as sqlite
from redrive.testing import VirtualClock

from .world import CALM, Faults, FaultyStore, World, breaches

RULES: tuple[RunThresholds | FailureRule, ...] = (RunThresholds(), FailureRule())
_TABLES = """
CREATE TEMP TABLE endings (run INTEGER, status TEXT, open INTEGER);
CREATE TEMP TRIGGER run_ended AFTER UPDATE ON runs WHEN NEW.ended_at IS NOT NULL BEGIN
    INSERT INTO endings VALUES (NEW.id, NEW.status, (
        SELECT count(*) FROM jobs WHERE run_id = NEW.id AND status IN ('queued', 'processing')));
END;
"""


@dataclass
class RunWorld(World):
    """A world whose jobs are the items of two runs, each with its own rule; its workers decide their status."""

    def submit(self, job: NewJob, now: float) -> None:
        """Submit the items of both runs."""
        with self.store._mutex:
            self.store._db.executescript(_TABLES)
        book, half = Runs(self.store), self.jobs // len(RULES)
        for rule in RULES:
            options = RunOptions(rule=rule) if isinstance(rule, FailureRule) else RunOptions(thresholds=rule)
            run = book.add("flow", options, now)
            self.store.submit([replace(job, run=run, ordinal=place) for place in range(half)], now)
            book.mark_source(run, is_fed=True)

    def beside(
        self, store: FaultyStore, _worker: Worker, _pipeline: Pipeline, clock: VirtualClock
    ) -> list[Coroutine[object, object, None]]:
        """Decide the status of runs beside each worker."""
        return [self._endings(store, clock).run()]

    async def at_end(self, store: FaultyStore, clock: VirtualClock) -> None:
        """Decide once more."""
        await self._endings(store, clock).flush()

    def may_end(self) -> bool:
        """Wait until every run has ended, as a service does."""
        return not self.store.read("SELECT 1 FROM runs WHERE ended_at IS NULL")

    def _endings(self, store: FaultyStore, clock: VirtualClock) -> RunStatusDriver:
        return RunStatusDriver(store, clock, ask_store=store.elsewhere)  # type: ignore[arg-type]


def run_breaches(world: RunWorld) -> list[str]:
    """Say which run was not decided once, too early, or not as its rule says."""
    found = breaches(world)
    endings = world.store.read("SELECT run, status, open FROM endings")
    times = Counter(run for run, _, _ in endings)
    found += [f"run {run} was decided with {still} open items" for run, _, still in endings if still]
    for run, rule in enumerate(RULES, start=1):
        if times[run] != 1:
            found.append(f"run {run} was decided {times[run]} times")
        report = Runs(world.store).report(run)
        tally = Tally(
            total=world.jobs // len(RULES),
            succeeded=report.succeeded,
            dead=report.dead,
            cancelled=report.cancelled,
            skipped=report.skipped,
        )
        permanent = has_permanent(world.store, run)
        meant = decide_status(rule, RunStatus.RUNNING, tally, has_permanent=permanent)
        if report.status != meant:
            found.append(f"run {run} is {report.status} instead of {meant}")
    return found


@pytest.mark.parametrize("seed", range(3))
def test_every_run_is_decided_once_and_right(seed: int) -> None:
    world = RunWorld(seed)
    world.run()

    assert run_breaches(world) == []


def decided_twice(patch: pytest.MonkeyPatch) -> None:
    plain = sqlite._SQL["decide_run"]
    careless = plain.replace("AND status = ?5 AND ended_at IS NULL", "AND ?5 IS NOT NULL")
    assert careless != plain
    patch.setitem(sqlite._SQL, "decide_run", careless)
    # Every worker looks at a run that was decided just now, as one does that read it a moment before.
    live = (
        sqlite._SQL["live_runs"]
        .replace("WHERE ended_at IS NULL AND", "WHERE")
        .replace("INDEXED BY runs_live", "")
    )
    patch.setitem(sqlite._SQL, "live_runs", live)


def decided_too_early(patch: pytest.MonkeyPatch) -> None:
    plain = sqlite._SQL["live_runs"]
    early = plain.replace("ended >= total", "ended * 2 >= total")
    assert early != plain
    patch.setitem(sqlite._SQL, "live_runs", early)
    patch.setattr("redrive.engine.runs.ending.Tally.open", property(lambda _tally: 0))
    patch.setattr("redrive.core.budget.Tally.open", property(lambda _tally: 0))


def never_decided(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RunStatusDriver, "decide", lambda _self: 0)


BUGS = [
    (decided_twice, CALM),
    (decided_too_early, CALM),
    (never_decided, CALM),
]


@pytest.mark.parametrize(("bug", "faults"), BUGS, ids=[bug.__name__ for bug, _ in BUGS])
def test_a_deliberate_bug_is_caught(
    bug: Callable[[pytest.MonkeyPatch], None], faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)

    for seed in range(10):
        world = RunWorld(seed, faults=faults, patience=3_000)
        world.run()
        if run_breaches(world):
            return
    pytest.fail("no seed noticed the bug")
