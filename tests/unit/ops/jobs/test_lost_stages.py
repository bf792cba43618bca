# SPDX-License-Identifier: Apache-2.0
"""A failed job whose stage the pipeline no longer has: without the code at hand, it is not sent where nobody would serve it."""

from __future__ import annotations

import pytest

from redrive import Pipeline, Redrive, ReplayRules, RetryPolicy, connect, stage
from redrive.engine.replay.rules import recorded, rules_of
from redrive.errors import ReplayRefusedError
from tests.databases import Address

RULES = ReplayRules(evidence="optional", export="include")


@stage
def take(number: int) -> int:
    return number


@stage(retry=RetryPolicy(1))
def fetch(number: int) -> float:
    return 1 / number


@stage(name="load", retry=RetryPolicy(1))
def renamed(number: int) -> float:
    return 1 / number


BEFORE = Pipeline("shop", [take, fetch], replay=RULES)
AFTER = Pipeline("shop", [take, renamed], replay=RULES)


@pytest.fixture(autouse=True)
def _failed_before(rd: Redrive) -> None:
    rd.submit(BEFORE, 0)
    rd.work([BEFORE], until_idle=True)


def use(rd: Redrive, pipeline: Pipeline) -> None:
    """Let a worker start with this code."""
    rd.work([pipeline], until_idle=True)


def test_a_retry_without_the_code_is_refused_when_the_stage_was_renamed(rd: Redrive) -> None:
    use(rd, AFTER)

    with pytest.raises(ReplayRefusedError) as refused:
        rd.jobs.retry(1)

    assert "the pipeline no longer has its stage (fetch: now it has take, load)" in str(refused.value)
    assert "@stage(name='fetch')" in refused.value.hint
    assert (rd.job(1).status, rd.letters.show(1).letter.state) == ("failed", "open")


def test_the_code_that_is_named_knows_better_than_the_last_worker(rd: Redrive) -> None:
    use(rd, AFTER)

    with pytest.raises(ReplayRefusedError, match=r"no longer has its stage \(fetch"):
        rd.jobs.retry(1, pipelines=[AFTER])
    assert rd.jobs.retry(1, pipelines=[BEFORE]).status == "queued"


def test_a_stage_that_has_its_name_back_is_served_again(rd: Redrive) -> None:
    use(rd, AFTER)
    use(rd, BEFORE)

    assert recorded(rd.store, "shop").stages == ("take", "fetch")
    assert rd.jobs.retry(1).status == "queued"


def test_whoever_only_submits_does_not_say_which_stages_are_served(rd: Redrive) -> None:
    use(rd, AFTER)
    Redrive(rd.store).submit(BEFORE, 1)

    assert recorded(rd.store, "shop").stages == ("take", "load")


def test_a_full_restart_needs_only_the_first_stage(rd: Redrive) -> None:
    use(rd, AFTER)

    assert rd.jobs.retry(1, from_start=True).stage == "take"


def test_a_dry_run_without_the_code_says_which_letters_have_lost_their_stage(rd: Redrive) -> None:
    assert rd.letters.validate(pipeline="shop").is_fine
    use(rd, AFTER)

    told = rd.letters.validate(pipeline="shop")

    assert (told.able, told.obstacles) == (0, {"stage": 1})
    assert told.findings[0].text == "the pipeline no longer has its stage (fetch: now it has take, load)"
    assert rd.letters.validate(pipeline="shop", from_start=True).is_fine
    assert rd.letters.validate(pipeline="shop", pipelines=[BEFORE]).is_fine


def test_of_a_pipeline_whose_code_was_never_used_here_nothing_is_said(rd: Redrive, address: Address) -> None:
    lines = [*rd.letters.export(with_values=True)]
    with connect(address("other")) as other:
        other.letters.import_(lines)
        chosen = other.letters.choose()
        other.letters.remediate(chosen, evidence="mended", is_safe=True, diagnosis="data")

        assert recorded(other.store, "shop").stages == ()
        assert other.jobs.retry(1).status == "queued"


def test_a_change_of_stages_alone_is_written_down_and_leaves_the_rules(rd: Redrive) -> None:
    use(rd, AFTER)

    assert recorded(rd.store, "shop").stages == ("take", "load")
    assert rules_of(rd.store, "shop") == RULES
