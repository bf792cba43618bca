# SPDX-License-Identifier: Apache-2.0
"""The rest of the protocol: queries, moments, changes that fit or are dropped whole, change counters, and the state of breakers.

That every declared statement is run by some test is seen to where the suite is run.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from contextlib import closing

import msgspec
import pytest

from redrive.core.units import instant
from redrive.errors import StoreError, StoreRefusedError
from redrive.store.protocol import Store
from redrive.store.records import ClaimRequest, ExchangeRequest, PhaseChange, StateChange, Step
from redrive.store.statements import jobs as job_sql
from redrive.store.statements import operations as operation_sql
from redrive.store.statements import runs as run_sql
from redrive.store.statements import workers as worker_sql
from redrive.store.statements.statement import members_of
from redrive.testing.conformance import build
from redrive.testing.conformance.build import NOW, Scene, agree, holds, lanes_of

SIGNAL_SECONDS = 10.0
"""How long a signal may take."""
CHANGES: dict[str, Callable[[Store], object]] = {
    "submit": lambda store: store.submit([build.new(lanes_of(store)[0])], NOW),
    "lanes": lambda store: lanes_of(store, "a stage that is new"),
    "apply": lambda store: store.apply(
        operation_sql.log(act=operation_sql.Act(NOW, "a", "b", "c", "d", None))
    ),
    "exchange": lambda store: build.exchange(store, "w1", [build.settlement(build.taken(store))]),
    "swap_breaker": lambda store: store.swap_breaker("api", None, b"{}"),
}


class BreakerTests(Scene):
    """The states of breakers."""

    def test_the_state_of_a_breaker_is_changed_by_whoever_saw_the_last_one(self, store: Store) -> None:
        """Compare and swap; the first of several who saw none makes it."""
        agree(store.breaker("api"), None)

        agree([store.swap_breaker("api", None, state) for state in (b"1", b"2")], [True, False])
        agree(store.breaker("api"), b"1")
        holds(not store.swap_breaker("api", b"0", b"2"))
        holds(store.swap_breaker("api", b"1", b"2"))
        agree((store.breaker("api"), store.breaker("other")), (b"2", None))

    def test_a_commit_changes_the_breakers_that_nobody_else_has_changed(self, store: Store) -> None:
        """Also without anything to settle or to claim; the answer names those that were changed."""
        lanes_of(store)
        for name in ("api", "mail"):
            store.swap_breaker(name, None, b"1")
        swaps = [
            StateChange(b"2", "api", b"1"),
            StateChange(b"2", "mail", b"0"),
            StateChange(b"2", "new", b"1"),
        ]

        answer = store.exchange(
            ExchangeRequest("w1", [], ClaimRequest((), 0), now=NOW, token=1, breakers=swaps)
        )

        agree(answer.swapped, ("api",))
        found = store.query(worker_sql.breakers_named(names=["new", "mail", "api"]))
        agree({row.name: row.state for row in found}, {"api": b"2", "mail": b"1"})

    def test_a_change_of_phase_is_recorded_if_and_only_if_the_breaker_is_changed(self, store: Store) -> None:
        """Both in one transaction: whoever comes too late records nothing."""
        change = PhaseChange(
            at=NOW, breaker="api", before="closed", after="open", cause="failures", actor="w1", code="X"
        )

        agree([store.swap_breaker("api", None, state, change) for state in (b"1", b"2")], [True, False])

        (row,) = store.query(worker_sql.breaker_changes(after=0, pipeline=None, limit=10))
        agree(members_of(row), {**msgspec.structs.asdict(change), "id": row.id, "at": instant(NOW)})


class StatementTests(BreakerTests):
    """Queries, changes, change counters and breakers."""

    def test_a_change_is_made_whole(self, store: Store) -> None:
        """And brings back the rows of each step, in order."""
        log = operation_sql.log(act=operation_sql.Act(NOW, "me", "test", "jobs", "all", "why"))

        first = store.apply(log, run_sql.add_run(pipeline="shop", options=b"{}", now=NOW), log)

        agree(first is not None and [len(rows) for rows in first], [0, 1, 0])
        rows = store.query(operation_sql.operations(limit=10))
        seen = [(row.at, row.actor, row.verb, row.subject, row.reason) for row in rows]
        agree(seen, [(instant(NOW), "me", "test", "jobs all", "why")] * 2)

    @pytest.mark.parametrize("rows", [0, 2])
    def test_a_change_that_does_not_fit_is_dropped_whole(self, store: Store, rows: int) -> None:
        """A step that touches more or fewer rows than it must undoes the steps before it, too."""
        (lane,) = lanes_of(store)
        (one, _) = store.submit([build.new(lane), build.new(lane)], NOW)
        log = operation_sql.log(act=operation_sql.Act(NOW, "me", "cancel", "job", "1", None))

        agree(store.apply(log, job_sql.cancel_queued(now=NOW, job=one.id).touching(rows), log), None)

        agree(build.statuses(store), {"queued": 2})
        agree(store.query(operation_sql.operations(limit=10)), [])
        holds(store.apply(log, job_sql.cancel_queued(now=NOW, job=one.id).touching(1), log) is not None)
        agree(build.statuses(store), {"queued": 1, "cancelled": 1})

    def test_a_change_that_breaks_a_constraint_is_an_error_and_leaves_nothing(self, store: Store) -> None:
        """A row that cannot be is no question of fitting."""
        log = operation_sql.log(act=operation_sql.Act(NOW, "me", "test", "jobs", "all", None))

        with pytest.raises(StoreError):
            store.apply(log, Step("log", (NOW, None, "test", "jobs", "all", None)))

        agree(store.query(operation_sql.operations(limit=10)), [])

    def test_a_queued_job_is_cancelled_and_one_that_runs_is_only_asked(self, store: Store) -> None:
        """Each of the two steps leaves the jobs of the other alone."""
        one = build.taken(store)
        (two,) = store.submit([build.new(one.lane)], NOW)

        agree(store.apply(job_sql.cancel_queued(now=NOW, job=one.id).touching(1)), None)
        agree(store.apply(job_sql.ask_to_cancel(job=two.id).touching(1)), None)
        store.apply(
            job_sql.cancel_queued(now=NOW, job=two.id).touching(1),
            job_sql.ask_to_cancel(job=one.id).touching(1),
        )

        running = build.facts(store, one.id)
        agree((running.status, running.is_cancel_asked), ("processing", True))
        agree(build.facts(store, two.id).status, "cancelled")

    def test_the_jobs_of_a_paused_run_wait_and_continue_as_they_were(self, store: Store) -> None:
        """Other jobs are not touched; pausing twice is pausing once."""
        (lane,) = lanes_of(store)
        run = build.new_run(store)
        paused, _ = store.submit([build.new(lane, b"1", run=run, ordinal=0), build.new(lane, b"2")], NOW)
        store.apply(run_sql.stop_run(status="paused", reason="why", ended_at=NOW, run=run).touching(1))
        for _ in range(2):
            store.apply(run_sql.pause_run(run=run))

        agree([one.input for one in build.claim(store, lane)], [b"2"])
        agree(build.facts(store, paused.id).waiting, "paused")
        store.apply(run_sql.unpause_run(run=run))
        agree(build.facts(store, paused.id).waiting, None)
        agree([one.input for one in build.claim(store, lane)], [b"1"])

    def test_a_tick_of_a_schedule_is_made_by_one_worker(self, store: Store) -> None:
        """Whoever saw the same `next_at` second does not fit, and submits nothing."""
        (lane,) = lanes_of(store)
        planned = run_sql.Planned(lane, "0 0 * * *", "UTC", b"1", 5)
        store.apply(run_sql.put_schedule(name="daily", planned=planned, next_at=NOW))
        agree([row[0] for row in store.query(run_sql.due_schedules(now=NOW))], ["daily"])
        tick = (
            run_sql.tick(next_at=NOW + 60, now=NOW, name="daily", due_at=NOW).touching(1),
            run_sql.submit_tick(lane=lane, priority=5, run_at=NOW, key="daily@1000", payload=b"1", now=NOW),
        )

        agree([store.apply(*tick) is None for _ in range(2)], [False, True])

        agree(build.statuses(store), {"queued": 1})
        agree(store.query(run_sql.due_schedules(now=NOW)), [])

    def test_a_schedule_that_is_put_again_keeps_its_next_tick_unless_its_times_change(
        self, store: Store
    ) -> None:
        """Another expression, or another time zone; a tick that was seen before that is not made."""
        (lane,) = lanes_of(store)
        first = run_sql.Planned(lane, "0 0 * * *", "UTC", b"1", 5)
        plans = (
            first,
            first._replace(payload=b"2"),
            first._replace(zone="Asia/Tokyo"),
            first._replace(cron="0 1 * * *"),
        )
        seen: list[float | None] = []
        for number, planned in enumerate(plans):
            store.apply(run_sql.put_schedule(name="daily", planned=planned, next_at=NOW - number))
            seen += store.query(run_sql.next_schedule_at())

        agree(seen, [NOW, NOW, NOW - 2, NOW - 3])
        late = run_sql.tick(next_at=NOW + 60, now=NOW, name="daily", due_at=NOW).touching(1)
        agree(store.apply(late), None)

    def test_a_change_counter_stays_the_same_while_nobody_changes_anything(self, store: Store) -> None:
        """Looking is no change, and neither is a claim that finds nothing. What others do on the same server may be one."""
        (lane,) = lanes_of(store)

        def is_quiet() -> bool:
            before = store.change_counter()
            store.query(job_sql.counts())
            store.upcoming([lane])
            store.breaker("api")
            store.exchange(ExchangeRequest("w1", [], ClaimRequest((lane,), 1), now=NOW, token=1))
            return store.change_counter() == before

        holds(any(is_quiet() for _ in range(200)))

    @pytest.mark.parametrize("change", sorted(CHANGES))
    def test_a_change_counter_differs_after_every_change(self, store: Store, change: str) -> None:
        """So that an idle worker sees what there is to see without claiming."""
        before = store.change_counter()

        CHANGES[change](store)

        holds(store.change_counter() != before)

    def test_a_signal_reports_new_jobs_until_it_is_cleared(self, store: Store) -> None:
        """A store may have none; then workers compare its change counter."""
        (lane,) = lanes_of(store)
        if (signal := store.change_signal()) is not None:
            with closing(signal):
                signal.clear()
                store.submit([build.new(lane)], NOW)

                holds(bool(select.select([signal], [], [], SIGNAL_SECONDS)[0]))
                signal.clear()
                holds(not select.select([signal], [], [], 0)[0])


class MomentTests(Scene):
    """Reads of one moment: what is changed meanwhile is not seen, and nobody waits for anybody."""

    def test_what_is_changed_between_two_questions_is_not_seen(self, store: Store) -> None:
        """Neither a new job, nor one that has moved; the store itself sees both, and so does the next moment."""
        (lane,) = lanes_of(store)
        store.submit([build.new(lane)], NOW)

        with store.reading() as moment:
            before = moment.query(job_sql.counts())
            store.submit([build.new(lane)], NOW)
            build.taken(store)
            agree(moment.query(job_sql.counts()), before)
            agree(moment.query(job_sql.recount()), before)

        with store.reading() as moment:
            agree(sum(row.jobs for row in moment.query(job_sql.counts())), 3)

    def test_a_moment_begins_with_the_scope_not_with_the_first_question(self, store: Store) -> None:
        """Who asks late gets the same answer."""
        (lane,) = lanes_of(store)

        with store.reading() as moment:
            store.submit([build.new(lane)], NOW)
            agree(moment.query(job_sql.counts()), [])
        agree(build.statuses(store), {"queued": 1})

    def test_several_moments_can_be_read_at_once(self, store: Store) -> None:
        """Each sees its own."""
        (lane,) = lanes_of(store)

        with store.reading() as first:
            store.submit([build.new(lane)], NOW)
            with store.reading() as second:
                store.submit([build.new(lane)], NOW)
                seen = [
                    len(moment.query(job_sql.nearest_jobs(first=0, last=9))) for moment in (first, second)
                ]

        agree(seen, [0, 1])

    def test_an_error_ends_the_scope_and_the_next_one_works(self, store: Store) -> None:
        """Whatever went wrong in it."""
        lanes_of(store)
        with pytest.raises(LookupError), store.reading():
            raise LookupError

        with store.reading() as moment:
            agree(moment.query(job_sql.counts()), [])

    def test_a_closed_store_has_no_moments(self, store: Store) -> None:
        """As it answers no questions."""
        store.close()

        with pytest.raises(StoreRefusedError), store.reading():
            pass
