# SPDX-License-Identifier: Apache-2.0
"""A dry run of a replay tells everything that stands in the way of a letter, and counts each letter once for each kind of it."""

from __future__ import annotations

import pytest

from redrive import Pipeline, Redrive, ReplayRules, RetryPolicy, stage
from redrive.engine.replay.filter import LetterFilter
from redrive.ops.replay import validation
from redrive.ops.replay.validation import Validation


@stage(retry=RetryPolicy(1))
def pay(order: dict[str, str]) -> float:
    return 1 / len(order["amount"])


@stage(name="pay", retry=RetryPolicy(1))
def typed(order: list[int]) -> float:
    return 1 / len(order)


@stage(name="settle", retry=RetryPolicy(1))
def renamed(order: dict[str, str]) -> float:
    return 1 / len(order)


SHOP = Pipeline("shop", [pay])
OTHER_TYPE = Pipeline("shop", [typed])
OTHER_STAGE = Pipeline("shop", [renamed])
RELAXED = Pipeline("lab", [pay], replay=ReplayRules(evidence="optional"))


def fail(rd: Redrive, *, pipeline: Pipeline = SHOP, key: str | None = None) -> None:
    rd.submit(pipeline, {"amount": ""}, key=key)
    rd.work([pipeline], until_idle=True)


def kinds(found: Validation, letter: int = 1) -> list[str]:
    return [each.kind for each in found.findings if each.letter == letter]


def test_everything_that_stands_in_the_way_of_a_letter_is_told_and_summed_up(rd: Redrive) -> None:
    fail(rd, key="order-1")
    rd.submit(SHOP, {"amount": "5"}, key="order-1")

    found = rd.letters.validate(pipeline="shop", pipelines=[OTHER_TYPE])

    assert kinds(found) == ["evidence", "key", "type"]
    assert found.obstacles == {"evidence": 1, "key": 1, "type": 1}
    assert (found.letters, found.able, found.is_fine) == (1, 0, False)
    assert "(job 2)" in next(each.text for each in found.findings if each.kind == "key")


def test_an_erased_value_does_not_hide_a_stage_that_is_gone(rd: Redrive) -> None:
    fail(rd, pipeline=RELAXED)
    rd.jobs.erase(1)
    rd.work([Pipeline("lab", [renamed], replay=RELAXED.replay)], until_idle=True)

    by_code = rd.letters.validate(pipeline="lab", pipelines=[Pipeline("lab", [renamed])])
    by_last_worker = rd.letters.validate(pipeline="lab")

    assert kinds(by_code) == kinds(by_last_worker) == ["erased", "stage"]


def test_a_discarded_letter_tells_what_it_would_meet_once_it_is_restored(rd: Redrive) -> None:
    fail(rd)
    rd.letters.discard(rd.letters.choose(ids=[1]))

    found = rd.letters.validate(ids=[1], pipelines=[OTHER_STAGE])

    assert kinds(found) == ["state", "evidence", "stage"]
    assert "redrive dlq restore 1" in found.findings[0].text


def test_a_job_that_is_on_its_way_has_not_lost_its_key_to_itself(rd: Redrive) -> None:
    fail(rd, pipeline=RELAXED, key="order-1")
    rd.jobs.retry(1)

    assert kinds(rd.letters.validate(pipeline="lab", pipelines=[RELAXED])) == ["running"]


def test_two_ways_to_lose_a_key_count_one_letter_once(rd: Redrive) -> None:
    fail(rd, pipeline=RELAXED, key="order-1")
    fail(rd, pipeline=RELAXED, key="order-1")
    both = rd.letters.validate(pipeline="lab", pipelines=[RELAXED])
    rd.submit(RELAXED, {"amount": "5"}, key="order-1")

    taken = rd.letters.validate(pipeline="lab", pipelines=[RELAXED])

    assert (kinds(both, 1), kinds(both, 2), both.able) == ([], ["key"], 1)
    assert (kinds(taken, 1), kinds(taken, 2)) == (["key"], ["key"])
    assert taken.obstacles == {"key": 2}


def test_a_letter_that_stays_behind_takes_no_key_from_another(rd: Redrive) -> None:
    fail(rd, pipeline=RELAXED, key="order-1")
    fail(rd, pipeline=RELAXED, key="order-1")
    rd.jobs.erase(1)

    found = rd.letters.validate(pipeline="lab", pipelines=[RELAXED])

    assert (kinds(found, 1), kinds(found, 2), found.able) == (["erased"], [], 1)


def test_of_too_many_letters_the_first_are_told_whole_and_the_rest_is_counted(
    rd: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        fail(rd)
    monkeypatch.setattr(validation, "LISTED_MAX", 2)

    found = rd.letters.validate(pipeline="shop", pipelines=[OTHER_TYPE])

    assert [(each.letter, each.kind) for each in found.findings] == [
        (1, "evidence"),
        (1, "type"),
        (2, "evidence"),
        (2, "type"),
    ]
    assert (found.unlisted, found.obstacles) == (1, {"evidence": 3, "type": 3})


def test_what_is_closed_is_told_as_that_alone(rd: Redrive) -> None:
    fail(rd, pipeline=RELAXED)
    rd.jobs.retry(1)
    rd.work([RELAXED], until_idle=True)

    assert kinds(rd.letters.validate(ids=[1], pipelines=[RELAXED])) == ["state"]


@stage
def take(order: dict[str, str]) -> dict[str, str]:
    return order


LONG = Pipeline("shop", [take, pay])
MENDED = b'{"amount": "five"}'


def test_an_edit_that_a_replay_would_not_start_with_is_told(rd: Redrive) -> None:
    fail(rd, pipeline=LONG)
    rd.letters.edit(1, value=MENDED)

    from_stage = rd.letters.validate(pipeline="shop")
    from_start = rd.letters.validate(pipeline="shop", from_start=True)

    assert from_stage.notices == {}
    assert from_start.notices == {"edit": 1}
    assert "its edited input will be ignored" in from_start.findings[-1].text
    assert "redrive dlq edit 1 --part payload" in from_start.findings[-1].text
    assert not from_start.findings[-1].is_obstacle
    rd.letters.edit(1, original=True)
    assert rd.letters.validate(pipeline="shop", from_start=True).notices == {}


def test_an_edited_payload_is_not_used_by_a_stage_that_has_an_input_of_its_own(rd: Redrive) -> None:
    fail(rd, pipeline=LONG)
    rd.letters.edit(1, part="payload", value=MENDED)

    found = rd.letters.validate(pipeline="shop")

    assert "its edited payload will be ignored" in found.findings[-1].text
    assert rd.letters.validate(pipeline="shop", from_start=True).notices == {}


def test_at_the_first_stage_an_edited_payload_is_what_it_takes(rd: Redrive) -> None:
    fail(rd)
    rd.letters.edit(1, part="payload", value=MENDED)

    assert rd.letters.validate(pipeline="shop").notices == {}


def test_letters_whose_edit_would_not_be_used_are_counted_before_a_replay(rd: Redrive) -> None:
    which = LetterFilter(pipeline="shop")
    for _ in range(3):
        fail(rd, pipeline=LONG)
    before = validation.unused_edits(rd.store, which, from_start=True)
    for letter in (1, 2):
        rd.letters.edit(letter, value=MENDED)
    rd.letters.edit(2, part="payload", value=MENDED)

    assert before == 0
    assert validation.unused_edits(rd.store, which, from_start=True) == 1
    assert validation.unused_edits(rd.store, which, from_start=False) == 1
    rd.letters.discard(rd.letters.choose(ids=[1]))
    assert validation.unused_edits(rd.store, which, from_start=True) == 0
