# SPDX-License-Identifier: Apache-2.0
"""The real engine in a world of faults: every seed must keep every promise, and deliberate bugs must not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from sqlite3 import Connection

import pytest
from msgspec.structs import replace

from redrive.core.decide import Hold
from redrive.core.lifecycle import JobState
from redrive.engine import letters, outcomes, runner
from redrive.engine.journal import Journal
from redrive.engine.leases import Leases
from redrive.engine.outcomes import Dispatch
from redrive.engine.worker import Worker
from redrive.errors import StoreUnavailableError
from redrive.store import rows, settling, sqlite
from redrive.store.protocol import Settlement, Want

from .world import CALM, LEASE, Faults, World, breaches


@pytest.mark.parametrize("seed", range(25))
def test_whatever_goes_wrong_every_promise_is_kept(seed: int) -> None:
    world = World(seed)
    world.run()

    assert breaches(world) == []


def test_without_faults_every_effect_happens_once() -> None:
    world = World(1, faults=CALM)
    world.run()

    assert breaches(world) == []
    assert len(world.ledger) == len(set(world.ledger))


ATTEMPTS = ("insert_good_attempt", "insert_attempt", "insert_crowd")
FENCES = {
    "go_on_crowd": "AND jobs.lease_token = ?4 AND jobs.dispatch = ?5",
    "complete_crowd": "AND jobs.lease_token = ?1 AND jobs.dispatch = ?2",
}
"""The statements that put attempts on record."""


def test_a_seed_tells_the_same_story_every_time() -> None:
    first, second = World(7), World(7)
    first.run()
    second.run()

    assert first.ledger == second.ledger


def no_fencing(patch: pytest.MonkeyPatch) -> None:
    plain = ("complete", "complete_large", "advance", "requeue", "bury", "cancel")
    fences = dict.fromkeys(plain, "AND jobs.lease_token = v.column2 AND jobs.dispatch = v.column3")
    for name, fence in (fences | FENCES).items():
        assert fence in rows.SQL[name]
        # What the fence names has to be there still, or the rest would be counted differently.
        patch.setitem(rows.SQL, name, rows.SQL[name].replace(fence, fence.replace("AND", "OR 0 AND", 1)))
    # The key of the attempts is a second fence; it has to go as well.
    for name in ATTEMPTS:
        careless = rows.SQL[name].replace("INSERT INTO", "INSERT OR REPLACE INTO")
        patch.setitem(rows.SQL, name, careless)


def answered_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    async def hopeful(
        self: Worker, question: Callable[[], object], asked: Awaitable[object] | None = None
    ) -> object:
        try:
            return await (self._ask(question) if asked is None else asked)
        except StoreUnavailableError:
            return None

    patch.setattr(Worker, "_insist", hopeful)


def holds_burn(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Hold, "burned", True)


def claims_of_a_lost_answer_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    plain = Journal.commit

    def anew(
        self: Journal, worker: str, done: list[Settlement], want: Want, *, now: float, token: int
    ) -> object:
        return plain(self, worker, done, want, now=now, token=token and next(self._tokens))

    patch.setattr(Journal, "commit", anew)


def leases_are_not_renewed(patch: pytest.MonkeyPatch) -> None:
    def idle(self: Leases, worker: str) -> None:
        self._store.reap(self._clock.wall())

    patch.setattr(Leases, "beat", idle)


def attempts_are_not_recorded(patch: pytest.MonkeyPatch) -> None:
    for name in ATTEMPTS:
        unwritten = rows.SQL[name].replace("(VALUES {rows})", "(VALUES {rows}) WHERE 0")
        assert unwritten != rows.SQL[name]
        patch.setitem(rows.SQL, name, unwritten)


def dead_letters_are_not_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(outcomes, "letter_of", lambda *_args: None)


def a_crash_forgets_the_stage(patch: pytest.MonkeyPatch) -> None:
    back = sqlite._SQL["reclaim"].replace(
        "SET status", "SET lane_id = (SELECT min(id) FROM lanes), input = NULL, status"
    )
    patch.setitem(sqlite._SQL, "reclaim", back)


def the_reaper_does_not_wait_for_contact(patch: pytest.MonkeyPatch) -> None:
    def hasty(self: Leases, worker: str) -> None:
        self._store.reap(self._clock.wall() + LEASE)
        self._store.renew(worker, self._clock.wall(), LEASE)

    patch.setattr(Leases, "beat", hasty)


def settled_in_two_steps(patch: pytest.MonkeyPatch) -> None:
    whole = sqlite.settle_at_once

    def halfway(db: Connection, *args: object) -> None:
        whole(db, *args)  # type: ignore[arg-type]
        db.execute("COMMIT")
        db.execute("BEGIN IMMEDIATE")

    def late(db: Connection, one: Settlement, insert: object) -> None:
        if one.letter is None or one.job.id % 3:
            beside(db, one, insert)  # type: ignore[arg-type]

    beside = settling._write_beside
    patch.setattr(sqlite, "settle_at_once", halfway)
    patch.setattr(settling, "_write_beside", late)


def a_cancel_of_a_running_job_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    plain = outcomes.settle_cancelled

    def forgetful(dispatch: Dispatch, reason: str) -> Settlement:
        return replace(plain(dispatch, reason), status=JobState.PROCESSING)

    patch.setattr(runner, "settle_cancelled", forgetful)


def payloads_are_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(letters, "literals_in", lambda _encoded: {})


BUGS = [
    (settled_in_two_steps, Faults()),
    (payloads_are_told, CALM),
    (no_fencing, Faults(freeze=0.02)),
    (answered_before_the_commit, Faults(die=0, freeze=0)),
    (holds_burn, Faults()),
    (claims_of_a_lost_answer_are_forgotten, Faults(lose_answer=0.1, die=0, freeze=0)),
    (leases_are_not_renewed, CALM),
    (attempts_are_not_recorded, Faults()),
    (dead_letters_are_not_written, Faults()),
    (a_crash_forgets_the_stage, Faults()),
    (the_reaper_does_not_wait_for_contact, CALM),
]


@pytest.mark.parametrize(("bug", "faults"), BUGS, ids=[bug.__name__ for bug, _ in BUGS])
def test_a_deliberate_bug_is_caught(
    bug: Callable[[pytest.MonkeyPatch], None], faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)

    for seed in range(20):
        world = World(seed, jobs=60, faults=faults, patience=5_000)
        world.run()
        if breaches(world):
            return
    pytest.fail("no seed noticed the bug")
