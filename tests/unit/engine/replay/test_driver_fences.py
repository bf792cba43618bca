# SPDX-License-Identifier: Apache-2.0
"""What keeps two drivers, or a driver and an operator, from acting on one replay at the same time."""

from __future__ import annotations

import pytest

from redrive.core.replay import BURST_SECONDS, Release, plan_of
from redrive.engine.replay import driver, release
from redrive.engine.replay.driver import DRIVE_SECONDS, LOOK_SECONDS
from redrive.engine.replay.filter import LetterFilter
from redrive.engine.replay.record import replay_of
from redrive.errors import StoreUnavailableError
from redrive.ops.replay import replays
from redrive.store.protocol import Store
from redrive.store.records import Step
from redrive.store.statements import replays as replay_sql
from redrive.testing import VirtualClock
from tests.embedded import changing, read_rows
from tests.unit.engine.replay.shop import BY, Shop

SHOP = LetterFilter(pipeline="shop")


@pytest.fixture
def shop(store: Store, clock: VirtualClock) -> Shop:
    made = Shop(store, clock)
    made.store.apply(replay_sql.put_rules(pipeline="shop", rules=b'{"evidence":"optional"}'))
    made.fail(4)
    made.fix()
    return made


def test_a_second_worker_takes_no_turn_while_the_first_has_the_lease(shop: Shop) -> None:
    replays.start(shop.store, SHOP, BY, plan=plan_of())
    first, second = shop.driver("w1"), shop.driver("w2")

    assert first.drive() < LOOK_SECONDS
    assert second.drive() == LOOK_SECONDS
    assert read_rows(shop.store, "SELECT driver, status FROM replays") == [("w1", "running")]


def test_the_lease_on_a_replay_is_renewed_before_it_ends(shop: Shop) -> None:
    replays.start(shop.store, SHOP, BY, plan=plan_of())
    only = shop.driver("w1")
    only.drive()

    def ends_in() -> float:
        ((until,),) = read_rows(shop.store, "SELECT driven_until FROM replays")
        return float(str(until)) - shop.clock.wall()

    shop.clock.advance(DRIVE_SECONDS / 4)
    only.drive()
    assert ends_in() == pytest.approx(DRIVE_SECONDS * 3 / 4)
    shop.clock.advance(DRIVE_SECONDS / 2)
    only.drive()
    assert ends_in() == pytest.approx(DRIVE_SECONDS)


def test_a_pause_gives_no_replay_more_than_its_rate(shop: Shop) -> None:
    begun = replays.start(shop.store, SHOP, BY, plan=plan_of((), rate=0.5))
    only = shop.driver("w1")
    for _ in range(3):
        only.drive()
        replays.pause(shop.store, begun.id, BY)
        replays.resume(shop.store, begun.id, BY)

    assert shop.counts() == {"open": 3, "replaying": 1}


def test_letters_are_not_marked_for_a_replay_that_was_paused_meanwhile(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = replays.start(shop.store, SHOP, BY, plan=plan_of())
    only, mark_steps = shop.driver("w1"), driver.mark_steps

    def pause_first(*given: object, **more: object) -> list[Step]:
        replays.pause(shop.store, begun.id, BY)
        return mark_steps(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(driver, "mark_steps", pause_first)
    only.drive()

    assert read_rows(shop.store, "SELECT count(*) FROM dead_letters WHERE replay_id IS NOT NULL") == [(0,)]
    assert read_rows(shop.store, "SELECT status FROM replays") == [("paused",)]


def test_letters_are_not_released_by_a_replay_that_was_paused_meanwhile(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = replays.start(shop.store, SHOP, BY, plan=plan_of())
    only, release_steps = shop.driver("w1"), release.release_steps
    only.drive()

    def pause_first(*given: object, **more: object) -> list[Step]:
        replays.pause(shop.store, begun.id, BY)
        return release_steps(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(driver, "release_steps", pause_first)
    only.drive()

    assert read_rows(shop.store, "SELECT DISTINCT status FROM jobs") == [("failed",)]
    assert read_rows(shop.store, "SELECT DISTINCT state FROM dead_letters") == [("open",)]


def test_a_store_that_is_gone_is_an_outage_and_no_trouble_of_one_replay(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    replays.start(shop.store, SHOP, BY, plan=plan_of())
    only = shop.driver("w1")
    only.drive()

    def unreachable(*_given: object) -> None:
        raise StoreUnavailableError(database="x", cause="gone")

    monkeypatch.setattr(driver, "counts_of", unreachable)

    with pytest.raises(StoreUnavailableError):
        only.drive()


def test_the_next_release_of_a_replay_that_skipped_letters_is_as_near_as_the_rate_allows(shop: Shop) -> None:
    with changing(shop.store) as db:
        db.execute("UPDATE jobs SET input = ? WHERE id > 1", (b'"no number"',))
    replays.start(shop.store, SHOP, BY, plan=plan_of((), rate=4.0))
    shop.clock.advance(1_000)
    # What was saved up in a second, and one letter of it.
    only, next_at = shop.driver("w1"), shop.clock.wall() - BURST_SECONDS + 1 / 4.0

    while shop.counts().get("replaying") is None:
        only.drive()

    assert read_rows(shop.store, "SELECT next_at FROM replays") == [(pytest.approx(next_at, abs=1e-6),)]


def test_letters_that_are_skipped_do_not_count_against_the_rate(shop: Shop) -> None:
    replays.start(shop.store, SHOP, BY, plan=plan_of((), rate=10.0))
    replay = replay_of(shop.store.query(replay_sql.live_replays())[0])

    assert driver._next_at(Release(letters=10, next_at=101.0), replay, 4, 100.0) == pytest.approx(100.4)
