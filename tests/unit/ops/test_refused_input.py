# SPDX-License-Identifier: Apache-2.0
"""Texts and numbers that a database cannot take: both stores refuse them alike, before they reach it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from redrive import Breaker, ConfigurationError, Limit, Redrive
from redrive.engine.limits.keys import JobView
from redrive.errors import RedriveError
from redrive.ops.audit import Actor
from redrive.ops.letters.freeze import FrozenSet
from tests.unit.build import ONCE, one_stage, work
from tests.unit.ops.letters.test_triage import fail

NUL = "a\0b"
HALF = "a\ud800b"
"""Half of a surrogate pair."""
BEYOND = 2**63
chosen_by = random.Random(7)
LONG = "".join(chosen_by.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=8_000))
"""It does not fit into an index, because nothing of it repeats."""

Act = Callable[[Redrive, FrozenSet], object]


def refusal_of(act: Callable[[], object]) -> str:
    """Return what a call is refused with; another error fails the test."""
    with pytest.raises(ConfigurationError) as refused:
        act()
    assert not isinstance(refused.value, LookupError)
    assert refused.value.fix
    return str(refused.value)


ACTS: list[tuple[str, Act, str]] = [
    ("actor", lambda rd, chosen: rd.letters.discard(chosen, actor=NUL), "actor"),
    ("reason", lambda rd, chosen: rd.letters.discard(chosen, actor="ann", reason=NUL), "reason"),
    ("long actor", lambda rd, chosen: rd.letters.discard(chosen, actor=LONG), "actor"),
    ("assignee", lambda rd, chosen: rd.letters.assign(chosen, assignee=NUL), "assignee"),
    ("half assignee", lambda rd, chosen: rd.letters.assign(chosen, assignee=HALF), "assignee"),
    ("long assignee", lambda rd, chosen: rd.letters.assign(chosen, assignee=LONG), "assignee"),
    ("note", lambda rd, chosen: rd.letters.note(chosen, text=NUL), "note"),
    (
        "evidence",
        lambda rd, chosen: rd.letters.remediate(chosen, evidence=NUL, is_safe=True, diagnosis="data"),
        "evidence",
    ),
    ("breaker", lambda rd, _: rd.breakers.open(NUL, new=True), "name"),
    ("half breaker", lambda rd, _: rd.breakers.open(HALF, new=True), "name"),
    ("long breaker", lambda rd, _: rd.breakers.open(LONG, new=True), "breaker"),
    ("limit", lambda rd, _: rd.limits.pause(NUL), "limit"),
    ("key of a limit", lambda rd, _: rd.limits.pause("openai", key=HALF), "key"),
    ("long key of a limit", lambda rd, _: rd.limits.pause("openai", key=LONG), "key"),
    ("pipeline", lambda rd, _: rd.pipelines.pause(NUL), "pipeline"),
    ("schedule", lambda rd, _: rd.schedules.drop(NUL), "schedule"),
    ("note of a replay", lambda rd, _: rd.replays.close(1, note=NUL), "note"),
]


@pytest.mark.parametrize(("act", "field"), [each[1:] for each in ACTS], ids=[each[0] for each in ACTS])
def test_an_act_with_a_text_that_cannot_be_stored_is_refused(rd: Redrive, act: Act, field: str) -> None:
    fail(rd, 0)
    chosen = rd.letters.choose(ids=(1,))
    logged = rd.events.operations()

    assert field in refusal_of(lambda: act(rd, chosen)).partition(" must ")[0]

    assert rd.events.operations() == logged
    assert rd.breakers.list() == []
    assert rd.letters.show(1).letter.state == "open"


QUESTIONS: dict[str, Callable[[Redrive, Any], object]] = {
    "jobs.list": lambda rd, given: rd.jobs.list(**given),
    "letters.list": lambda rd, given: rd.letters.list(**given),
    "letters.groups": lambda rd, given: rd.letters.groups(**given),
    "letters.choose": lambda rd, given: rd.letters.choose(**given),
}
ASKED = [
    *((noun, name, text) for noun in QUESTIONS for name in ("pipeline", "stage", "owner", "key") for text in (NUL, HALF)),
    *((noun, "run", BEYOND) for noun in QUESTIONS),
    *(("letters.list", name, text) for name in ("assignee",) for text in (NUL, HALF)),
    *((noun, name, BEYOND) for noun, name in (("jobs.list", "limit"), ("jobs.list", "before"), ("letters.list", "limit"))),
    *((noun, "run", -BEYOND - 1) for noun in ("jobs.list", "letters.list")),
    *(("letters.list", "ids", (1, number)) for number in (BEYOND, 2**64)),
]  # fmt: skip


@pytest.mark.parametrize(("noun", "name", "given"), ASKED)
def test_a_question_with_what_cannot_be_stored_is_refused(
    rd: Redrive, noun: str, name: str, given: object
) -> None:
    told = refusal_of(lambda: QUESTIONS[noun](rd, {name: given}))

    assert name in told.partition(" must ")[0]


@pytest.mark.parametrize("text", [NUL, HALF])
def test_whatever_else_is_asked_is_refused_too(rd: Redrive, text: str) -> None:
    for ask in (
        lambda: rd.jobs.of_owner(text, "shop"),
        lambda: rd.jobs.find("shop", text),
        lambda: rd.events.list(pipeline=text),
        lambda: rd.letters.list(code=text),
        lambda: rd.events.list(limit=BEYOND),
    ):
        assert refusal_of(ask)


@pytest.mark.parametrize("name", [NUL, HALF, LONG])
def test_a_breaker_and_a_limit_have_names_that_can_be_stored(name: str) -> None:
    assert "Breaker.name" in refusal_of(lambda: Breaker(name, consecutive=1))
    assert "Limit.name" in refusal_of(lambda: Limit(name, concurrency=1))


def test_the_name_of_a_breaker_with_keys_leaves_room_for_them() -> None:
    assert "Breaker.name" in refusal_of(lambda: Breaker(101 * "a", consecutive=1, key=lambda job: job.owner))


@pytest.mark.parametrize("key", [NUL, HALF, LONG])
def test_a_key_that_cannot_be_stored_fails_its_job_alone(rd: Redrive, key: str) -> None:
    def key_of(job: JobView) -> str:
        return key if job.input == 0 else "good"

    async def echo(value: int) -> int:
        return value

    pipeline = one_stage(echo, limits=Limit("tenant", concurrency=4, key=key_of), retry=ONCE)
    rd.submit_many(pipeline, [0, 1])
    work(rd.store, pipeline)

    assert rd.jobs.counts() == {"complete": 1, "failed": 1}


def test_a_filter_with_long_parts_is_logged_shortened(rd: Redrive) -> None:
    owner, assignee = LONG[:500], LONG[500:1_000]
    fail(rd, 0, 0, owner=owner)
    rd.letters.assign(rd.letters.choose(owner=owner), assignee=assignee)

    assert rd.letters.discard(rd.letters.choose(owner=owner, assignee=assignee), actor="ann").changed == 2

    logged = rd.events.operations()[-1].subject_id
    assert logged.startswith("owner=")
    assert logged.endswith("...")
    assert len(logged) < 1_000


def test_an_actor_is_refused_by_the_name_of_its_part() -> None:
    for given, field in (((NUL,), "actor"), (("ann", NUL), "reason")):
        with pytest.raises(RedriveError, match=f"^{field} must"):
            Actor(*given)
