# SPDX-License-Identifier: Apache-2.0
"""Budgets, dead letters, breakers and the books, as Criticizer, FetchBox, PDF to XML and CollabIQ ask for them."""

from __future__ import annotations

import sqlite3
from itertools import pairwise

import pytest

from redrive import Backoff, Breaker, Context, Event, Fail, Jitter, Redrive, RetryPolicy, stage
from redrive.engine.worker.leases import Leases
from redrive.store.records import ClaimRequest, ExchangeRequest
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.unit.build import work

from .flows import Answered, attempts_of, pipeline, policy, stage_calling


@pytest.mark.req("CR-3.1")
def test_each_stage_has_five_attempts_of_its_own(
    rd: Redrive, store: SqliteStore, clock: VirtualClock
) -> None:
    healing = [Answered(503, 503, 503, 503, 200) for _ in range(3)]
    names = ("fetch", "llm", "notify")
    flow = pipeline(
        *(stage_calling(each, name, retry=policy(5)) for each, name in zip(healing, names, strict=True))
    )
    job = rd.submit(flow, 7)
    work(store, flow)

    assert job.result() == 7
    assert [each.calls for each in healing] == [5, 5, 5]
    assert [one.attempt for one in job.attempts()] == [1, 2, 3, 4, 5] * 3


@pytest.mark.req("CR-2.2")
def test_the_delay_of_an_attempt_is_drawn_when_it_is_due(
    rd: Redrive, store: SqliteStore, clock: VirtualClock
) -> None:
    backoff = Backoff.exponential(1, factor=2, cap=60, jitter=Jitter.full())
    flow = pipeline(stage_calling(Answered(503), retry=RetryPolicy(6, backoff)))
    delays = []
    for _ in range(2):
        job = rd.submit(flow, 1)
        work(store, flow)
        made = job.attempts()
        delays.append([later.started_at - sooner.ended_at for sooner, later in pairwise(made)])

    assert len(delays[0]) == len(delays[1]) == 5
    assert delays[0] != delays[1]
    assert store.read("SELECT name FROM pragma_table_info('jobs') WHERE name LIKE '%schedule%'") == []


@pytest.mark.req("CR-1.8")
def test_a_refusal_by_policy_is_never_retried_and_is_put_before_an_operator(
    rd: Redrive, store: SqliteStore, clock: VirtualClock
) -> None:
    def refuse(_number: int) -> int:
        raise Fail("POLICY_REFUSED", "the content policy refused it")

    seen: list[Event] = []
    flow = pipeline(stage(retry=policy(5))(refuse), on_dead=seen.append)
    job = rd.submit(flow, 1)
    work(store, flow)

    assert [one.outcome for one in job.attempts()] == ["dead"]
    ((state, code),) = store.read("SELECT state, code FROM letters WHERE job_id = ?", (job.id,))
    assert (state, code) == ("open", "POLICY_REFUSED")


@pytest.mark.req("CR-1.9")
def test_a_bug_is_never_retried_becomes_a_dead_letter_and_pages_the_operator(
    rd: Redrive, clock: VirtualClock
) -> None:
    def broken(_number: int) -> int:
        nothing: dict[str, int] = {}
        return nothing["x"]

    paged: list[Event] = []
    flow = pipeline(stage(retry=policy(5))(broken), on_dead=paged.append)
    job = rd.submit(flow, 1)
    rd.work([flow], until_idle=True)

    assert [one.outcome for one in job.attempts()] == ["dead"]
    assert [(event.kind, event.job_id, event.code) for event in paged] == [("dead", job.id, "BUG_CODE")]


@pytest.mark.req("FB-5.1")
def test_what_is_out_of_attempts_is_a_dead_letter_and_a_bug_is_one_at_once(
    rd: Redrive, store: SqliteStore, clock: VirtualClock
) -> None:
    def handler(_number: int) -> int:
        raise TypeError("the handler is broken")

    exhausted = pipeline(stage_calling(Answered(503), "download", retry=policy(3)), name="download")
    broken = pipeline(stage(name="handle", retry=policy(3))(handler), name="handle")
    first, second = rd.submit(exhausted, 1), rd.submit(broken, 1)
    work(store, exhausted, broken)

    assert [one.outcome for one in first.attempts()] == ["retry", "retry", "dead"]
    assert [one.outcome for one in second.attempts()] == ["dead"]
    letters = store.read("SELECT job_id, reason FROM letters WHERE state = 'open' ORDER BY job_id")
    assert letters == [(first.id, "exhausted"), (second.id, "permanent")]


@pytest.mark.req("FB-5.2")
@pytest.mark.parametrize("status", [400, 401, 403, 422])
def test_a_validation_or_authorisation_error_in_a_worker_is_fatal(
    rd: Redrive, store: SqliteStore, clock: VirtualClock, status: int
) -> None:
    upstream = Answered(status)
    flow = pipeline(stage_calling(upstream, retry=policy(5)))
    job = rd.submit(flow, 1)
    work(store, flow)

    assert (job.status, upstream.calls) == ("failed", 1)
    assert store.read("SELECT count(*) FROM dead_letters WHERE job_id = ? AND state = 'open'", (job.id,)) == [
        (1,)
    ]


@pytest.mark.req("PX-3.4")
def test_the_books_are_kept_also_after_a_crash(rd: Redrive, store: SqliteStore, clock: VirtualClock) -> None:
    flow = pipeline(stage_calling(Answered(503, 200)))
    job = rd.submit(flow, 1)
    crash(store, flow, clock)
    work(store, flow)
    facts = job.facts

    assert facts.dispatch == 3
    assert [one.outcome for one in job.attempts()] == ["crashed", "retry", "ok"]
    ((started, last, result),) = store.read("SELECT started_at, last_attempt_at, result FROM jobs")
    assert started == pytest.approx(job.attempts()[0].started_at.timestamp())
    assert last == pytest.approx(job.attempts()[-1].started_at.timestamp())
    assert result == b"1"

    lost = rd.submit(pipeline(stage_calling(Answered(400)), name="other"), 1)
    work(store, pipeline(stage_calling(Answered(400)), name="other"))
    assert lost.facts.error_code is not None
    assert lost.facts.finished_at == lost.attempts()[-1].ended_at


def crash(store: SqliteStore, flow: object, clock: VirtualClock) -> None:
    """Let a worker take a job and vanish."""
    lane = store.lanes(flow.name, [one.name for one in flow.stages])[0]  # type: ignore[attr-defined]
    store.start_worker("gone", clock.wall(), 30)
    assert store.exchange(
        ExchangeRequest("gone", [], ClaimRequest((lane,), 1), now=clock.wall(), token=1)
    ).claimed
    clock.advance(31)
    assert store.reap(clock.wall()) == 1


@pytest.mark.req("PX-4.1")
def test_a_lease_is_extended_while_its_worker_lives_and_passes_on_when_it_is_dead(
    rd: Redrive, store: SqliteStore, clock: VirtualClock
) -> None:
    flow = pipeline(stage_calling(Answered(200)))
    job = rd.submit(flow, 1)
    store.start_worker("alive", clock.wall(), 30)
    lane = store.lanes("flow", ["call"])[0]
    store.exchange(ExchangeRequest("alive", [], ClaimRequest((lane,), 1), now=clock.wall(), token=1))
    leases = Leases(store, clock, lease=30, on_dead=lambda _name: None)
    for _ in range(9):
        clock.advance(10)
        leases.beat("alive")
        assert store.reap(clock.wall()) == 0
    assert job.facts.worker == "alive"

    clock.advance(31)
    assert store.reap(clock.wall()) == 1
    work(store, flow)
    assert (job.status, job.facts.dispatch) == ("complete", 2)


@pytest.mark.req("PX-8.1")
def test_a_job_moves_as_the_table_says_and_in_no_other_way(
    rd: Redrive, store: SqliteStore, clock: VirtualClock
) -> None:
    breaker = Breaker("gateway", consecutive=2, open_for=60, mode="fail_fast")
    flow = pipeline(stage_calling(Answered(503), retry=policy(2), breaker=breaker))
    jobs = [rd.submit(flow, n) for n in range(4)]
    work(store, flow, concurrency=1)

    walks = [[one.event for one in job.events()] for job in jobs]
    allowed = {
        ("queued", "processing"),
        ("processing", "retry"),
        ("processing", "failed"),
        ("retry", "processing"),
    }
    assert all(pair in allowed for walk in walks for pair in pairwise(walk))
    assert {walk[-1] for walk in walks} == {"failed"}
    assert any(one.code == "BREAKER_OPEN" for job in jobs for one in job.attempts())


@pytest.mark.req("PX-8.2")
@pytest.mark.parametrize(
    "wrong",
    [
        "SET result = x'31'",
        "SET error_code = 'X', error_message = 'x'",
        "SET lease_token = 1, worker_id = 'w'",
        "SET status = 'complete', finished_at = 1",
        "SET status = 'failed', finished_at = 1",
        "SET status = 'processing'",
        "SET status = 'elsewhere'",
    ],
)
def test_the_database_itself_refuses_a_row_that_breaks_an_invariant(
    rd: Redrive, store: SqliteStore, wrong: str
) -> None:
    rd.submit(pipeline(stage_calling(Answered(200))), 1)

    with pytest.raises(sqlite3.IntegrityError):
        store._db.execute(f"UPDATE jobs {wrong}")


@pytest.mark.req("PX-10.1")
def test_every_move_is_an_event_with_its_attempt_status_duration_and_code(
    rd: Redrive, store: SqliteStore, clock: VirtualClock
) -> None:
    upstream = Answered(503, 200)

    def slow(number: int) -> int:
        clock.advance(2)
        upstream.call()
        return number

    flow = pipeline(stage(retry=policy(3))(slow), stage_calling(Answered(403), "last"))
    job = rd.submit(flow, 1)
    work(store, flow)

    events = job.events()
    names = ["queued", "processing", "retry", "processing", "checkpoint", "processing", "failed"]
    assert [one.event for one in events] == names
    retried, failed = events[2], events[-1]
    assert (retried.attempt, retried.http_status, retried.duration_ms) == (1, 503, 2000)
    assert retried.code is not None
    assert (failed.attempt, failed.http_status, failed.code) == (1, 403, "AUTH_DENIED")


@pytest.mark.req("CQ-4.1")
def test_while_a_fail_fast_breaker_is_open_calls_are_refused_unmade_and_the_refusal_is_an_attempt(
    rd: Redrive, store: SqliteStore, clock: VirtualClock
) -> None:
    breaker = Breaker("notion", consecutive=5, open_for=600, close_after=2, mode="fail_fast", counts="all")
    upstream = Answered(500)
    flow = pipeline(stage_calling(upstream, retry=policy(2), breaker=breaker))
    jobs = [rd.submit(flow, n) for n in range(6)]
    work(store, flow, concurrency=1)

    assert upstream.calls == 5
    assert {job.status for job in jobs} == {"failed"}
    assert {attempts_of(rd, job.id)[-1][3] for job in jobs[3:]} == {"BREAKER_OPEN"}
    assert [one.burned for one in jobs[-1].attempts()] == [True, True]


@pytest.mark.req("CQ-4.2")
def test_a_half_open_breaker_closes_after_two_successes_and_opens_again_at_any_failure(
    rd: Redrive, store: SqliteStore, clock: VirtualClock
) -> None:
    breaker = Breaker("gmail", consecutive=5, open_for=60, close_after=2, counts="all")
    upstream = Answered(*[500] * 5, 200, 500, 200, 200)
    started: list[float] = []

    def call(number: int) -> int:
        started.append(clock.wall())
        upstream.call()
        return number

    flow = pipeline(stage(retry=policy(50), breaker=breaker)(call))
    jobs = [rd.submit(flow, n) for n in range(5)]
    work(store, flow, concurrency=5)

    assert {job.status for job in jobs} == {"complete"}
    opened, first_probe, second_probe, after_reopening = started[4], started[5], started[6], started[7]
    assert first_probe >= opened + 60
    assert second_probe < first_probe + 60
    assert after_reopening >= second_probe + 60


@pytest.mark.req("CQ-5.1")
def test_one_bad_mail_is_retried_and_dead_lettered_and_the_others_pass(
    rd: Redrive, store: SqliteStore, clock: VirtualClock
) -> None:
    def read(number: int, ctx: Context) -> int:
        ctx.note("email_id", f"mail-{number}")
        if number == 3:
            raise ConnectionResetError(104, "reset")
        return number

    flow = pipeline(stage(retry=policy(3), breaker=Breaker("gmail", consecutive=5, open_for=60))(read))
    jobs = [rd.submit(flow, n) for n in range(10)]
    work(store, flow)

    assert [job.status for job in jobs] == ["complete"] * 3 + ["failed"] + ["complete"] * 6
    assert [one.outcome for one in jobs[3].attempts()] == ["retry", "retry", "dead"]
    assert jobs[3].attempts()[-1].notes == {"email_id": "mail-3"}
