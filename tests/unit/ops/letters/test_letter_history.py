# SPDX-License-Identifier: Apache-2.0
"""What people did to many letters at once is in the story of each letter it was done to, and in no other."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import Pipeline, Redrive, ReplayRules, RetryPolicy, stage
from redrive.core.replay import plan_of
from redrive.engine.replay.filter import LetterFilter
from redrive.ops.audit import Actor, unbroken
from redrive.ops.jobs import inspect
from redrive.ops.jobs.explain import explain
from redrive.ops.jobs.timeline import timeline
from redrive.ops.letters import triage
from redrive.ops.letters.details import get_letter, letter_details
from redrive.ops.letters.freeze import freeze
from redrive.ops.letters.preview import Reason
from redrive.ops.replay import replays

ANN = Actor("ann", "a test")
ALL = LetterFilter()


@stage(retry=RetryPolicy(1))
def fetch(number: int) -> float:
    return 1 / number


SHOP = Pipeline("shop", [fetch], replay=ReplayRules(evidence="optional"))
MALL = Pipeline("mall", [fetch])


def fail(rd: Redrive, *pipelines: Pipeline) -> None:
    """Make a dead letter of each pipeline, in this order."""
    for pipeline in pipelines:
        rd.submit(pipeline, 0)
        rd.work([pipeline], until_idle=True)


def acts(rd: Redrive, letter: int) -> list[tuple[str, str]]:
    return [(each.verb, each.subject) for each in letter_details(rd.store, letter).operations]


def test_an_act_by_filter_is_in_the_story_of_exactly_the_letters_it_changed(rd: Redrive) -> None:
    fail(rd, SHOP, MALL, SHOP, SHOP)
    triage.discard(rd.store, freeze(rd.store, LetterFilter(ids=(3,))), ANN)

    done = triage.triage(
        rd.store, freeze(rd.store, LetterFilter(pipeline="shop")), ANN, diagnosis="code_defect"
    )

    by_filter = ("triage", "filter pipeline=shop")
    assert (done.changed, dict(done.left)) == (2, {Reason("state", "discarded"): 1})
    assert [by_filter in acts(rd, letter) for letter in (1, 2, 3, 4)] == [True, False, False, True]
    assert acts(rd, 3) == [("discard", "letter 3")]


def test_a_filter_by_state_or_by_ids_is_no_guess_either(rd: Redrive) -> None:
    fail(rd, SHOP, SHOP, SHOP, SHOP)
    triage.triage(rd.store, freeze(rd.store, LetterFilter(ids=(1, 3))), ANN, diagnosis="data")
    triage.discard(rd.store, freeze(rd.store, LetterFilter(state="open")), ANN)
    triage.note(rd.store, freeze(rd.store, ALL), ANN, text="all of them")

    note = ("note", "filter all")
    assert acts(rd, 1) == acts(rd, 3) == [("triage", "filter ids=2 named"), note]
    assert acts(rd, 2) == acts(rd, 4) == [("discard", "filter state=open"), note]


def test_an_act_on_a_group_is_not_told_of_letters_it_left_alone(rd: Redrive) -> None:
    fail(rd, SHOP, SHOP)
    triage.discard(rd.store, freeze(rd.store, LetterFilter(ids=(2,))), ANN)
    group = get_letter(rd.store, 1).group

    triage.triage(rd.store, freeze(rd.store, LetterFilter(group=group)), ANN, diagnosis="data")

    assert acts(rd, 1) == [("triage", f"group {group}")]
    assert acts(rd, 2) == [("discard", "letter 2")]


def test_a_long_act_is_told_once_and_without_the_ids_of_others(
    rd: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(rd, *[SHOP] * 5)
    steps = [[1, 2], [3, 4], [5]]
    monkeypatch.setattr(triage, "frozen_steps", lambda *_: iter(steps))

    triage.discard(rd.store, freeze(rd.store, ALL), ANN)

    for letter in range(1, 6):
        (act,) = letter_details(rd.store, letter).operations
        assert (act.letters, act.verb) == (1 if letter == 5 else 2, "discard")
        assert "letters" not in (act.change or {})


def test_a_replay_of_many_is_in_the_story_of_those_it_took(rd: Redrive) -> None:
    fail(rd, SHOP, SHOP, MALL)
    triage.discard(rd.store, freeze(rd.store, LetterFilter(ids=(2,))), ANN)
    begun = replays.start(
        rd.store, LetterFilter(pipeline="shop"), ANN, plan=plan_of((1,), None, from_start=False)
    )
    rd.work([SHOP], until_idle=True)
    fail(rd, SHOP)
    again = replays.start(rd.store, LetterFilter(ids=(5,)), ANN, plan=plan_of((1,), None, from_start=False))
    rd.work([SHOP], until_idle=True)

    assert (begun.id, again.id) == (1, 2)
    assert acts(rd, 1) == [("replay", "replay 1")]
    assert acts(rd, 2) == [("discard", "letter 2")]
    assert acts(rd, 3) == []
    (first,) = letter_details(rd.store, 1).operations
    (second,) = letter_details(rd.store, 5).operations
    assert first.id < second.id
    assert (second.change or {})["replay"] == 2


def test_the_story_of_a_job_has_each_act_on_its_letters_once(rd: Redrive) -> None:
    fail(rd, SHOP)
    rd.jobs.retry(1, actor="ann")
    rd.work([SHOP], until_idle=True)
    triage.note(rd.store, freeze(rd.store, ALL), ANN, text="both letters of it")

    told = [each.verb for each in inspect.job_details(rd.store, 1).operations]

    assert told == ["retry", "note"]
    said = explain(rd.store, 1).sentences
    assert [each for each in said if each.startswith("Done by ann: retry")] == [
        "Done by ann: retry (letter 1)."
    ]
    assert "Done by ann: note (filter all), because: both letters of it." in said
    assert [each.what for each in timeline(rd.store, 1)][-1] == "note (filter all)"


@given(st.lists(st.integers(1, 60), unique=True).map(sorted))
def test_rows_of_ids_hold_these_ids_and_no_others(ids: list[int]) -> None:
    rows = unbroken(ids)

    assert [each for first, last in rows for each in range(first, last + 1)] == ids
    assert all(after[0] > before[1] + 1 for before, after in pairwise(rows))


def test_the_note_that_closes_a_replay_is_in_the_history_of_each_of_its_letters(rd: Redrive) -> None:
    fail(rd, SHOP, SHOP, MALL)
    started = rd.replays.start(pipeline="shop", canary=())
    rd.work([SHOP], until_idle=True)
    rd.replays.close(started.id, actor="ann", note="the new key works")

    for letter in (1, 2):
        closed = letter_details(rd.store, letter).operations[-1]
        assert (closed.actor, closed.verb, closed.reason) == ("ann", "close", "the new key works")
        assert timeline(rd.store, letter)[-1].detail == "the new key works"
        line = msgspec.json.decode(next(rd.letters.export(ids=[letter])))
        assert [each["reason"] for each in line["operations"]][-1] == "the new key works"
    assert ("close", f"replay {started.id}") not in acts(rd, 3)


def test_a_retry_comes_before_a_replay_that_is_still_marking_and_never_after(rd: Redrive) -> None:
    """The replay counts the letter as left out, as the docs have it."""
    fail(rd, SHOP, SHOP)
    started = rd.replays.start(pipeline="shop", canary=())
    rd.jobs.retry(1)
    rd.replays.pause(started.id)
    rd.replays.cancel(started.id)
    again = rd.replays.start(ids=[2], canary=())
    rd.work([SHOP], until_idle=True)

    assert (rd.replays.status(started.id).left_out, rd.replays.status(again.id).letters) == (2, 1)
