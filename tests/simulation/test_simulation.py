# SPDX-License-Identifier: Apache-2.0
"""The real engine in a world of faults: every seed must keep every promise, and deliberate bugs must not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from sqlite3 import Connection

import pytest

from redrive.core.decide import Hold
from redrive.engine.worker import dead_letter, leases, settlements
from redrive.engine.worker.batches.calls import CallResult, Calls
from redrive.engine.worker.batches.gathering import Call
from redrive.engine.worker.dispatch import Dispatch
from redrive.engine.worker.journal import Journal
from redrive.engine.worker.leases import Leases
from redrive.engine.worker.worker import Worker
from redrive.errors import StoreUnavailableError
from redrive.store.records import ClaimRequest, Settlement
from redrive.store.sqlite import claim, settle
from redrive.store.sqlite import store as sqlite
from redrive.store.sqlite.settle import settle_at_once

from .watch import LEASE
from .world import CALM, Faults, World, breaches


@pytest.mark.parametrize("seed", range(6))
def test_whatever_goes_wrong_every_promise_is_kept(seed: int) -> None:
    world = World(seed)
    world.run()

    assert breaches(world) == []


def test_without_faults_every_effect_happens_once() -> None:
    world = World(1, faults=CALM)
    world.run()

    assert breaches(world) == []
    assert len(world.ledger) == len(set(world.ledger))


ATTEMPTS = ("insert_good_attempt", "insert_attempt", "insert_uniform_attempts")
"""The statements that put attempts on record."""
FENCES = {
    "continue_uniform": "AND jobs.lease_token = ?4 AND jobs.dispatch = ?5",
    "complete_uniform": "AND jobs.lease_token = ?1 AND jobs.dispatch = ?2",
}


def test_a_seed_tells_the_same_story_every_time() -> None:
    first, second = World(7), World(7)
    first.run()
    second.run()

    assert first.ledger == second.ledger


def no_fencing(patch: pytest.MonkeyPatch) -> None:
    plain = ("complete", "complete_large", "advance", "requeue", "bury", "end")
    fences = dict.fromkeys(plain, "AND jobs.lease_token = v.column2 AND jobs.dispatch = v.column3")
    for name, fence in (fences | FENCES).items():
        assert fence in settle._SQL[name]
        # What the fence names has to be there still, or the rest would be counted differently.
        patch.setitem(
            settle._SQL, name, settle._SQL[name].replace(fence, fence.replace("AND", "OR 0 AND", 1))
        )
    # The key of the attempts is a second fence; it has to go as well.
    for name in ATTEMPTS:
        careless = settle._SQL[name].replace("INSERT INTO", "INSERT OR REPLACE INTO")
        patch.setitem(settle._SQL, name, careless)


def answered_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    async def hopeful(
        self: Worker, question: Callable[[], object], asked: Awaitable[object] | None = None
    ) -> object:
        try:
            return await (self._ask(question) if asked is None else asked)
        except StoreUnavailableError:
            return None

    patch.setattr(Worker, "_ask_until_answered", hopeful)


def holds_burn(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Hold, "burned", True)


def claims_of_a_lost_answer_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    plain = Journal.commit

    def anew(
        self: Journal, worker: str, done: list[Settlement], want: ClaimRequest, *, now: float, token: int
    ) -> object:
        return plain(self, worker, done, want, now=now, token=token and next(self._tokens))

    patch.setattr(Journal, "commit", anew)


def leases_are_not_renewed(patch: pytest.MonkeyPatch) -> None:
    def idle(self: Leases, worker: str) -> None:
        self._store.reap(self._clock.wall())

    patch.setattr(Leases, "beat", idle)


def attempts_are_not_recorded(patch: pytest.MonkeyPatch) -> None:
    for name in ATTEMPTS:
        unwritten = settle._SQL[name].replace("(VALUES {rows})", "(VALUES {rows}) WHERE 0")
        assert unwritten != settle._SQL[name]
        patch.setitem(settle._SQL, name, unwritten)


def dead_letters_are_not_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(settlements, "letter_of", lambda *_args: None)


def a_crash_forgets_the_stage(patch: pytest.MonkeyPatch) -> None:
    back = sqlite._SQL["return_crashed_jobs"].replace(
        "SET status", "SET lane_id = (SELECT min(id) FROM lanes), input = NULL, status"
    )
    patch.setitem(sqlite._SQL, "return_crashed_jobs", back)


def the_reaper_does_not_wait_for_contact(patch: pytest.MonkeyPatch) -> None:
    always = property(lambda _self: float("-inf"), lambda _self, _since: None)
    patch.setattr(Leases, "_contact_since", always, raising=False)
    # A gap without an answer is how it knows that there was no contact; it has to go as well.
    patch.setattr(leases, "GAP_MAX", float("inf"))


def the_reaper_ignores_jumps_of_the_clock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leases, "DRIFT_MAX", float("inf"))


def the_reaper_suspects_nobody(patch: pytest.MonkeyPatch) -> None:
    plain = sqlite._SQL["return_crashed_jobs"]
    trusting = plain.replace("suspect_count = suspect_count + 1", "suspect_count = suspect_count")
    assert trusting != plain
    patch.setitem(sqlite._SQL, "return_crashed_jobs", trusting)


def jobs_are_claimed_that_are_running(patch: pytest.MonkeyPatch) -> None:
    plain = claim._SQL["claim"]
    greedy = plain.replace("status = 'queued'", "status IN ('queued', 'processing')")
    assert greedy != plain
    patch.setitem(claim._SQL, "claim", greedy)


def leases_are_reaped_before_they_end(patch: pytest.MonkeyPatch) -> None:
    def hasty(self: Leases, worker: str) -> None:
        self._store.reap(self._clock.wall() + LEASE)
        self._store.renew(worker, self._clock.wall(), LEASE)

    patch.setattr(Leases, "beat", hasty)


def settled_in_two_steps(patch: pytest.MonkeyPatch) -> None:
    whole = settle_at_once

    def halfway(db: Connection, *args: object) -> None:
        whole(db, *args)  # type: ignore[arg-type]
        db.execute("COMMIT")
        db.execute("BEGIN IMMEDIATE")

    def late(db: Connection, one: Settlement, insert: object) -> None:
        if one.letter is None or one.job.id % 3:
            beside(db, one, insert)  # type: ignore[arg-type]

    beside = settle._write_beside
    patch.setattr(sqlite, "settle_at_once", halfway)
    patch.setattr(settle, "_write_beside", late)


def a_cancel_of_a_running_job_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    plain = sqlite._SQL["ask_to_cancel"]
    forgetful = plain.replace("cancel_asked = 1", "cancel_asked = 0")
    assert forgetful != plain
    patch.setitem(sqlite._SQL, "ask_to_cancel", forgetful)


def a_cancel_does_not_reach_the_stage(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Worker, "cancel", lambda _self, _jobs: None)


def payloads_are_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(dead_letter, "_literals", lambda _encoded, _value: {})


def a_batch_item_is_settled_twice(patch: pytest.MonkeyPatch) -> None:
    """With the call that failed, and again with the half in which it is called next."""
    plain = Calls._end

    async def twice(self: Calls, call: Call, part: list[Dispatch], result: CallResult) -> None:
        await plain(self, call, part, result)
        if result.error is not None and call.parts:
            for dispatch in part:
                first = self._runner.begin(dispatch.job, dispatch.lane)
                self._steps.settle(first, self._runner.decide_broken(first, result.error))

    patch.setattr(Calls, "_end", twice)


BUGS = [
    (a_batch_item_is_settled_twice, CALM),
    (settled_in_two_steps, Faults()),
    (payloads_are_told, CALM),
    (no_fencing, Faults(freeze=0.02)),
    (answered_before_the_commit, Faults(die=0, freeze=0, outage=0)),
    (holds_burn, Faults()),
    (claims_of_a_lost_answer_are_forgotten, Faults(lose_answer=0.1, die=0, freeze=0)),
    (leases_are_not_renewed, CALM),
    (attempts_are_not_recorded, Faults()),
    (dead_letters_are_not_written, Faults()),
    (a_crash_forgets_the_stage, Faults()),
    (leases_are_reaped_before_they_end, CALM),
    (the_reaper_does_not_wait_for_contact, Faults()),
    (the_reaper_ignores_jumps_of_the_clock, Faults()),
    (the_reaper_suspects_nobody, Faults()),
    (jobs_are_claimed_that_are_running, CALM),
    (a_cancel_of_a_running_job_is_forgotten, CALM),
    (a_cancel_does_not_reach_the_stage, CALM),
]


@pytest.mark.parametrize(("bug", "faults"), BUGS, ids=[bug.__name__ for bug, _ in BUGS])
def test_a_deliberate_bug_is_caught(
    bug: Callable[[pytest.MonkeyPatch], None], faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)

    for seed in range(20):
        world = World(seed, jobs=60, faults=faults, patience=1_500)
        world.run()
        if breaches(world):
            return
    pytest.fail("no seed noticed the bug")
