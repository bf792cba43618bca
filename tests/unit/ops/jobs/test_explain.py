# SPDX-License-Identifier: Apache-2.0
"""Explaining a job in plain words, from what is stored and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from redrive import (
    Backoff,
    Breaker,
    Fail,
    Jitter,
    Pipeline,
    Redrive,
    ReplayRules,
    RetryPolicy,
    Snooze,
    connect,
    stage,
)
from redrive.engine.replay.filter import LetterFilter
from redrive.errors import JobNotFoundError
from redrive.ops import breakers
from redrive.ops.audit import Actor, Subject
from redrive.ops.jobs import inspect
from redrive.ops.jobs.erase import erase
from redrive.ops.jobs.explain import Explanation, explain
from redrive.ops.jobs.next_steps import next_steps, steps_for_letter
from redrive.ops.jobs.timeline import timeline
from redrive.ops.letters.details import letter_details
from redrive.ops.letters.exports import export
from redrive.ops.letters.imports import import_letters
from redrive.testing import VirtualClock
from tests.databases import Address
from tests.embedded import changing

STEADY = Backoff.fixed(1, jitter=Jitter.none())


def failing(*errors: BaseException | None, name: str = "fetch", **options: object) -> object:
    """Return a stage that raises these, one after the other, and then is done."""
    left = list(errors)

    def run(number: int) -> int:
        error = left.pop(0) if left else None
        if error is not None:
            raise error
        return number

    return stage(name=name, **options)(run)  # type: ignore[call-overload]


def worked(rd: Redrive, *stages: object) -> int:
    flow = Pipeline("shop", list(stages))  # type: ignore[arg-type]
    job = rd.submit(flow, 7)
    rd.work([flow], until_idle=True)
    return job.id


def last(rd: Redrive, job: int) -> tuple[str | None, str | None]:
    told = explain(rd.store, job).attempts[-1]
    return told.reason, told.otherwise


def test_a_spent_budget_is_told_attempt_by_attempt(rd: Redrive) -> None:
    resets = [ConnectionResetError(104, "reset")] * 2
    job = worked(rd, failing(*resets, retry=RetryPolicy(2, STEADY)), failing(name="store"))

    told = explain(rd.store, job)

    first, second = told.attempts
    assert (told.status, told.letter) == ("failed", 1)
    assert (first.code, first.category, first.reason, first.outcome) == (
        "NETWORK_RESET",
        "network",
        "retryable",
        "retry",
    )
    assert first.happened.startswith("Attempt 1 of stage 'fetch' ended after ")
    assert first.matched == "It was classified as NETWORK_RESET (category network): The connection was lost."
    assert "Why: the failure is retryable, and attempts are left." in first.decided
    assert "The decision: attempt 1 of 2 failed with NETWORK_RESET: again in 1 s (backoff)." in first.decided
    assert (
        first.otherwise
        == "Had NETWORK_RESET been permanent, the job would have become a dead letter at once."
    )
    assert (
        second.otherwise
        == "Had one of its attempts succeeded, the job would have continued with stage 'store'."
    )
    assert told.sentences[0] == "Job 1 of pipeline 'shop' is failed at stage 'fetch'."
    assert told.sentences[-1] == "Record the cause: redrive dlq triage 1 --diagnosis transient"


def test_the_last_stage_would_have_completed_the_job(rd: Redrive) -> None:
    job = worked(rd, failing(ConnectionResetError(104, "reset"), retry=RetryPolicy(1, STEADY)))

    assert last(rd, job) == (
        "exhausted",
        "Had one of its attempts succeeded, the job would have been complete.",
    )


def test_what_a_permanent_failure_cost_is_told_only_if_the_limit_is_on_record(rd: Redrive) -> None:
    reset, bug = ConnectionResetError(104, "reset"), KeyError("x")
    known = worked(rd, failing(reset, bug, retry=RetryPolicy(4, STEADY)))
    unknown = worked(rd, failing(bug, retry=RetryPolicy(4, STEADY)))
    with changing(rd) as db:
        old = '{"kind":"old","reason":"permanent","text":"BUG_CODE is not retried"}'
        db.execute("UPDATE attempts SET decision = ? WHERE job_id = ?", (old, unknown))
    too_late = worked(rd, failing(reset, bug, retry=RetryPolicy(2, STEADY)))

    assert last(rd, known) == (
        "permanent",
        "Had BUG_CODE been retryable, the job would have been tried again within its limits; up to 2 more attempts were left.",
    )
    assert last(rd, too_late) == (
        "permanent",
        "Had BUG_CODE been retryable, nothing would have changed: it was the last attempt.",
    )
    assert last(rd, unknown) == (
        "permanent",
        "Had BUG_CODE been retryable, the job would have been tried again within its limits.",
    )


def test_a_code_with_a_limit_of_its_own_says_what_would_have_been_left(rd: Redrive) -> None:
    resets = [ConnectionResetError(104, "reset")] * 3
    policy = RetryPolicy(5, STEADY, per_code_max_attempts={"NETWORK_RESET": 2})
    job = worked(rd, failing(*resets, retry=policy))

    assert last(rd, job) == (
        "code_exhausted",
        "Without the limit of NETWORK_RESET, the job would have had up to 3 more attempts.",
    )


def test_a_code_of_ones_own_speaks_by_its_category(rd: Redrive) -> None:
    job = worked(rd, failing(Fail("NO_STOCK", "sold out")))

    told = explain(rd.store, job)

    assert told.attempts[0].matched is not None
    assert told.attempts[0].matched.startswith("It was classified as NO_STOCK (category ")
    assert "the stage itself asked for it" in told.attempts[0].decided
    assert told.attempts[0].otherwise is None


def test_a_hold_says_what_a_closed_breaker_would_have_done(rd: Redrive, clock: VirtualClock) -> None:
    held = failing(
        *[ConnectionResetError(104, "reset")] * 2,
        retry=RetryPolicy(5, STEADY),
        breaker=Breaker("api", consecutive=1, open_for=60),
    )
    job = worked(rd, held)

    told = explain(rd.store, job)

    holds = [one for one in told.attempts if one.outcome == "hold"]
    assert holds
    assert holds[0].otherwise is not None
    assert holds[0].otherwise.startswith("Had the breaker been closed")
    assert told.status == "queued"
    assert told.next_steps[0].startswith("It is held until what it depends on is back; it is due at ")
    assert told.next_steps[1] == "See what holds it: redrive breaker list"


def test_a_complete_job_needs_nothing(rd: Redrive) -> None:
    told = explain(rd.store, worked(rd, failing()))

    assert list(told.sentences)[::2] == ["Job 1 of pipeline 'shop' is complete.", "Nothing is to be done."]
    assert told.attempts[0].happened.startswith("Attempt 1 of stage 'fetch' took ")
    assert (told.attempts[0].matched, told.attempts[0].otherwise, told.letter) == (None, None, None)


def test_a_job_that_waits_says_for_what(rd: Redrive, clock: VirtualClock) -> None:
    flow = Pipeline("shop", [failing(Snooze(3600))])  # type: ignore[list-item]
    job = rd.submit(flow, 1)
    before = explain(rd.store, job.id)

    assert before.attempts == []
    assert before.next_steps[0].startswith("It waits for its turn; it is due at ")
    facts = replace(job.facts, waiting="hold")
    assert "redrive breaker list" in next_steps(facts, None)[1]
    assert next_steps(replace(facts, waiting="odd"), None)[0].startswith("It waits (odd)")
    assert "Worker w1 runs it" in next_steps(replace(facts, status="processing", worker="w1"), None)[0]


def test_a_cancelled_job_is_explained(rd: Redrive) -> None:
    job = rd.submit(Pipeline("shop", [failing()]), 1)  # type: ignore[list-item]
    rd.jobs.cancel(job.id, reason="no longer wanted", actor="ann")

    told = explain(rd.store, job.id)

    assert told.next_steps == ["It was cancelled; submit it again if it is still wanted."]
    assert [(moment.what, moment.actor, moment.detail) for moment in timeline(rd.store, job.id)] == [
        ("queued", None, None),
        ("cancelled", None, None),
        ("cancel", "ann", "no longer wanted"),
    ]


def test_each_state_of_a_letter_has_its_next_command(rd: Redrive) -> None:
    job = worked(rd, failing(KeyError("x")))
    (letter,) = inspect.job_details(rd.store, job).letters

    assert steps_for_letter(letter)[-1] == "Record the cause: redrive dlq triage 1 --diagnosis code_defect"
    assert "It is escalated" in steps_for_letter(replace(letter, is_escalated=True))[0]
    assert "redrive dlq remediate 1" in steps_for_letter(replace(letter, state="triaged"))[0]
    assert steps_for_letter(replace(letter, state="ready")) == ["Run it again: redrive job retry 1"]
    assert "redrive dlq restore 1" in steps_for_letter(replace(letter, state="discarded"))[0]
    assert "redrive replay status 4" in steps_for_letter(replace(letter, state="ready", replay=4))[0]
    assert steps_for_letter(replace(letter, state="returned")) == []


def replayed(rd: Redrive, *errors: BaseException) -> Explanation:
    """Fail a job, replay it once as if by hand, and explain what came of it."""
    flow = Pipeline("shop", [failing(*errors)])  # type: ignore[list-item]
    job = rd.submit(flow, 1).id
    rd.work([flow], until_idle=True)
    with changing(rd) as db:
        db.execute("UPDATE dead_letters SET state = 'replaying'")
        db.execute(
            "UPDATE jobs SET status = 'queued', round = 2, finished_at = NULL, error_code = NULL, error_message = NULL"
        )
    rd.work([flow], until_idle=True)
    return explain(rd.store, job)


def test_rounds_that_are_past_are_told_with_what_their_replay_came_to(rd: Redrive) -> None:
    told = replayed(rd, KeyError("x"), KeyError("x"))

    past = "Dead letter 1 of round 1 is returned: its replay failed again with the same failure (the same fingerprint)."
    assert past in told.sentences
    assert told.letter == 2
    assert told.next_steps[0] == (
        "It is escalated: a replay failed again with the same permanent code, BUG_CODE, so the last fix did not work."
    )
    assert "in round 2" in told.attempts[1].happened
    story = inspect.job_details(rd.store, told.job)
    assert [(letter.state, letter.is_live) for letter in story.letters] == [
        ("returned", False),
        ("open", True),
    ]


def test_the_same_code_with_another_fingerprint_is_no_contradiction_to_its_escalation(rd: Redrive) -> None:
    told = replayed(rd, KeyError("x"), TypeError("y"))

    past = "its replay failed again with the same code, BUG_CODE, but another fingerprint."
    assert f"Dead letter 1 of round 1 is returned: {past}" in told.sentences
    assert "with the same permanent code, BUG_CODE," in told.next_steps[0]
    assert "same failure" not in " ".join(told.sentences)


def test_another_code_is_told_with_both_and_is_not_escalated(rd: Redrive) -> None:
    told = replayed(rd, KeyError("x"), PermissionError(13, "denied"))

    code = told.attempts[-1].code
    past = f"its replay failed again with another failure: {code} instead of BUG_CODE."
    assert code != "BUG_CODE"
    assert f"Dead letter 1 of round 1 is returned: {past}" in told.sentences
    assert "escalated" not in " ".join(told.sentences)


def test_a_letter_whose_successor_is_gone_says_only_what_its_verdict_says(rd: Redrive) -> None:
    told = replayed(rd, KeyError("x"), TypeError("y"))
    with changing(rd) as db:
        db.execute("UPDATE dead_letters SET follows = NULL")

    past = "its replay failed again with another failure (another fingerprint)."
    assert f"Dead letter 1 of round 1 is returned: {past}" in explain(rd.store, told.job).sentences


def test_a_job_whose_values_were_erased_is_never_told_to_be_replayed(rd: Redrive) -> None:
    job = worked(rd, failing(KeyError("x")))
    erase(rd.store, job, Actor("ann"))

    told = explain(rd.store, job)

    assert "replayed: its values were erased at " in told.next_steps[0]
    assert list(told.next_steps)[1:] == ["Close its dead letter: redrive dlq discard 1"]
    assert "then replay" not in " ".join(told.sentences)
    assert "triage" not in " ".join(told.sentences)


def test_an_erased_job_is_told_by_the_state_of_its_letter(rd: Redrive) -> None:
    job = worked(rd, failing(KeyError("x")))
    erase(rd.store, job, Actor("ann"))
    story = inspect.job_details(rd.store, job)
    (letter,) = story.letters

    taken = next_steps(story.facts, replace(letter, replay=4))
    discarded = next_steps(story.facts, replace(letter, state="discarded"))

    assert taken[1:] == ["Replay 4 has marked it, and skips it: redrive replay status 4"]
    assert discarded[1:] == ["It was discarded, nothing is to be done."]
    assert next_steps(story.facts, None) == []


def test_a_job_that_came_without_values_is_told_to_be_given_one(rd: Redrive, address: Address) -> None:
    worked(rd, failing(KeyError("x")))
    lines = list(export(rd.store, LetterFilter()))
    with connect(address("other")) as other:
        import_letters(other.store, lines, Actor("ann"))

        told = explain(other.store, 1)

        assert (
            told.next_steps[0]
            == "It was imported without its values; supply one: redrive dlq edit 1 --input FILE"
        )
        assert told.next_steps[-1].startswith("Record the cause: redrive dlq triage 1")


def test_a_timeline_has_what_the_engine_and_what_people_did_in_one_order(
    rd: Redrive, clock: VirtualClock
) -> None:
    job = worked(rd, failing(KeyError("x")))
    clock.advance(5)
    rd.store.apply(Actor("ann", "a slip").log("triage", Subject("letter", 1)))
    clock.advance(5)
    rd.store.apply(
        Actor("bob").log("retry", Subject("job", job)), Actor("eve").log("retry", Subject("job", 99))
    )

    moments = timeline(rd.store, job)

    assert [moment.what for moment in moments] == [
        "queued",
        "processing",
        "failed",
        "triage (letter 1)",
        "retry",
    ]
    assert [moment.at for moment in moments] == sorted(moment.at for moment in moments)
    assert (moments[2].code, moments[2].detail, moments[2].duration is not None) == (
        "BUG_CODE",
        "permanent",
        True,
    )
    assert (moments[3].actor, moments[3].detail) == ("ann", "a slip")


def test_a_timeline_tells_rounds_and_how_each_replay_ended(rd: Redrive, clock: VirtualClock) -> None:
    flow = Pipeline(
        "shop",
        [failing(KeyError("x"), KeyError("x"), retry=RetryPolicy(1))],  # type: ignore[list-item]
        replay=ReplayRules(evidence="optional"),
    )
    job = rd.submit(flow, 7).id
    rd.work([flow], until_idle=True)
    for _ in range(2):
        clock.advance(5)
        rd.jobs.retry(job, actor="ann")
        clock.advance(1)
        rd.work([flow], until_idle=True)

    moments = timeline(rd.store, job)

    assert [(each.what, each.round) for each in moments] == [
        ("queued", None),
        ("processing", 1),
        ("failed", 1),
        ("retry (letter 1)", None),
        ("processing", 2),
        ("failed", 2),
        ("returned (letter 1)", 1),
        ("retry (letter 2)", None),
        ("processing", 3),
        ("complete", 3),
        ("resolved (letter 2)", 2),
    ]
    assert moments[6].detail == "its replay failed again with the same failure (the same fingerprint)"
    assert moments[10].detail == "its replay completed"


def test_the_hint_of_an_erased_letter_does_not_end_with_a_replay(rd: Redrive) -> None:
    job = worked(rd, failing(KeyError("x")))
    assert "can never be replayed" not in letter_details(rd.store, 1).hint

    erase(rd.store, job, Actor("ann"))

    assert letter_details(rd.store, 1).hint.startswith("It can never be replayed: its values were erased at ")


def test_an_unknown_job_is_refused_with_ids_that_are_near(rd: Redrive) -> None:
    worked(rd, failing())

    for ask in (explain, timeline):
        with pytest.raises(JobNotFoundError) as refused:
            ask(rd.store, 3)
        assert "Close to it are: 1" in refused.value.hint


def test_an_isolated_breaker_holds_and_the_job_says_where_to_look(rd: Redrive, clock: VirtualClock) -> None:
    guarded = failing(breaker=Breaker("api", consecutive=1, open_for=60))
    flow = Pipeline("shop", [guarded])  # type: ignore[list-item]
    job = rd.submit(flow, 1)
    breakers.move(rd.store, "api", "isolate", Actor("ann"), is_new=True)
    rd.work([flow], until_idle=True)

    told = explain(rd.store, job.id)

    assert (told.status, told.attempts) == ("queued", [])
