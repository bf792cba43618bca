# SPDX-License-Identifier: Apache-2.0
"""Dependencies in use: limits and breakers, with keys and without, and what hooks and sinks receive.

When a breaker opens, or how many calls a limit allows, is decided elsewhere; here is what a store keeps of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from redrive.core.backoff import Backoff, Jitter
from redrive.core.breaker import Breaker
from redrive.core.decide import Hold, Reason
from redrive.core.decision_text import encode_decision
from redrive.core.limit import Limit
from redrive.core.limit_state import LimitState, Share
from redrive.core.policy import RetryPolicy
from redrive.engine.limits.meter import ENCODE_LIMIT
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.pipeline.stage import stage
from redrive.ops.breakers import BreakerEvent, last_breaker_change
from redrive.ops.limits import waits_of
from redrive.store.protocol import Store
from redrive.store.records import ClaimedJob, ClaimRequest, Settlement
from redrive.store.statements import outbox as outbox_sql
from redrive.store.statements import workers as worker_sql
from redrive.testing.conformance import build
from redrive.testing.conformance.build import LEASE, agree, holds, statuses
from redrive.testing.conformance.shop import BY, LARGE, ShopScene, ShopTests


@dataclass
class _Basket:
    """A sink that keeps what it receives, after it has refused once."""

    name: str = "basket"
    payload: str = "include"
    input: str = "include"
    received: list[Any] = field(default_factory=list[Any])
    refusals: int = 1

    def deliver(self, letter: object) -> str:
        """Keep a letter, and return its place."""
        if self.refusals:
            self.refusals -= 1
            raise OSError(5, "full")
        self.received.append(letter)
        return f"place {len(self.received)}"

    def deliver_breaker(self, change: object) -> None:
        """Keep the change of a breaker."""
        self.received.append(change)


class DependencyTests(ShopTests):
    """Limits, breakers, hooks and sinks."""

    def test_limits_with_and_without_keys_are_kept_listed_and_changed(
        self, store: Store, shop: ShopScene
    ) -> None:
        """A key is counted apart; what people set holds."""

        @stage(limits=[Limit("all", concurrency=4), Limit("tenant", rate=100, key=lambda job: job.owner)])
        def call(order: str) -> str:
            return order

        limited = Pipeline("limited", [call])
        for owner in ("ann", "bob"):
            shop.rd.submit(limited, "a", owner=owner)
        shop.rd.work([limited], until_idle=True)

        known = [("all", ""), ("tenant", ""), ("tenant", "ann"), ("tenant", "bob")]
        agree([(limit.name, limit.key) for limit in shop.rd.limits.list()], known)
        agree(shop.rd.limits.pause("tenant", key="ann", **BY).status, "paused")
        waiting = shop.rd.submit(limited, "b", owner="ann").id
        agree(waits_of(store, waiting, "limited", "call"), [])
        shop.rd.limits.resume("tenant", key="ann", **BY)
        shop.rd.work([limited], until_idle=True)
        agree(statuses(store), {"complete": 3})
        agree(store.query(worker_sql.worker_ids()), ["w1", "w2"])

    def test_the_first_and_the_last_jobs_of_a_lane_get_their_keys(
        self, store: Store, shop: ShopScene
    ) -> None:
        """When there are more than are looked at once; a lane whose keys mean something else begins anew."""
        lane, _ = store.lanes("shop", ["fetch", "pay"])
        shop.rd.submit_many(shop.pipeline, ["a", "b", "c"])
        found = [worker_sql.jobs_without_key, worker_sql.last_jobs_without_key]
        agree([[row.id for row in store.query(ask(lane=lane, limit=2))] for ask in found], [[1, 2], [3, 2]])

        store.apply(
            worker_sql.set_keyed_by(keyed_by='["tenant"]', lane=lane),
            worker_sql.put_keys(keys=[(1, '["ann"]'), (2, '["bob"]')], lane=lane, keyed_by='["tenant"]'),
        )
        agree(store.query(worker_sql.is_all_held(lane=lane)), [False])
        agree(store.query(worker_sql.keyed_by(lane=lane)), ['["tenant"]'])
        store.apply(worker_sql.drop_keys(lane=lane), worker_sql.drop_leased_keys(lane=lane))
        agree(len(store.query(worker_sql.jobs_without_key(lane=lane, limit=9))), 3)

    def test_a_job_keeps_the_key_that_was_found_first(self, store: Store, shop: ShopScene) -> None:
        """And gets none that is meant for something else than the keys of its lane."""
        lane, _ = store.lanes("shop", ["fetch", "pay"])
        shop.rd.submit_many(shop.pipeline, ["a", "b"])
        store.apply(worker_sql.set_keyed_by(keyed_by='["tenant"]', lane=lane))

        for keys, keyed_by in (
            ([(1, '["ann"]')], '["tenant"]'),
            ([(1, '["bob"]')], '["tenant"]'),
            ([(2, '["eve"]')], '["origin"]'),
        ):
            store.apply(worker_sql.put_keys(keys=keys, lane=lane, keyed_by=keyed_by))

        agree(store.query(worker_sql.keys_of_jobs(ids=[1, 2])), [(1, '["ann"]')])

    def test_the_limit_of_a_key_is_forgotten_unless_somebody_needs_it(
        self, store: Store, shop: ShopScene
    ) -> None:
        """An operator has set something, the dependency asked for a pause, or a worker that is there has slots of it."""
        now = shop.clock.wall()
        states = {
            "asked": LimitState(paused_until=now + 9_000.0),
            "burst": LimitState(burst=2.0),
            "concurrency": LimitState(concurrency=2),
            "dead": LimitState(shares={"gone": Share(1, 1, now)}),
            "idle": LimitState(tokens=1.0, at=now),
            "paused": LimitState(is_paused=True),
            "rate": LimitState(rate=2.0),
            "slots": LimitState(shares={"w1": Share(1, 1, now)}),
        }
        for key, state in {"": LimitState(), **states}.items():
            store.apply(worker_sql.add_limit(name="api", key=key, state=ENCODE_LIMIT(state), now=now))
        fresh = ENCODE_LIMIT(LimitState())
        store.apply(worker_sql.add_limit(name="api", key="used", state=fresh, now=now + 100.0))

        store.apply(worker_sql.drop_old_limits(before=now + 50.0))

        kept = ["", "asked", "burst", "concurrency", "paused", "rate", "slots", "used"]
        agree([row.key for row in store.query(worker_sql.limits())], kept)

    def test_a_breaker_opens_holds_is_moved_by_hand_and_is_on_record(
        self, store: Store, shop: ShopScene
    ) -> None:
        """One for each key; what is held is released when it closes."""
        is_down = [True]

        @stage(
            retry=RetryPolicy(2, Backoff.fixed(1, jitter=Jitter.none())),
            breaker=Breaker("api", consecutive=1, open_for=3_600, key=lambda job: job.owner),
        )
        def call(order: str) -> str:
            if is_down[0]:
                raise ConnectionRefusedError(111, "refused")
            return order

        basket = _Basket()
        flow = Pipeline("flow", [call], sinks=[basket])
        shop.rd.submit(flow, "a", owner="ann")
        shop.rd.work([flow], until_idle=True, hold_max=1)
        agree([(each.name, each.phase) for each in shop.rd.breakers.list()], [("api[ann]", "open")])

        is_down[0] = False
        shop.rd.breakers.close("api[ann]", **BY)
        shop.rd.work([flow], until_idle=True)

        agree(statuses(store), {"complete": 1})
        changes = shop.rd.events.list(pipeline="flow")
        holds([each for each in changes if isinstance(each, BreakerEvent)])
        agree(last_breaker_change(store), 2)
        shop.clock.advance(10 * 86_400)
        shop.rd.work([flow], until_idle=True)
        agree(list(shop.rd.breakers.list()), [])

    def test_only_what_waits_for_this_breaker_now_is_released(self, store: Store, shop: ShopScene) -> None:
        """Not what waits for another one, or waited for it before it was tried again."""
        now = shop.clock.wall()
        store.start_worker("w1", now, LEASE)
        jobs = [build.new(store.lanes("shop", ["fetch", "pay"])[0], run_at=now) for _ in range(3)]
        store.submit(jobs, now)

        def hold(of: ClaimedJob, breaker: str) -> Settlement:
            decided = Hold(until=now + 60, reason=Reason.BREAKER, code="NETWORK_RESET", breaker=breaker)
            held = build.retry(of, at=now + 60, outcome="hold", decision=encode_decision(decided))
            return replace(held, attempt=of.attempt, burned=False)

        first, second, third = build.claim(store, jobs[0].lane, now=now)
        done = [hold(first, "api"), hold(second, "mail"), hold(third, "api")]
        build.exchange(store, "w1", done, now=now)
        one = ClaimRequest((jobs[0].lane,), 1, job=third.id)
        (again,) = build.claimed(store, one, now=now + 60)
        build.exchange(store, "w1", [hold(again, "mail")], now=now + 60)

        agree(store.apply(worker_sql.release_held(now=now, breaker="api")), [[first.id]])

        # It is due, and keeps its place in the queue.
        agree(store.apply(worker_sql.release_held(now=now + 1, breaker="api")), [[]])

    def test_a_breaker_that_was_changed_meanwhile_is_not_forgotten(self, store: Store) -> None:
        """Somebody has called since it was looked at."""
        store.apply(worker_sql.add_breaker(name="api[ann]", state=b"new"))

        store.apply(worker_sql.drop_breaker(name="api[ann]", state=b"old"))
        agree(store.breaker("api[ann]"), b"new")
        store.apply(worker_sql.drop_breaker(name="api[ann]", state=b"new"))
        agree(store.breaker("api[ann]"), None)

    def test_a_sink_receives_a_letter_with_its_values_until_it_accepts_it(
        self, store: Store, shop: ShopScene
    ) -> None:
        """And its answer is kept with the letter."""
        basket = _Basket()
        sending = ShopScene(shop.rd, shop.clock, {"sinks": [basket]})

        sending.fail(LARGE)
        waiting = store.query(outbox_sql.undelivered(before=shop.clock.wall()))
        agree([(row.recipient, row.notices, row.tries) for row in waiting], [("basket", 1, 1)])
        shop.clock.advance(60)
        sending.work()

        (letter,) = basket.received
        agree((letter.job_id, letter.payload, letter.input), (1, LARGE, LARGE))
        agree(shop.rd.letters.show(1).letter.receipts, {"basket": "place 1"})
