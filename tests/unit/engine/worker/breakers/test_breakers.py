# SPDX-License-Identifier: Apache-2.0
"""Breakers in the store: jobs wait for a dependency that is down without burning an attempt, whoever works on them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from contextlib import suppress

import pytest

from redrive import (
    Backoff,
    Breaker,
    Cancel,
    ConfigurationError,
    Fail,
    Jitter,
    Pipeline,
    Redrive,
    Retry,
    RetryPolicy,
    Skip,
    Snooze,
    stage,
)
from redrive.core.breaker import Evidence
from redrive.core.breaker_state import BreakerState, Phase
from redrive.engine.worker.breakers import SharedBreakers
from redrive.engine.worker.probes import Probes
from redrive.engine.worker.slots import WorkerParts
from redrive.engine.worker.worker import Worker
from redrive.errors import StoreUnavailableError
from redrive.store.records import JobId
from redrive.store.sqlite.store import SqliteStore
from redrive.store.steps import SWAPS_MAX
from redrive.testing import VirtualClock
from tests.inline import InlineThreads, NoProcesses, T, inline_parts
from tests.unit.build import jobs, one_stage, work
from tests.unit.engine.worker.worker.test_worker import submit

STEADY = RetryPolicy(3, Backoff.exponential(1, cap=60, jitter=Jitter.full()))
OPEN = Breaker("api", consecutive=5, open_for=60)


def upstream(
    clock: VirtualClock, *, down_for: float, breaker: Breaker = OPEN, retry: RetryPolicy = STEADY
) -> Pipeline:
    """Build a pipeline whose dependency is down for so long."""
    back_at = clock.wall() + down_for

    @stage(breaker=breaker, retry=retry)
    async def call(number: int) -> int:
        await asyncio.sleep(0)
        if clock.wall() < back_at:
            raise ConnectionRefusedError(111, "refused")
        return number

    return Pipeline("flow", [call])


@pytest.mark.untraced
def test_an_outage_of_two_hours_kills_no_job_and_burns_no_more_than_what_failed_before_the_breaker_opened(
    store: SqliteStore, clock: VirtualClock
) -> None:
    pipeline = upstream(clock, down_for=7_200)
    submit(store, pipeline, *range(300))
    work(store, pipeline, concurrency=20)

    assert jobs(store, "DISTINCT status") == [("complete",)]
    ((burned,),) = store.read("SELECT count(*) FROM attempts WHERE burned AND outcome <> 'ok'")
    assert isinstance(burned, int)
    assert burned <= 5
    ((held,),) = store.read(
        "SELECT count(*) FROM attempts WHERE outcome = 'hold' AND code = 'NETWORK_REFUSED'"
    )
    assert isinstance(held, int)
    assert 100 <= held <= 140


def test_while_open_only_one_probe_at_a_time_goes_out(store: SqliteStore, clock: VirtualClock) -> None:
    pipeline = upstream(clock, down_for=600)
    submit(store, pipeline, *range(50))
    work(store, pipeline, concurrency=50)

    starts = [
        row[0]
        for row in store.read(
            "SELECT started_at FROM attempts WHERE code = 'NETWORK_REFUSED' ORDER BY started_at"
        )
    ]
    later = starts[50:]
    assert all(second - first >= 60 for first, second in itertools.pairwise(later))  # type: ignore[operator]


def test_a_fail_fast_breaker_burns_attempts_and_is_named_in_the_dead_letter(
    store: SqliteStore, clock: VirtualClock
) -> None:
    breaker = Breaker("notion", consecutive=5, open_for=60, close_after=2, mode="fail_fast", counts="all")
    pipeline = upstream(clock, down_for=1e6, breaker=breaker, retry=RetryPolicy(2, Backoff.fixed(1)))
    submit(store, pipeline, *range(20))
    work(store, pipeline, concurrency=1)

    assert jobs(store, "DISTINCT status") == [("failed",)]
    assert ("BREAKER_OPEN",) in jobs(store, "DISTINCT error_code")
    ((called,),) = store.read("SELECT count(*) FROM attempts WHERE code = 'NETWORK_REFUSED'")
    assert isinstance(called, int)
    assert called < 10


def test_an_open_breaker_stays_open_for_the_next_worker(store: SqliteStore, clock: VirtualClock) -> None:
    shared = SharedBreakers(store, [OPEN])
    for _ in range(5):
        shared.note(OPEN, Evidence.DOWN)
    shared.flush(clock.wall())

    later = SharedBreakers(store, [OPEN])
    later.flush(clock.wall())

    assert later.standing(OPEN).state.phase is Phase.OPEN
    assert not later.standing(OPEN).is_closed


def test_other_stages_go_on_while_one_is_held(store: SqliteStore, clock: VirtualClock) -> None:
    held = upstream(clock, down_for=600).stages[0]
    order: list[str] = []

    @stage
    def other(number: int) -> int:
        order.append(f"other at {clock.wall()}")
        return number

    flow, free = Pipeline("flow", [held]), Pipeline("free", [other])
    submit(store, flow, *range(10))
    submit(store, free, *range(10))
    start = clock.wall()

    async def scene() -> None:
        await Worker(store, [flow, free], inline_parts(), names=iter(["w1"]), concurrency=4).run(
            until_idle=True
        )

    asyncio.run(scene())
    assert order == [f"other at {start}"] * 10 or len(order) == 10
    assert jobs(store, "DISTINCT status") == [("complete",)]


def test_a_probe_that_finds_no_job_is_given_back(store: SqliteStore, clock: VirtualClock) -> None:
    pipeline = upstream(clock, down_for=0)
    shared = SharedBreakers(store, [OPEN])
    for _ in range(5):
        shared.note(OPEN, Evidence.DOWN)
    shared.flush(clock.wall())
    clock.advance(61)
    work(store, pipeline)

    shared.flush(clock.wall())
    state = shared.standing(OPEN).state
    assert (state.phase, state.probe) == (Phase.OPEN, None)


def test_a_probe_is_taken_once_and_ends_by_what_it_found(store: SqliteStore, clock: VirtualClock) -> None:
    shared, other = SharedBreakers(store, [OPEN]), SharedBreakers(store, [OPEN])
    for _ in range(5):
        shared.note(OPEN, Evidence.DOWN)
    shared.flush(0.0)

    probes = Probes(store, {}, shared)
    assert probes.take(OPEN, 60.0, "a")
    assert not Probes(store, {}, other).take(OPEN, 60.0, "b")
    probes.end(OPEN, 61.0, "a", Evidence.ALIVE)
    other.flush(61.0)

    assert other.standing(OPEN).is_closed


@pytest.mark.parametrize("problem", ["another is dropped", "the store is gone", "others are faster"])
def test_probes_that_were_dropped_are_all_given_back_whatever_happens_meanwhile(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, problem: str
) -> None:
    """Probes are dropped on the loop while others are being given back on the store's thread."""
    web = Breaker("web", consecutive=5, open_for=60)
    shared = SharedBreakers(store, [OPEN, web])
    for breaker in (OPEN, web):
        for _ in range(5):
            shared.note(breaker, Evidence.DOWN)
    shared.flush(0.0)
    probes = Probes(store, {}, shared)
    probes.assign(JobId(1), OPEN, 60.0, "a")
    probes.assign(JobId(2), web, 60.0, "b")
    assert probes.is_probe(JobId(1))
    assert probes.is_probe(JobId(2))
    probes.drop(JobId(1), OPEN)
    swap, times = store.swap_breaker, list[int]()

    def disturbed(name: str, before: bytes | None, after: bytes) -> bool:
        times.append(1)
        if len(times) == 1:
            probes.drop(JobId(2), web)
            if problem == "the store is gone":
                raise StoreUnavailableError(database="x", cause="gone")
        return (problem != "others are faster" or len(times) > SWAPS_MAX) and swap(name, before, after)

    monkeypatch.setattr(store, "swap_breaker", disturbed)
    with suppress(StoreUnavailableError):
        probes.release_dropped(61.0)
    probes.release_dropped(62.0)

    assert [shared.standing(breaker).state.probe for breaker in (OPEN, web)] == [None, None]


def test_a_change_that_never_gets_through_is_left_to_the_next_time(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []

    def beaten(*_args: object) -> bool:
        tries.append(1)
        return False

    shared = SharedBreakers(store, [OPEN])
    monkeypatch.setattr(store, "swap_breaker", beaten)
    shared.note(OPEN, Evidence.DOWN)
    shared.flush(0.0)

    assert len(tries) == SWAPS_MAX
    assert shared.standing(OPEN).state == BreakerState()


def test_what_is_noted_while_others_are_written_is_written_the_next_time(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    breakers = SharedBreakers(store, [OPEN])
    swap = store.swap_breaker

    def meanwhile(*given: object) -> bool:
        breakers.note(OPEN, Evidence.DOWN)
        return swap(*given)  # type: ignore[arg-type]

    breakers.note(OPEN, Evidence.DOWN)
    with monkeypatch.context() as busy:
        busy.setattr(store, "swap_breaker", meanwhile)
        breakers.flush(1.0)
    breakers.flush(2.0)

    assert breakers.standing(OPEN).state.failures == 2


def test_what_was_written_with_a_commit_is_counted_once(store: SqliteStore) -> None:
    breakers = SharedBreakers(store, [OPEN])
    breakers.note(OPEN, Evidence.DOWN)
    breakers.flush(1.0)
    breakers.note(OPEN, Evidence.DOWN)
    (change,) = breakers.flush(2.0, with_commit=True)
    assert store.swap_breaker(change.name, change.before, change.after)

    breakers.written([change.name])
    breakers.flush(3.0)

    assert breakers.standing(OPEN).state.failures == 2


@pytest.mark.parametrize("with_commit", [True, False])
def test_what_was_written_without_an_answer_is_counted_once(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, *, with_commit: bool
) -> None:
    breakers = SharedBreakers(store, [OPEN])
    breakers.note(OPEN, Evidence.DOWN)
    breakers.flush(1.0)
    breakers.note(OPEN, Evidence.DOWN)
    swap = store.swap_breaker

    def losing(*given: object) -> bool:
        swap(*given)  # type: ignore[arg-type]
        raise StoreUnavailableError(database="x", cause="the answer was lost")

    with monkeypatch.context() as lost, suppress(StoreUnavailableError):
        lost.setattr(store, "swap_breaker", losing)
        for change in breakers.flush(2.0, with_commit=with_commit):
            store.swap_breaker(change.name, change.before, change.after)
    breakers.note(OPEN, Evidence.DOWN)
    breakers.flush(3.0)

    assert breakers.standing(OPEN).state.failures == 3


def test_what_is_held_for_a_breaker_that_is_gone_is_released_once(
    store: SqliteStore, clock: VirtualClock
) -> None:
    pipeline = upstream(clock, down_for=1e6, breaker=Breaker("api", consecutive=1, open_for=3_600))
    submit(store, pipeline, 1)
    assert work(store, pipeline, hold_max=0) == "held"
    store._db.execute("DELETE FROM breakers")
    breakers, now = SharedBreakers(store, [OPEN]), clock.wall()

    breakers.holding.add("api")
    breakers.flush(now)

    assert jobs(store, "run_at") == [(now,)]
    assert not breakers.holding


def test_what_could_not_be_released_after_its_breaker_was_closed_is_released_the_next_time(
    store: SqliteStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = upstream(clock, down_for=1e6, breaker=Breaker("api", consecutive=1, open_for=3_600))
    submit(store, pipeline, 1)
    assert work(store, pipeline, hold_max=0) == "held"
    store._db.execute("DELETE FROM breakers")
    breakers, now = SharedBreakers(store, [OPEN]), clock.wall()
    breakers.holding.add("api")

    def unreachable(*_steps: object) -> None:
        raise StoreUnavailableError(database="x", cause="gone")

    with monkeypatch.context() as gone, pytest.raises(StoreUnavailableError):
        gone.setattr(store, "apply", unreachable)
        breakers.flush(now)
    breakers.flush(now)

    assert jobs(store, "run_at") == [(now,)]


@pytest.mark.parametrize("wish", [Fail("NO_STOCK"), Skip("empty"), Cancel("no"), Retry(1), Snooze(1)])
def test_what_a_stage_asks_for_proves_nothing_about_the_dependency(
    store: SqliteStore, clock: VirtualClock, wish: Exception
) -> None:
    breaker = Breaker("api", consecutive=1, counts="all")

    @stage(breaker=breaker)
    async def ask(number: int) -> int:
        if clock.wall() > started_at:
            return number
        raise wish

    started_at, pipeline = clock.wall(), Pipeline("flow", [ask])
    submit(store, pipeline, 1)
    work(store, pipeline)

    assert store.read("SELECT * FROM breaker_changes") == []


def test_a_breaker_that_opens_before_a_commit_is_written_at_once_and_on_record(store: SqliteStore) -> None:
    breakers = SharedBreakers(store, [OPEN])
    for _ in range(2):
        assert breakers.flush(1.0, with_commit=True) == []
        for _ in range(3):
            breakers.note(OPEN, Evidence.DOWN, "NETWORK_REFUSED")

    assert breakers.flush(2.0, with_commit=True) == []

    assert not breakers.standing(OPEN).is_closed
    assert store.read("SELECT before, after, code FROM breaker_changes") == [
        ("closed", "open", "NETWORK_REFUSED")
    ]


def test_an_opening_has_the_code_of_the_last_failure_whatever_other_calls_found(store: SqliteStore) -> None:
    half = Breaker("half", failure_rate=0.5, min_calls=2)
    breakers = SharedBreakers(store, [half])
    breakers.note(half, Evidence.DOWN, "NETWORK_REFUSED")
    breakers.note(half, Evidence.ALIVE)

    breakers.flush(1.0)

    assert store.read("SELECT after, code FROM breaker_changes") == [("open", "NETWORK_REFUSED")]


def test_a_probe_can_be_taken_again_under_its_own_token_alone(store: SqliteStore) -> None:
    one = Breaker("one", consecutive=1, open_for=5)
    breakers = SharedBreakers(store, [one])
    probes = Probes(store, {}, breakers)
    breakers.note(one, Evidence.DOWN)
    breakers.flush(1.0)

    assert [probes.take(one, 10.0, token) for token in ("mine", "mine", "other")] == [True, True, False]


def test_only_an_opening_has_a_code(store: SqliteStore) -> None:
    """Also if a call that proved the dependency alive has one: of a batch, single items may have failed."""
    one = Breaker("one", consecutive=1, open_for=5)
    breakers = SharedBreakers(store, [one])
    probes = Probes(store, {}, breakers)
    breakers.note(one, Evidence.DOWN, "NETWORK_REFUSED")
    breakers.flush(1.0)
    assert probes.take(one, 10.0, "probe")
    probes.end(one, 11.0, "probe", Evidence.ALIVE, "BAD_INPUT")

    changes = store.read("SELECT after, code FROM breaker_changes ORDER BY id")
    assert changes == [("open", "NETWORK_REFUSED"), ("half_open", None), ("closed", None)]


def test_a_breaker_with_its_own_probe_lets_no_job_through_before_it_is_closed(store: SqliteStore) -> None:
    own, plain = (
        Breaker(name, consecutive=1, open_for=5, probe=probe)
        for name, probe in (("own", lambda: None), ("plain", None))
    )
    breakers = SharedBreakers(store, [own, plain])
    breakers.note(own, Evidence.DOWN)
    breakers.flush(1.0)
    assert breakers.opens_in(2.0, 60.0) == 60.0

    breakers.note(plain, Evidence.DOWN)
    breakers.flush(1.0)
    assert breakers.opens_in(2.0, 60.0) == 4.0


def test_one_name_means_one_configuration(store: SqliteStore) -> None:
    with pytest.raises(ConfigurationError, match="two ways"):
        SharedBreakers(store, [OPEN, Breaker("api", consecutive=9)])
    with pytest.raises(ConfigurationError, match="must be a Breaker"):
        stage(breaker="api")(lambda number: number)  # type: ignore[call-overload]


def test_a_breaker_changes_in_the_store_only_from_what_it_was(store: SqliteStore) -> None:
    assert store.breaker("api") is None
    assert store.swap_breaker("api", None, b"1")
    assert not store.swap_breaker("api", None, b"2")
    assert not store.swap_breaker("api", b"0", b"2")
    assert store.swap_breaker("api", b"1", b"2")
    assert store.breaker("api") == b"2"


def means_of(ask: object) -> WorkerParts:
    return WorkerParts(ask_store=ask, threads=InlineThreads(), processes=NoProcesses())  # type: ignore[arg-type]


@pytest.mark.parametrize("is_probe", [True, False])
def test_what_could_not_be_reported_to_a_breaker_is_reported_later(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, caplog: pytest.LogCaptureFixture, is_probe: bool
) -> None:
    breaker = Breaker("api", consecutive=1, open_for=5, probe_timeout=5)
    outages: list[StoreUnavailableError] = []
    ran: list[int] = []

    async def call(number: int) -> int:
        ran.append(number)
        if len(ran) == 1:
            outages.append(StoreUnavailableError(database="x", cause="gone"))
            raise ConnectionRefusedError(111, "refused")
        return number

    async def ask(question: Callable[[], T]) -> T:
        if outages:
            raise outages.pop()
        return question()

    pipeline = one_stage(call, breaker=breaker, retry=RetryPolicy(2, Backoff.fixed(1)))
    rd.submit(pipeline, 1)
    if is_probe:
        somebody = SharedBreakers(store, [breaker])
        somebody.note(breaker, Evidence.DOWN)
        somebody.flush(clock.wall())
    work(store, pipeline, parts=means_of(ask))

    assert "breaker api: the store did not answer" in caplog.text
    assert jobs(store) == [("complete",)]


def test_a_probe_that_is_asked_for_again_with_its_token_is_the_same(store: SqliteStore) -> None:
    breaker = Breaker("api", consecutive=1, open_for=5)
    shared = SharedBreakers(store, [breaker])
    shared.note(breaker, Evidence.DOWN)
    shared.flush(0.0)

    probes = Probes(store, {}, shared)
    assert [probes.take(breaker, 6.0, token) for token in ("a", "a", "b")] == [True, True, False]
