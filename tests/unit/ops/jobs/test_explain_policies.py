# SPDX-License-Identifier: Apache-2.0
"""Who decided about a failure, the classifier or the policy, and what would have been otherwise."""

from __future__ import annotations

from email.message import Message
from urllib.error import HTTPError

import pytest

from redrive import Backoff, Fail, Jitter, Pipeline, Redrive, Retry, RetryPolicy, stage
from redrive.core.policy import RetryOn
from redrive.ops.jobs.explain import ExplainedAttempt, explain
from tests.embedded import changing

STEADY = Backoff.fixed(1, jitter=Jitter.none())
RESET = ConnectionResetError(104, "reset")
LEFT_TO_IT = "Had the policy left it to the classifier, "
TRIED_AGAIN = "the job would have been tried again within its limits; up to 3 more attempts were left."


def answered(status: int, headers: dict[str, str]) -> HTTPError:
    answer = Message()
    for name, value in headers.items():
        answer[name] = value
    return HTTPError("http://api.test", status, "no", answer, None)


def told(rd: Redrive, policy: RetryPolicy, *errors: BaseException) -> list[ExplainedAttempt]:
    """Return what is explained about a job whose stage raises these, one after the other."""
    left = list(errors)

    @stage(retry=policy)
    def fetch(number: int) -> int:
        if left:
            raise left.pop(0)
        return number

    flow = Pipeline("shop", [fetch])
    job = rd.submit(flow, 7)
    rd.work([flow], until_idle=True)
    return list(explain(rd.store, job.id).attempts)


@pytest.mark.parametrize(
    ("retry_on", "error", "why"),
    [
        ("none", RESET, 'retry_on="none" retries nothing'),
        ([ConnectionError], TimeoutError("slow"), "the list retry_on does not name it"),
        ([429], RESET, "the list retry_on does not name it"),
    ],
)
def test_a_policy_that_does_not_retry_what_counts_as_retryable_is_told_as_what_decided(
    rd: Redrive, retry_on: RetryOn, error: BaseException, why: str
) -> None:
    (only,) = told(rd, RetryPolicy(4, STEADY, retry_on=retry_on), error)

    assert only.reason == "permanent"
    assert f"Why: {why}, though {only.code} counts as retryable." in only.decided
    assert f"The decision: {only.code} is not retried: {why}, though it counts as retryable (" in only.decided
    assert only.otherwise == LEFT_TO_IT + TRIED_AGAIN


def test_the_last_attempt_would_have_been_the_last_whoever_decides(rd: Redrive) -> None:
    policy = RetryPolicy(2, STEADY, retry_on=["NETWORK_RESET"])
    *_, last = told(rd, policy, RESET, TimeoutError("slow"))

    assert last.otherwise == LEFT_TO_IT + "nothing would have changed: it was the last attempt."


@pytest.mark.parametrize(
    ("retry_on", "why"),
    [
        ("none", 'retry_on="none" retries nothing'),
        ([ConnectionError], "the list retry_on does not name it"),
    ],
)
def test_what_neither_the_policy_nor_the_classifier_retries_would_have_ended_the_same_way(
    rd: Redrive, retry_on: RetryOn, why: str
) -> None:
    (only,) = told(rd, RetryPolicy(4, STEADY, retry_on=retry_on), ValueError("x"))

    assert f"Why: {why}, and BUG_CODE counts as permanent." in only.decided
    assert only.otherwise == LEFT_TO_IT + "nothing would have changed: BUG_CODE counts as permanent."


@pytest.mark.parametrize(
    ("retry_on", "why"),
    [
        ("all", 'retry_on="all" retries whatever fails'),
        ([ValueError], "the list retry_on names it"),
        (["BUG_CODE"], "the list retry_on names it"),
    ],
)
def test_a_policy_that_retries_what_counts_as_permanent_is_told_as_what_decided(
    rd: Redrive, retry_on: RetryOn, why: str
) -> None:
    first, second = told(rd, RetryPolicy(2, STEADY, retry_on=retry_on), ValueError("x"), ValueError("x"))

    assert first.reason == "retryable"
    assert f"Why: {why}, though BUG_CODE counts as permanent; attempts are left." in first.decided
    assert f"again in 1 s (backoff): {why}, though it counts as permanent." in first.decided
    assert first.otherwise == LEFT_TO_IT + "the job would have become a dead letter at once."
    assert second.reason == "exhausted"
    assert second.otherwise == "Had one of its attempts succeeded, the job would have been complete."


def test_what_the_policy_and_the_classifier_retry_would_have_gone_the_same_way(rd: Redrive) -> None:
    first, _ = told(rd, RetryPolicy(2, STEADY, retry_on="all"), RESET)

    assert (
        'Why: retry_on="all" retries whatever fails, and NETWORK_RESET counts as retryable;' in first.decided
    )
    assert first.otherwise == LEFT_TO_IT + "it would have been retried anyway."


def test_a_told_delay_of_what_counts_as_permanent_does_not_make_it_heal(rd: Redrive) -> None:
    first, _ = told(rd, RetryPolicy(2, STEADY, retry_on="all"), answered(404, {"retry-after": "30"}))

    assert first.reason == "retry_after"
    assert f"though {first.code} counts as permanent; the dependency asked for this delay." in first.decided
    assert first.otherwise is not None
    assert first.otherwise.startswith("Had the dependency not asked for a delay")


def test_an_answer_that_is_permanent_overrules_its_class_and_the_classifier_is_told(rd: Redrive) -> None:
    (only,) = told(rd, RetryPolicy(4, STEADY, retry_on=[OSError]), answered(403, {}))

    assert "Why: a retry cannot succeed." in only.decided
    assert only.otherwise == f"Had {only.code} been retryable, {TRIED_AGAIN}"


@pytest.mark.parametrize(
    ("error", "otherwise"),
    [
        (RESET, TRIED_AGAIN),
        (ValueError("x"), "nothing would have changed: the policy does not retry it."),
    ],
)
def test_giving_up_tells_what_would_have_been_without_it(
    rd: Redrive, error: BaseException, otherwise: str
) -> None:
    (only,) = told(rd, RetryPolicy(4, STEADY, give_up_on=[ConnectionError, ValueError]), error)

    assert only.reason == "given_up"
    assert "Why: the policy's give_up_on names this failure." in only.decided
    assert only.otherwise == f"Had give_up_on not named it, {otherwise}"


def test_giving_up_on_the_last_attempt_changed_nothing(rd: Redrive) -> None:
    policy = RetryPolicy(2, STEADY, give_up_on=[TimeoutError])
    *_, last = told(rd, policy, RESET, TimeoutError("slow"))

    assert (
        last.otherwise == "Had give_up_on not named it, nothing would have changed: it was the last attempt."
    )


def test_a_decision_on_record_that_does_not_say_who_decided_is_told_without_guessing(rd: Redrive) -> None:
    (gone,) = told(rd, RetryPolicy(4, STEADY, give_up_on=[ValueError]), ValueError("x"))
    with changing(rd) as db:
        old = '{"kind":"old","reason":"given_up","text":"the policy gives up on BUG_CODE"}'
        db.execute("UPDATE attempts SET decision = ?", (old,))

    (again,) = explain(rd.store, 1).attempts

    assert gone.otherwise != again.otherwise
    assert again.otherwise == "Had give_up_on not named it, the policy's other rules would have applied."


def test_a_stage_that_asks_to_be_tried_again_is_told_as_what_decided(rd: Redrive) -> None:
    first, _ = told(rd, RetryPolicy(2, STEADY, retry_on="none"), Retry())

    assert first.reason == "asked"
    assert "Why: the stage itself asked for it." in first.decided
    assert "again in 1 s (backoff, as the stage asked to be tried again)" in first.decided
    assert first.otherwise is None


def test_a_conflict_that_only_an_idempotent_stage_retries_is_not_said_to_be_lasting(rd: Redrive) -> None:
    (only,) = told(rd, RetryPolicy(2, STEADY), answered(409, {}))

    assert only.code == "CONFLICT"
    assert "Why: it is not retryable here." in only.decided


def test_a_limit_of_a_code_that_left_one_attempt_says_one(rd: Redrive) -> None:
    policy = RetryPolicy(3, STEADY, per_code_max_attempts={"NETWORK_RESET": 2})
    *_, last = told(rd, policy, RESET, RESET)

    assert last.otherwise == ("Without the limit of NETWORK_RESET, the job would have had one more attempt.")


def test_a_limit_of_a_code_that_was_recorded_without_the_policys_says_nothing_more(rd: Redrive) -> None:
    policy = RetryPolicy(3, STEADY, per_code_max_attempts={"NETWORK_RESET": 1})
    (only,) = told(rd, policy, RESET)
    with changing(rd) as db:
        db.execute("UPDATE attempts SET decision = ?", ('{"kind":"old","reason":"code_exhausted"}',))

    (old,) = explain(rd.store, 1).attempts

    assert only.otherwise == (
        "Without the limit of NETWORK_RESET, the job would have had up to 2 more attempts."
    )
    assert (old.reason, old.otherwise) == ("code_exhausted", None)


def test_a_stage_that_gives_up_is_no_matter_of_the_policy(rd: Redrive) -> None:
    (only,) = told(rd, RetryPolicy(2, STEADY, retry_on="all"), Fail("NO_STOCK", "sold out"))

    assert (only.reason, only.otherwise) == ("asked", None)
    assert "retry_on" not in only.decided
