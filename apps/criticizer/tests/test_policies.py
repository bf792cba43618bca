# SPDX-License-Identifier: Apache-2.0
"""How long is waited, how often is tried, and what is kept (CR-2, CR-3)."""

from __future__ import annotations

from typing import cast

import pytest

from apps.criticizer.pipeline import flow
from apps.criticizer.settings import Settings
from apps.criticizer.tests.scenes import order, run, work
from apps.criticizer.tests.servers import Fault, Upstream
from redrive import Redrive
from redrive.store.protocol import Store
from redrive.testing import virtual_time

PATHS = {"fetch": "/change.patch", "llm": "/v1/chat/completions", "notify": "/hook"}


def waits(settings: Settings, upstream: Upstream, failing: str, *, seed: int) -> list[float]:
    upstream.faults.clear()
    job = order(upstream)
    upstream.fail(PATHS[failing], 503, times=5)
    with virtual_time(seed=seed):
        result = run(job, settings)
    return [each.waited for each in result.attempts if each.outcome == "retry"]


@pytest.mark.req("CR-2.1", "CR-2.2")
@pytest.mark.parametrize("failing", list(PATHS))
def test_waits_are_drawn_anew_between_nothing_and_the_doubling_limit(
    upstream: Upstream, settings: Settings, failing: str
) -> None:
    drawn = [waits(settings, upstream, failing, seed=seed) for seed in range(6)]

    assert all(0 <= wait <= limit for each in drawn for wait, limit in zip(each, (1, 2, 4, 8), strict=True))
    assert len({tuple(each) for each in drawn}) == len(drawn)
    # Full jitter reaches the lower and the upper part of what is allowed.
    assert min(each[3] for each in drawn) < 3
    assert max(each[3] for each in drawn) > 5


@pytest.mark.req("CR-2.1")
def test_the_policy_is_the_one_of_the_specification() -> None:
    for stage in flow.stages:
        backoff = stage.retry.backoff
        assert (stage.retry.max_attempts, stage.retry.retry_after_cap) == (5, 300)
        assert [backoff.delay(attempt, draw=0.5) for attempt in (1, 2, 6, 7, 8, 100)] == [
            0.5,
            1,
            16,
            30,
            30,
            30,
        ]
        assert stage.retry.retry_on == "classified"


@pytest.mark.req("CR-2.3")
@pytest.mark.parametrize(("told", "waited"), [("45", 45.0), ("300", 300.0), ("301", 300.0), ("86400", 300.0)])
@pytest.mark.parametrize("failing", list(PATHS))
def test_a_told_delay_is_kept_up_to_five_minutes(
    upstream: Upstream, settings: Settings, failing: str, told: str, waited: float
) -> None:
    job = order(upstream)
    upstream.fail(PATHS[failing], Fault(429, {"Retry-After": told}), Fault(503, {"Retry-After": told}))

    result = run(job, settings)

    assert [each.waited for each in result.attempts if each.outcome == "retry"] == [waited, waited]


@pytest.mark.req("CR-2.3")
def test_a_told_delay_below_the_backoff_shortens_nothing(upstream: Upstream, settings: Settings) -> None:
    plain = waits(settings, upstream, "llm", seed=3)
    upstream.faults.clear()
    job = order(upstream)
    upstream.fail(PATHS["llm"], Fault(503, {"Retry-After": "0"}), times=5)
    with virtual_time(seed=3):
        result = run(job, settings)

    assert [each.waited for each in result.attempts if each.outcome == "retry"] == plain


@pytest.mark.req("CR-2.4")
@pytest.mark.parametrize("failing", list(PATHS))
def test_retries_stop_at_once_when_the_failure_becomes_permanent(
    upstream: Upstream, settings: Settings, failing: str
) -> None:
    job = order(upstream)
    upstream.fail(PATHS[failing], 503, 503, 401)

    result = run(job, settings)

    made = [(each.outcome, each.code) for each in result.attempts if each.stage == failing]
    assert made == [("retry", "NETWORK_TRANSIENT")] * 2 + [("dead", "AUTH_INVALID")]
    assert upstream.calls(PATHS[failing]) == 3


@pytest.mark.req("CR-3.1", "CR-3.2")
def test_every_stage_has_five_attempts_of_its_own(upstream: Upstream, settings: Settings) -> None:
    job = order(upstream)
    for path in PATHS.values():
        upstream.fail(path, 503, times=4)

    result = run(job, settings)

    assert result.status == "complete"
    assert [upstream.calls(path) for path in PATHS.values()] == [5, 5, 5]
    assert [each.attempt for each in result.attempts] == [1, 2, 3, 4, 5] * 3


@pytest.mark.usefixtures("clock")
@pytest.mark.req("CR-3.3", "CR-4.1", "CR-4.2")
@pytest.mark.parametrize("failing", list(PATHS))
def test_an_exhausted_stage_leaves_a_letter_of_its_own_and_keeps_what_was_done(
    upstream: Upstream, settings: Settings, memory: Store, failing: str
) -> None:
    rd = Redrive(memory)
    job = rd.submit(flow, order(upstream))
    upstream.fail(PATHS[failing], 503, times=5)
    work(memory, settings)
    (line,) = rd.letters.list(pipeline="criticizer").letters
    letter = rd.letters.show(line.id).letter

    names = list(PATHS)
    before = names[: names.index(failing)]
    made = job.attempts()
    assert [each.stage for each in made] == before + [failing] * 5
    assert (letter.stage, letter.code, letter.reason) == (failing, "NETWORK_TRANSIENT", "exhausted")
    assert letter.first_failure_at == made[-5].ended_at
    assert letter.last_failure_at == made[-1].ended_at
    assert letter.exception.endswith(("HTTPStatusError", "InternalServerError"))
    assert f"in {failing}" in letter.last_stack
    context = cast("dict[str, object]", letter.sanitized_context)
    assert (context["stage"], context["attempt"], context["http_status"]) == (failing, 5, 503)
    assert (context["request_id"], len(str(context["input_sha256"]))) == ("req_42", 16)

    # What the stages before have done is not done again by a replay.
    rd.letters.remediate(
        rd.letters.choose(pipeline="criticizer"),
        evidence="up again",
        is_safe=True,
        diagnosis="transient",
    )
    rd.jobs.retry(job.id)
    work(memory, settings)
    assert job.status == "complete"
    assert [upstream.calls(PATHS[name]) for name in before] == [1] * len(before)
    assert upstream.calls(PATHS[failing]) == 6
    assert len(upstream.effects) == 1
