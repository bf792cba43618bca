# SPDX-License-Identifier: Apache-2.0
"""Looking at dead letters: pages that join under any filter, groups by cause, one letter with its whole story."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from redrive import ConfigurationError, Pipeline, Redrive, stage
from redrive.core.diagnosis import Diagnosis, is_retryable, remediation_hint, suggested_diagnosis
from redrive.core.failure import Category
from redrive.core.taxonomy import CODES
from redrive.engine.replay.filter import LetterFilter
from redrive.errors import LetterNotFoundError
from redrive.ops.audit import Actor, Subject
from redrive.ops.letters import pages, triage
from redrive.ops.letters.details import get_letter, letter_details, stack_of
from redrive.ops.letters.freeze import freeze
from redrive.ops.letters.groups import known_codes, list_groups, resolve_group, trend_of
from redrive.ops.letters.pages import cursor_of, list_letters, position_of
from redrive.store.statements import letters as letter_sql
from redrive.testing import VirtualClock
from tests.embedded import changing, read_rows

STATES = ("open", "triaged", "ready", "replaying", "resolved", "returned", "discarded")
INSERT_GROUP = (
    "INSERT INTO letter_groups (id, fingerprint, lane_id, code, category, exception, first_at, last_at)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
INSERT_FACTS = (
    "INSERT INTO letter_facts (letter_id, code, category, is_retryable, exception, reason, message, context, stack)"
    " VALUES (?, ?, ?, 0, 'E', 'permanent', 'm', ?, '')"
)
CODES_USED = (("NETWORK_ERROR", "network"), ("AUTH_DENIED", "auth"), ("OWN_CODE", "validation"))


@stage
def fetch(number: int) -> int:
    return 10 // number


@stage
def store(number: int) -> int:
    raise KeyError(f"no {number}")


SHOP = Pipeline("shop", [fetch, store])
MALL = Pipeline("mall", [fetch])


def fill(rd: Redrive, count: int = 400) -> None:
    """Put letters of every kind into the store, many of them at the same instant."""
    drawn = random.Random(7)
    lanes = [*rd.store.lanes("shop", ["fetch", "store"]), *rd.store.lanes("mall", ["fetch"])]
    with changing(rd) as db:
        pairs = list(itertools.product(lanes, CODES_USED, range(2)))
        for group, (lane, (code, category), twin) in enumerate(pairs, 1):
            row = (group, f"v1:{group // 2:02x}{twin}", lane, code, category, "E", 0.0, 99.0)
            db.execute(INSERT_GROUP, row)
        for letter in range(1, count + 1):
            state = drawn.choices(STATES, [9, 3, 3, 1, 2, 2, 2])[0]
            past = ("same", 1.0) if state in {"resolved", "returned"} else (None, None)
            group = drawn.randrange(len(pairs)) + 1
            lane, (code, category), _ = pairs[group - 1]
            owner, key = drawn.choice([None, "ann", "bob"]), drawn.choice([None, "k1", "k2", "k3"])
            handled = drawn.choice([None, "eve"]), drawn.choice([0, 0, 1])
            db.execute(
                "INSERT INTO dead_letters (id, job_id, lane_id, group_id, round, state, owner, key, first_failure_at, last_failure_at,"
                " is_safe, evidence, outcome, closed_at, assignee, is_escalated)"
                " VALUES (?1, ?1, ?2, ?3, 1, ?4, ?5, ?6, ?7, ?7, 1, 'e', ?8, ?9, ?10, ?11)",
                (letter, lane, group, state, owner, key, float(drawn.randrange(40)), *past, *handled),
            )
            db.execute(INSERT_FACTS, (letter, code, category, b"{}"))


def expected(rd: Redrive, which: LetterFilter) -> list[int]:
    """The letters a filter means, found the slow way."""
    lines = rd.store.query(letter_sql.letter_lines(ids=[*range(1, 1_000)]))
    lines.sort(key=lambda line: (line.last_failure_at, line.id), reverse=True)
    names = "pipeline stage code category group state owner key assignee".split()
    wanted = {name: getattr(which, name) for name in names if getattr(which, name) is not None}
    return [
        line.id
        for line in lines
        if all(getattr(line, name) == value for name, value in wanted.items())
        and (which.since is None or line.last_failure_at.timestamp() >= which.since)
        and (which.until is None or line.last_failure_at.timestamp() < which.until)
        and (which.ids is None or line.id in which.ids)
        and (which.escalated is None or line.is_escalated)
    ]


def paged(rd: Redrive, which: LetterFilter, limit: int) -> list[int]:
    seen: list[int] = []
    before: str | None = None
    while True:
        page = list_letters(rd.store, which, before=before, limit=limit)
        assert len(page.letters) <= limit
        seen += [letter.id for letter in page.letters]
        before = page.next_cursor
        if before is None:
            return seen


FILTERS = [
    LetterFilter(),
    LetterFilter(pipeline="shop"),
    LetterFilter(pipeline="nowhere"),
    LetterFilter(stage="fetch"),
    LetterFilter(code="OWN_CODE"),
    LetterFilter(category="auth", pipeline="mall"),
    LetterFilter(group="v1:021"),
    LetterFilter(state="open"),
    LetterFilter(state="returned", pipeline="shop"),
    LetterFilter(since=10.0, until=20.0),
    LetterFilter(since=10.0, until=20.0, code="AUTH_DENIED"),
    LetterFilter(owner="ann"),
    LetterFilter(owner="ann", key="k1"),
    LetterFilter(key="k2", until=30.0),
    LetterFilter(owner="bob", code="AUTH_DENIED", state="open"),
    LetterFilter(key="k3", pipeline="shop", since=5.0),
    LetterFilter(ids=(3, 7, 9, 200, 9_999)),
    LetterFilter(escalated=True),
    LetterFilter(escalated=True, since=10.0, code="AUTH_DENIED"),
    LetterFilter(assignee="eve"),
    LetterFilter(assignee="nobody"),
    LetterFilter(assignee="eve", escalated=True, owner="ann", state="open"),
    LetterFilter(ids=tuple(range(100)), state="open", owner="ann", pipeline="shop"),
]


@pytest.mark.untraced
@pytest.mark.parametrize(("limit", "scan_max"), [(1, 20_000), (7, 20_000), (7, 8), (1_000, 8)])
def test_pages_of_any_filter_join_without_gap_or_overlap(
    rd: Redrive, monkeypatch: pytest.MonkeyPatch, limit: int, scan_max: int
) -> None:
    monkeypatch.setattr(pages, "SCAN_MAX", scan_max)
    fill(rd)

    for which in FILTERS:
        assert paged(rd, which, limit) == expected(rd, which), which


def test_a_letter_that_comes_while_somebody_pages_is_on_no_later_page(rd: Redrive) -> None:
    fill(rd, 30)
    first = list_letters(rd.store, LetterFilter(), limit=10)
    with changing(rd) as db:
        db.execute(
            "INSERT INTO dead_letters (id, job_id, lane_id, group_id, round, state, first_failure_at, last_failure_at)"
            " SELECT 1000, 1000, lane_id, group_id, round, 'open', first_failure_at, 1e6 FROM dead_letters WHERE id = 1"
        )
        db.execute(INSERT_FACTS, (1000, "CODE", "category", b"{}"))

    second = list_letters(rd.store, LetterFilter(), before=first.next_cursor, limit=100)

    assert len(second.letters) == 20
    assert {each.id for each in first.letters}.isdisjoint(each.id for each in second.letters)


@pytest.mark.parametrize("cursor", ["", "x", "1.0", "nan_3", "inf_3", "1.0_-3", "1.0_x", f"1.0_{2**70}"])
def test_what_is_no_cursor_is_refused(rd: Redrive, cursor: str) -> None:
    with pytest.raises(ConfigurationError, match="must be the cursor of a page"):
        list_letters(rd.store, LetterFilter(), before=cursor)


def test_a_cursor_gives_its_position_back_exactly() -> None:
    position = (1794797432.0583222, 3)

    assert position_of(cursor_of(position)) == position


@pytest.mark.sqlite
def test_no_page_walks_the_letters_themselves(rd: Redrive) -> None:
    """Every way to a page goes along an index; the sort of all letters would be a temporary tree over them."""
    from redrive.store.statements.text import statements_of

    for name, parameters in (
        ("letters_by_time", 4),
        ("letters_by_groups", 5),
        ("owner_floor", 5),
        ("letters_by_owner", 19),
        ("key_floor", 5),
        ("letters_by_key", 19),
        ("run_floor", 5),
        ("letters_by_run", 19),
        ("ids_by_run", 16),
        ("count_by_run", 16),
        ("assignee_floor", 5),
        ("letters_by_assignee", 19),
        ("escalated_floor", 5),
        ("letters_by_escalated", 19),
        ("ids_by_group", 16),
        ("count_by_group", 16),
        ("ids_by_owner", 16),
        ("count_by_key", 16),
        ("taken_by_letter", 16),
        ("letter_heads", 3),
        ("count_in_span", 3),
        ("taken_in_span", 4),
    ):
        values = ("[]", *[1] * (parameters - 1))
        plan = read_rows(rd.store, f"EXPLAIN QUERY PLAN {statements_of('sqlite')[name]}", values)
        steps = [str(row[3]) for row in plan]
        assert not [
            step for step in steps if step.split()[:2] in (["SCAN", "dead_letters"], ["SCAN", "letter"])
        ], name
        assert [step for step in steps if "INDEX dead_letters_" in step], name


def test_groups_put_letters_of_one_cause_together_over_pipelines(rd: Redrive, clock: VirtualClock) -> None:
    rd.submit_many(SHOP, [0, 0, 1])
    rd.submit(MALL, 0)
    rd.work([SHOP, MALL], until_idle=True)

    zero, missing = list_groups(rd.store, LetterFilter()).groups

    assert (zero.code, zero.category, zero.exception) == ("BUG_CODE", "bug", "ZeroDivisionError")
    assert (zero.pending, zero.letters, zero.states, zero.taken) == (3, 3, {"open": 3}, 0)
    assert (zero.pipelines, zero.stages) == (["mall", "shop"], ["fetch"])
    assert (zero.trend.hours[-1], sum(zero.trend.hours), zero.trend.word) == (3, 3, "rising")
    assert (zero.message, zero.diagnosis) == ("integer division or modulo by zero", "code_defect")
    assert zero.hint == CODES["BUG_CODE"].hint
    assert zero.sample == list_letters(rd.store, LetterFilter(group=zero.fingerprint)).letters[0].id
    assert zero.first_at <= zero.last_at
    assert (missing.stages, missing.pending) == (["store"], 1)


@pytest.mark.parametrize("scan_max", [20_000, 8])
def test_groups_count_the_letters_that_a_filter_means_and_no_others(
    rd: Redrive, monkeypatch: pytest.MonkeyPatch, scan_max: int
) -> None:
    monkeypatch.setattr(pages, "SCAN_MAX", scan_max)
    monkeypatch.setattr(pages, "STEP", 7)
    fill(rd)
    with changing(rd) as db:
        db.execute("UPDATE dead_letters SET replay_id = 1 WHERE id % 3 = 0 AND state IN ('open', 'ready')")

    for which in [*FILTERS, LetterFilter(since=10.0), LetterFilter(until=1e9, state="open")]:
        meant = [get_letter(rd.store, letter) for letter in expected(rd, which)]
        found = list_groups(rd.store, which).groups

        assert {group.fingerprint: group.states for group in found} == {
            cause: dict(Counter(letter.state for letter in meant if letter.group == cause))
            for cause in {letter.group for letter in meant}
        }, which
        for group in found:
            mine = [letter for letter in meant if letter.group == group.fingerprint]
            waits = [letter for letter in mine if letter.state in {"open", "triaged", "ready"}]
            assert group.pending == len(waits)
            assert group.taken == sum(letter.replay is not None for letter in waits), which
            sample = next(letter for letter in mine if letter.id == group.sample)
            assert sample.last_failure_at == max(letter.last_failure_at for letter in mine)


def test_the_most_pending_groups_come_first(rd: Redrive) -> None:
    fill(rd)

    pending = [group.pending for group in list_groups(rd.store, LetterFilter()).groups]

    assert pending == sorted(pending, reverse=True)
    assert [group.pending for group in list_groups(rd.store, LetterFilter(), limit=3).groups] == pending[:3]
    assert list_groups(rd.store, LetterFilter(since=1000.0)).groups == []
    assert known_codes(rd.store) == ["AUTH_DENIED", "NETWORK_ERROR", "OWN_CODE"]


@pytest.mark.parametrize(
    ("hours", "word"),
    [
        ([0] * 24, "quiet"),
        ([0] * 23 + [1], "rising"),
        ([4] + [0] * 23, "falling"),
        ([2] * 24, "steady"),
        ([2] * 12 + [3] * 12, "steady"),
        ([2] * 12 + [4] * 12, "rising"),
    ],
)
def test_a_trend_has_a_word(hours: list[int], word: str) -> None:
    assert trend_of(hours).word == word


def test_letters_of_yesterday_leave_the_trend(rd: Redrive, clock: VirtualClock) -> None:
    rd.submit(MALL, 0)
    rd.work([MALL], until_idle=True)
    clock.advance(25 * 3600)

    (group,) = list_groups(rd.store, LetterFilter()).groups

    assert (group.trend.word, sum(group.trend.hours), group.pending) == ("quiet", 0, 1)


def test_a_letter_counts_for_the_hour_in_which_it_came_until_that_is_a_day_ago(
    rd: Redrive, clock: VirtualClock
) -> None:
    clock.advance(3_600 - clock.wall() % 3_600 + 3_000)
    rd.submit(MALL, 0)
    rd.work([MALL], until_idle=True)
    seen: list[tuple[int, ...]] = []
    for seconds in (1_200, 22 * 3_600, 3_600):
        clock.advance(seconds)
        (group,) = list_groups(rd.store, LetterFilter()).groups
        seen.append(tuple(hours_ago for hours_ago, came in enumerate(reversed(group.trend.hours)) if came))

    assert seen == [(1,), (23,), ()]


def test_the_beginning_of_a_fingerprint_is_enough_if_it_is_the_only_one(rd: Redrive) -> None:
    fill(rd)

    assert resolve_group(rd.store, "021") == "v1:021"
    assert resolve_group(rd.store, " V1:021 ") == "v1:021"
    for given, words in (
        ("02", "Give more of it: v1:020, v1:021"),
        ("0f", "Close to it are: v1:00"),
        ("02é", "Close to it are: v1:020, v1:021"),
        ("", "Close to it are: v1:00"),
        ("v2:0", "Close to it are: v1:00"),
    ):
        with pytest.raises(ConfigurationError) as refused:
            resolve_group(rd.store, given)
        assert words in refused.value.hint, given


def test_without_any_letter_no_group_is_known(rd: Redrive) -> None:
    assert list_groups(rd.store, LetterFilter()).groups == []
    with pytest.raises(ConfigurationError, match="There are no dead letters in this database"):
        resolve_group(rd.store, "0a")
    with pytest.raises(LetterNotFoundError) as refused:
        get_letter(rd.store, 1)
    assert "There are no dead letters" in refused.value.hint


def test_an_unknown_letter_is_refused_with_ids_that_are_near(rd: Redrive) -> None:
    fill(rd, 3)

    for wrong, words in (
        (5, "Close to it are: 1, 2, 3"),
        (-1, "Close to it are: 1, 2, 3"),
        (900, "The last dead letter is 3"),
        (2**70, "The last dead letter is 3"),
    ):
        with pytest.raises(LetterNotFoundError) as refused:
            letter_details(rd.store, wrong)
        assert words in refused.value.hint


def test_the_story_of_a_letter_has_everything_but_values(rd: Redrive, clock: VirtualClock) -> None:
    job = rd.submit(SHOP, 0, owner="ann", key="k-1")
    rd.work([SHOP], until_idle=True)
    group = get_letter(rd.store, 1).group
    rd.store.apply(
        Actor("bob", "looked at it").log("note", Subject("letter", 1)),
        Actor("eve").log("note", Subject("job", 2)),
    )
    triage.triage(rd.store, freeze(rd.store, LetterFilter(group=group)), Actor("ann"), diagnosis="data")

    story = letter_details(rd.store, 1)

    assert (story.letter.job, story.letter.owner, story.letter.key) == (job.id, "ann", "k-1")
    assert (story.letter.state, story.letter.follows, story.letter.followed_by) == ("triaged", None, None)
    assert (story.suggested_diagnosis, story.hint) == ("code_defect", CODES["BUG_CODE"].hint)
    assert story.facts is not None
    assert story.facts.status == "failed"
    assert [attempt.outcome for attempt in story.attempts] == ["dead"]
    assert [(each.actor, each.subject) for each in story.operations] == [
        ("bob", "letter 1"),
        ("ann", f"group {group}"),
    ]
    assert (list(story.edits), story.letter.sanitized_context["stage"]) == ([], "fetch")  # type: ignore[index]
    assert len(story.stack.own) == 1
    assert "in fetch" in story.stack.own[0]
    assert story.stack.messages == ["ZeroDivisionError: integer division or modulo by zero"]


def test_what_was_done_about_a_group_before_a_letter_came_is_not_its_story(
    rd: Redrive, clock: VirtualClock
) -> None:
    rd.submit(MALL, 0)
    rd.work([MALL], until_idle=True)
    clock.advance(5)
    group = LetterFilter(group=get_letter(rd.store, 1).group)
    triage.triage(rd.store, freeze(rd.store, group), Actor("ann"), diagnosis="data")
    clock.advance(5)
    rd.submit(MALL, 0)
    rd.work([MALL], until_idle=True)

    assert [len(letter_details(rd.store, letter).operations) for letter in (1, 2)] == [1, 0]


def test_edits_are_told_without_what_was_changed(rd: Redrive, clock: VirtualClock) -> None:
    rd.submit(SHOP, 0)
    rd.work([SHOP], until_idle=True)
    with changing(rd) as db:
        db.execute(
            "INSERT INTO edits (letter_id, job_id, part, before, after, at, actor) VALUES (1, 1, 'input', ?, ?, 9.0, 'ann')",
            (b"0", b"12345"),
        )
        db.execute("DELETE FROM jobs")

    story = letter_details(rd.store, 1)

    (edit,) = story.edits
    assert (edit.part, edit.actor, edit.at.timestamp()) == ("input", "ann", 9.0)
    assert story.facts is None
    assert "12345" not in repr(story)


def test_a_letter_names_the_one_it_follows_and_the_one_that_followed(rd: Redrive) -> None:
    rd.submit(MALL, 0)
    rd.work([MALL], until_idle=True)
    with changing(rd) as db:
        db.execute("UPDATE dead_letters SET state = 'replaying'")
        db.execute(
            "UPDATE jobs SET status = 'queued', round = 2, finished_at = NULL, error_code = NULL, error_message = NULL"
        )
    rd.work([MALL], until_idle=True)

    first, second = get_letter(rd.store, 1), get_letter(rd.store, 2)

    assert (first.state, first.outcome, first.followed_by) == ("returned", "same", 2)
    assert (second.state, second.follows, second.is_escalated) == ("open", 1, True)
    assert [each.is_escalated for each in list_letters(rd.store, LetterFilter()).letters] == [True, False]


def test_a_stack_puts_the_frames_of_ones_own_code_first() -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "/srv/app/flow.py", line 3, in fetch\n    ask()\n    ~~~^^\n'
        '  File "/usr/lib/python3.11/socket.py", line 9, in connect\n    raise OSError\n'
        "OSError: first\n\nDuring handling of the above exception, another exception occurred:\n\n"
        "Traceback (most recent call last):\n"
        '  File "/srv/venv/lib/python3.11/site-packages/redrive/engine/runner.py", line 1, in call\n    fn()\n'
        '  File "/srv/app/flow.py", line 5, in fetch\n    raise ValueError\n'
        "  [Previous line repeated 3 more times]\n"
        "ValueError: second\n"
    )

    stack = stack_of(text)

    assert [frame.partition(", in ")[2][:5] for frame in stack.own] == ["fetch", "fetch"]
    assert stack.own[1].endswith("more times]")
    assert len(stack.library) == 2
    assert stack.messages == [
        "OSError: first",
        "During handling of the above exception, another exception occurred:",
        "ValueError: second",
    ]
    assert stack_of("") == stack_of("\n")
    assert stack_of("no stack at all").messages == ["no stack at all"]


def test_every_category_and_code_has_a_diagnosis_and_a_hint() -> None:
    assert {suggested_diagnosis(category) for category in Category} == set(Diagnosis)
    assert suggested_diagnosis("validation") is Diagnosis.DATA
    assert suggested_diagnosis("bug", "CONFIG_INVALID") is Diagnosis.AUTH_CONFIG
    assert suggested_diagnosis("auth", "OWN_CODE") is Diagnosis.AUTH_CONFIG
    assert suggested_diagnosis("never heard of") is Diagnosis.CODE_DEFECT
    assert all(remediation_hint(code.name, code.category) == code.hint for code in CODES.values())
    assert "Correct the payload" in remediation_hint("OWN_CODE", "validation")
    assert [is_retryable(code) for code in ("NETWORK_ERROR", "BUG_CODE", "CONFLICT", "OWN_CODE")] == [
        True,
        False,
        None,
        None,
    ]
