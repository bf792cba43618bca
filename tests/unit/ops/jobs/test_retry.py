# SPDX-License-Identifier: Apache-2.0
"""Retrying one job, by its owner or an operator; and the dry run of a replay."""

from __future__ import annotations

import pytest

from redrive import Breaker, Pipeline, RetryPolicy, stage
from redrive.core.replay import ReplayRules
from redrive.engine.replay.filter import LetterFilter
from redrive.engine.replay.release import release_steps
from redrive.errors import (
    ConfigurationError,
    EvidenceMissingError,
    JobNotFoundError,
    NotOwnerError,
    ReplayRefusedError,
)
from redrive.ops.audit import operations
from redrive.ops.breakers import move
from redrive.ops.jobs import retry as retrying
from redrive.ops.jobs.erase import erase
from redrive.ops.jobs.facts import job_facts
from redrive.ops.jobs.retry import retry_job
from redrive.ops.letters import triage
from redrive.ops.letters.details import get_letter
from redrive.ops.letters.freeze import freeze
from redrive.ops.replay.validation import validate
from redrive.store.protocol import Store
from redrive.store.records import NewJob, Step
from redrive.store.statements import transfer as transfer_sql
from redrive.testing import VirtualClock
from tests.embedded import changing
from tests.unit.build import work
from tests.unit.engine.replay.shop import BY, Shop

SHOP = LetterFilter(pipeline="shop")


@pytest.fixture
def shop(store: Store, clock: VirtualClock) -> Shop:
    return Shop(store, clock)


@pytest.fixture
def strict(store: Store, clock: VirtualClock) -> Shop:
    return Shop(store, clock, rules=ReplayRules(owner_retry=True))


def rule(shop: Shop) -> None:
    """Write down the rules, as a worker does when it starts."""
    from redrive.engine.replay.rules import record_rules

    record_rules(shop.store, [shop.pipeline])


def ready(shop: Shop) -> None:
    with changing(shop.store) as db:
        db.execute(
            "UPDATE dead_letters SET state = 'ready', evidence = 'fixed', is_safe = 1 WHERE state = 'open'"
        )


def test_the_owner_of_a_job_may_retry_it_where_the_rules_say_so(strict: Shop) -> None:
    rule(strict)
    strict.fail(1, owner="session-1")
    strict.fix()

    with pytest.raises(NotOwnerError, match="is not owned by"):
        retry_job(strict.store, 1, BY, owner="session-2")
    with pytest.raises(EvidenceMissingError):
        retry_job(strict.store, 1, BY)
    job = retry_job(strict.store, 1, BY, owner="session-1")

    assert (job.status, job.round, job.waiting) == ("queued", 2, "replay")
    strict.work()
    assert job_facts(strict.store, 1).status == "complete"


def test_evidence_opens_the_way_for_operators(strict: Shop) -> None:
    rule(strict)
    strict.fail(1)
    strict.fix()
    ready(strict)

    retry_job(strict.store, 1, BY)
    strict.work()

    assert strict.counts() == {"resolved": 1}
    (logged,) = operations(strict.store)
    assert (logged.actor, logged.verb, logged.subject) == ("ann", "retry", "letter 1")
    assert logged.reason == BY.reason


def test_a_retry_of_what_does_not_exist_or_does_not_fit_is_refused(shop: Shop) -> None:
    rule(shop)
    shop.fail(1)
    with pytest.raises(JobNotFoundError):
        retry_job(shop.store, 99, BY)
    with changing(shop.store) as db:
        db.execute("UPDATE jobs SET input = ?", (b'"no number"',))
    code = [shop.pipeline]

    with pytest.raises(ReplayRefusedError, match=r"does not fit its stage \(pay: "):
        retry_job(shop.store, 1, BY, pipelines=code)
    retry_job(shop.store, 1, BY, pipelines=code, from_start=True)


def test_an_edited_value_is_what_the_retry_starts_with_and_the_original_stays_on_record(shop: Shop) -> None:
    rule(shop)
    shop.fail(1)
    shop.fix(0)
    edit = "INSERT INTO edits (letter_id, job_id, part, before, after, at, actor) VALUES (1, 1, 'input', ?, ?, 0, 'ann')"
    large = b"1" + b"0" * 5_000
    with changing(shop.store) as db:
        db.execute(edit, (b"0", b"41"))
        db.execute(edit, (b"41", large))
    retry_job(shop.store, 1, BY)
    assert shop.store.query(transfer_sql.exported_values(job=1)) == [(b"0", large)]
    kept = shop.store.query(transfer_sql.exported_edits(job=1, letter=1))
    assert [(each.before, each.after) for each in kept] == [(b"0", b"41"), (b"41", large)]


def test_an_erased_job_comes_back_only_with_a_new_value(shop: Shop) -> None:
    rule(shop)
    shop.fail(1)
    shop.fix()
    with changing(shop.store) as db:
        db.execute("UPDATE jobs SET payload = NULL, input = NULL, erased_at = 1.0")
    with pytest.raises(ReplayRefusedError, match="were erased"):
        retry_job(shop.store, 1, BY)
    with changing(shop.store) as db:
        db.execute(
            "INSERT INTO edits (letter_id, job_id, part, after, at, actor) VALUES (1, 1, 'input', ?, 0, 'ann')",
            (b"5",),
        )

    assert retry_job(shop.store, 1, BY).erased_at is None
    shop.work()

    assert shop.seen == [("pay", 5)]


def test_an_erased_job_is_refused_before_anybody_is_asked_for_evidence(strict: Shop) -> None:
    rule(strict)
    strict.fail(1)
    erase(strict.store, 1, BY)

    with pytest.raises(ReplayRefusedError, match=r"were erased at .* and cannot be brought back") as refused:
        retry_job(strict.store, 1, BY)

    assert "redrive dlq discard 1" in refused.value.hint
    assert "triage" not in refused.value.hint


def test_the_code_of_another_pipeline_alone_is_a_slip(shop: Shop, clock: VirtualClock) -> None:
    rule(shop)
    shop.fail(1)
    other = Pipeline("mall", shop.pipeline.stages)

    with pytest.raises(ConfigurationError, match="is not the one of job 1, shop"):
        retry_job(shop.store, 1, BY, pipelines=[other])

    assert retry_job(shop.store, 1, BY, pipelines=[other, shop.pipeline]).status == "queued"


def test_a_letter_whose_evidence_is_taken_back_meanwhile_is_not_retried(
    strict: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule(strict)
    strict.fail(1)
    ready(strict)

    def meanwhile(*given: object, **more: object) -> list[Step]:
        frozen = freeze(strict.store, LetterFilter(ids=(1,)))
        triage.triage(strict.store, frozen, BY, diagnosis="data")
        return release_steps(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(retrying, "release_steps", meanwhile)

    with pytest.raises(ReplayRefusedError, match="its state was changed just now"):
        retry_job(strict.store, 1, BY)

    assert strict.counts() == {"triaged": 1}
    assert [each.verb for each in operations(strict.store)] == ["triage"]


def test_a_dry_run_counts_what_is_in_the_way_and_changes_nothing(store: Store, clock: VirtualClock) -> None:
    shop = Shop(store, clock, rules=ReplayRules())
    rule(shop)
    shop.fail(3)
    with changing(shop.store) as db:
        db.execute("UPDATE jobs SET input = ? WHERE id = 2", (b'"no number"',))
    before = [get_letter(shop.store, each) for each in (1, 2, 3)]

    blind = validate(shop.store, SHOP)
    found = validate(shop.store, SHOP, pipelines=[shop.pipeline])

    assert (blind.letters, blind.able, blind.obstacles) == (3, 0, {"evidence": 3})
    assert blind.unchecked == ["shop"]
    assert (found.obstacles, found.unchecked, found.is_fine) == ({"evidence": 3, "type": 1}, [], False)
    assert {each.letter for each in found.findings if each.kind == "type"} == {2}
    ready(shop)
    assert validate(shop.store, SHOP).is_fine
    with changing(shop.store) as db:
        db.execute("UPDATE dead_letters SET state = 'open', evidence = NULL, is_safe = 0")
    assert [get_letter(shop.store, each) for each in (1, 2, 3)] == before


def test_a_dry_run_knows_renamed_stages_taken_keys_changed_settings_and_open_breakers(
    store: Store, clock: VirtualClock
) -> None:
    breaker = Breaker("bank", consecutive=5, open_for=60)

    @stage(breaker=breaker, retry=RetryPolicy(1))
    async def pay(order: int) -> int:
        raise PermissionError(order)

    old = Pipeline("shop", [pay], replay=ReplayRules(evidence="optional"))
    lane = store.lanes("shop", ["pay"])[0]
    store.submit([NewJob(lane=lane, payload=b"1", run_at=0.0, key="k")], clock.wall())
    work(store, old)
    store.submit([NewJob(lane=lane, payload=b"2", run_at=0.0, key="k")], clock.wall())
    work(store, old)
    move(store, "bank", "open", BY, is_new=True)
    rules = stage(breaker=breaker, retry=RetryPolicy(7), name="pay")(pay.fn)
    changed = Pipeline("shop", [rules], replay=old.replay)
    renamed = Pipeline("shop", [stage(name="charge")(pay.fn)], replay=old.replay)

    found = validate(store, SHOP, pipelines=[changed])
    lost = validate(store, SHOP, pipelines=[renamed])

    assert found.notices == {"changed": 2, "breaker": 2}
    assert found.obstacles == {"key": 1}
    assert lost.obstacles["stage"] == 2


def test_a_dry_run_tells_of_jobs_that_are_on_their_way_already(shop: Shop) -> None:
    rule(shop)
    shop.fail(1, key="k")
    shop.fail(1)
    retry_job(shop.store, 1, BY)

    found = validate(shop.store, SHOP)

    assert (found.letters, found.able, found.obstacles) == (2, 1, {"running": 1})
    assert found.findings[0].text == "its job has not failed (queued)"


def test_a_dry_run_of_a_letter_that_is_over_says_so_when_it_is_named(shop: Shop) -> None:
    rule(shop)
    shop.fail(1)
    retry_job(shop.store, 1, BY)
    shop.work()

    named = validate(shop.store, LetterFilter(ids=(1,)))

    assert (named.letters, named.is_fine, named.obstacles) == (1, False, {"state": 1})
    assert validate(shop.store, LetterFilter(state="returned")).letters == 0
