# SPDX-License-Identifier: Apache-2.0
"""What was shown is what is done: letters that come into a selection after it was counted are no part of it."""

from __future__ import annotations

import pytest

from redrive import Redrive
from redrive.core.replay import ReplayRules, plan_of
from redrive.engine.replay.filter import LetterFilter
from redrive.ops.letters import triage
from redrive.ops.letters.freeze import FrozenSet, freeze
from redrive.ops.letters.preview import Reason, ReplayPreview
from redrive.ops.replay import replays
from redrive.ops.replay.progress import ReplayReport, report_of
from redrive.store.protocol import Store
from redrive.store.statements import replays as replay_sql
from redrive.testing import VirtualClock
from tests.embedded import read_rows
from tests.unit.engine.replay.shop import BY, Shop

SHOP = LetterFilter(pipeline="shop")


@pytest.fixture
def shop(store: Store, clock: VirtualClock) -> Shop:
    made = Shop(store, clock)
    made.store.apply(replay_sql.put_rules(pipeline="shop", rules=b'{"evidence":"optional"}'))
    made.fail(6)
    made.fix()
    return made


def named(shop: Shop, *letters: int) -> FrozenSet:
    return freeze(shop.store, LetterFilter(ids=letters))


def remedied(shop: Shop, *letters: int) -> None:
    triage.remediate(
        shop.store, named(shop, *letters), BY, evidence="fixed", is_safe=True, diagnosis="auth_config"
    )


def replayed(shop: Shop, begun: int) -> ReplayReport:
    assert shop.work() == "idle"
    return report_of(shop.store, begun)


@pytest.mark.parametrize("is_triaged", [False, True])
def test_letters_that_become_ready_after_the_start_are_not_replayed(shop: Shop, is_triaged: bool) -> None:
    """Whether they are triaged only with that, or were before."""
    if is_triaged:
        triage.triage(shop.store, named(shop, 3, 4, 5, 6), BY, diagnosis="auth_config")
    remedied(shop, 1, 2)
    which = LetterFilter(pipeline="shop", state="ready")

    begun = replays.start(shop.store, which, BY, plan=plan_of())
    if is_triaged:
        triage.remediate(shop.store, named(shop, 3, 4, 5, 6), BY, evidence="fixed", is_safe=True)
    else:
        remedied(shop, 3, 4, 5, 6)
    report = replayed(shop, begun.id)

    assert (begun.expected, report.letters, report.recovered) == (2, 2, 2)
    assert shop.counts() == {"resolved": 2, "ready": 4}


def test_letters_whose_evidence_is_taken_back_after_the_start_are_not_replayed_where_it_is_required(
    shop: Shop,
) -> None:
    shop.store.apply(replay_sql.put_rules(pipeline="shop", rules=b'{"evidence":"required"}'))
    remedied(shop, 1, 2)

    begun = replays.start(shop.store, LetterFilter(ids=(1, 2)), BY, plan=plan_of(()))
    triage.triage(shop.store, named(shop, 2), BY, diagnosis="auth_config")
    driver = shop.driver()
    for _ in range(3):
        driver.drive()

    assert (begun.expected, shop.counts()) == (2, {"replaying": 1, "triaged": 1, "open": 4})


def test_letters_that_are_restored_after_the_start_are_not_replayed(shop: Shop) -> None:
    triage.discard(shop.store, named(shop, 4, 5, 6), BY)

    begun = replays.start(shop.store, SHOP, BY, plan=plan_of())
    triage.restore(shop.store, named(shop, 4, 5, 6), BY)
    report = replayed(shop, begun.id)

    assert (begun.expected, report.letters, report.recovered) == (3, 3, 3)
    assert shop.counts() == {"resolved": 3, "open": 3}


def test_letters_that_another_replay_lets_go_after_the_start_are_not_replayed(shop: Shop) -> None:
    held = replays.start(shop.store, LetterFilter(ids=(1, 2, 3)), BY, plan=plan_of())
    driver = shop.driver()
    driver.drive()
    shop.store.stop_worker("w")
    taken = read_rows(shop.store, "SELECT count(*) FROM dead_letters WHERE replay_id = 1 AND state = 'open'")

    begun = replays.start(shop.store, SHOP, BY, plan=plan_of())
    replays.cancel(shop.store, held.id, BY)
    report = replayed(shop, begun.id)

    assert taken == [(3,)]
    assert (begun.expected, report.letters, report.recovered) == (3, 3, 3)
    assert shop.counts() == {"resolved": 3, "open": 3}


def test_letters_that_another_replay_skips_after_the_start_are_not_replayed(shop: Shop) -> None:
    held = replays.start(shop.store, LetterFilter(ids=(1, 2, 3)), BY, plan=plan_of())
    driver = shop.driver()
    driver.drive()
    shop.store.stop_worker("w")
    ((job,),) = read_rows(shop.store, "SELECT job_id FROM dead_letters WHERE id = 1")
    Redrive(shop.store).jobs.erase(int(str(job)), actor="ann", reason="asked for")

    begun = replays.start(shop.store, SHOP, BY, plan=plan_of())
    report = replayed(shop, begun.id)

    assert report_of(shop.store, held.id).skipped == 1
    assert (begun.expected, report.letters, report.recovered, report.skipped) == (3, 3, 3, 0)


def test_letters_that_are_triaged_after_the_start_stay_part_of_it(shop: Shop) -> None:
    begun = replays.start(shop.store, SHOP, BY, plan=plan_of())
    triage.triage(shop.store, named(shop, 1, 2), BY, diagnosis="data")

    assert replayed(shop, begun.id).recovered == 6


def test_letters_can_be_replayed_after_they_were_restored_or_let_go(shop: Shop) -> None:
    triage.discard(shop.store, named(shop, 1, 2), BY)
    triage.restore(shop.store, named(shop, 1, 2), BY)
    begun = replays.start(shop.store, SHOP, BY, plan=plan_of())
    replays.cancel(shop.store, begun.id, BY)

    again = replays.start(shop.store, LetterFilter(pipeline="shop", state="open"), BY, plan=plan_of())

    assert replayed(shop, again.id).recovered == 6


def test_an_act_leaves_alone_what_came_into_the_state_after_it_was_chosen(shop: Shop) -> None:
    triage.discard(shop.store, named(shop, 3, 4, 5, 6), BY)
    chosen = freeze(shop.store, LetterFilter(state="open"))
    triage.restore(shop.store, named(shop, 3, 4, 5, 6), BY)

    judged = triage.discard(shop.store, chosen, BY)

    assert (chosen.count, judged.changed) == (2, 2)
    assert judged.left == {Reason("came_later", "open"): 4}


@pytest.mark.parametrize(
    ("which", "where"),
    [
        (LetterFilter(ids=(2,)), "remediate 2 --diagnosis"),
        (LetterFilter(ids=(2, 3)), "remediate LETTER --diagnosis"),
        (
            LetterFilter(code="AUTH_DENIED", stage="pay it"),
            "remediate --stage 'pay it' --code AUTH_DENIED --diagnosis",
        ),
        (LetterFilter(run=3, state="open"), "remediate --state open --run 3 --diagnosis"),
        (LetterFilter(since=0.0), "remediate --since 1970-01-01T00:00:00Z --diagnosis"),
        (LetterFilter(), "remediate --pipeline shop --diagnosis"),
    ],
)
def test_whoever_has_to_vouch_for_letters_is_asked_about_no_others(which: LetterFilter, where: str) -> None:
    found = ReplayPreview(
        pipeline="shop",
        letters=1,
        by_state={"open": 1},
        taken=0,
        lacking=1,
        rules=ReplayRules(),
        frozen=FrozenSet(which=which, cutoff=1, counts={("shop", "open"): 1}),
    )

    hint = str(replays._lacking(which, found).hint)
    assert where in hint
    assert ("--state ready" in hint) is (which.ids is None and which.state is None)
