# SPDX-License-Identifier: Apache-2.0
"""An imported job tells how it failed where it comes from, and when and by whom it was imported; nothing of that is counted here."""

from __future__ import annotations

import json
from collections.abc import Generator

import pytest

from redrive import Pipeline, Redrive, ReplayRules, RetryPolicy, connect, stage
from redrive.core.backoff import Backoff, Jitter
from redrive.core.replay import plan_of
from redrive.engine.replay.filter import LetterFilter
from redrive.engine.retention import Retention
from redrive.ops.audit import Actor
from redrive.ops.jobs import inspect
from redrive.ops.jobs.explain import explain
from redrive.ops.jobs.timeline import timeline
from redrive.ops.letters import imports, triage
from redrive.ops.letters.details import get_letter
from redrive.ops.letters.exports import export
from redrive.ops.letters.freeze import freeze
from redrive.ops.letters.imports import import_letters
from redrive.ops.replay import replays
from redrive.ops.upkeep.prune import prune
from redrive.store.statements import jobs as job_sql
from redrive.store.statements import transfer as transfer_sql
from redrive.testing import VirtualClock
from tests.databases import Address

ANN = Actor("ann", "a test")


@stage(retry=RetryPolicy(2, Backoff.fixed(1, jitter=Jitter.none())))
def fetch(text: str) -> str:
    raise ConnectionResetError(104, "reset")


SHOP = Pipeline("shop", [fetch], replay=ReplayRules(evidence="optional"))


@pytest.fixture
def here(address: Address, clock: VirtualClock) -> Generator[Redrive]:
    with connect(address("here")) as opened:
        # One after the other, so that the letters have the order of their jobs.
        for text in ("a", "b"):
            opened.submit(SHOP, text)
            opened.work([SHOP], until_idle=True, concurrency=1)
        yield opened


@pytest.fixture
def there(address: Address, here: Redrive, clock: VirtualClock) -> Generator[Redrive]:
    lines = list(export(here.store, LetterFilter(ids=(2,))))
    with connect(address("there")) as opened:
        clock.advance(60)
        import_letters(opened.store, lines, Actor("bob"))
        yield opened


def test_an_imported_job_explains_what_happened_elsewhere(here: Redrive, there: Redrive) -> None:
    origin = here.store.query(transfer_sql.installation())[0]

    first, came, failed, one, two, *rest = explain(there.store, 1).sentences

    assert first == "Job 1 of pipeline 'shop' is failed at stage 'fetch'."
    assert came.endswith(f" by bob from installation {origin}: letter 2 of job 2 there.")
    assert failed.startswith("It failed there at 20")
    assert failed.endswith(" UTC with NETWORK_RESET: [Errno 104] reset.")
    assert one.startswith("There: Attempt 1 of stage 'fetch' ended after ")
    assert "It is tried again." in one
    assert two.startswith("There: Attempt 2 of stage 'fetch' ended after ")
    assert "It was given up" in two
    assert not any(each.startswith("There") for each in rest)
    assert explain(there.store, 1).attempts == []


def test_a_timeline_has_what_happened_elsewhere_and_the_import(there: Redrive) -> None:
    moments = timeline(there.store, 1)

    assert [each.what for each in moments] == ["queued", "retry there", "failed there", "imported"]
    assert [each.at for each in moments] == sorted(each.at for each in moments)
    assert (moments[2].code, moments[2].round, moments[2].attempt) == ("NETWORK_RESET", 1, 2)
    assert moments[3].actor == "bob"
    assert "letter 2 of job 2 there" in str(moments[3].detail)


def test_attempts_made_elsewhere_are_not_counted_here(here: Redrive, there: Redrive) -> None:
    story = inspect.job_details(there.store, 1)

    assert story.origin is not None
    assert [each.outcome for each in story.origin.attempts] == ["retry", "dead"]
    assert list(story.attempts) == []
    assert there.store.query(job_sql.latest_events(pipeline=None, limit=10)) == []
    assert inspect.job_details(here.store, 1).origin is None


def test_what_others_wrote_about_attempts_is_redacted_again_and_the_last_ones_are_kept(
    here: Redrive, there: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = json.loads(next(export(here.store, LetterFilter(ids=(1,)))))
    told["attempts"][-1] |= {"message": "mail ann@example.com", "code": "x" * 500, "sentence": None}
    monkeypatch.setattr(imports, "ATTEMPTS_MAX", 1)

    assert import_letters(there.store, [json.dumps(told).encode()], ANN).made == 1

    origin = inspect.origin_of(there.store, 2)
    assert origin is not None
    (kept,) = origin.attempts
    assert kept.outcome == "dead"
    assert "example.com" not in str(kept)
    assert len(str(kept.code)) == imports.WORD_MAX


def test_pruning_leaves_nothing_of_what_happened_elsewhere(there: Redrive, clock: VirtualClock) -> None:
    clock.advance(100)

    prune(there.store, Retention(failed=10), ANN)

    assert there.store.query(job_sql.last_job()) == [None]
    assert [each.attempts for each in there.store.query(transfer_sql.import_of_job(job=1))] == ["[]"]


@pytest.mark.untraced
def test_an_export_has_the_acts_done_by_group_by_filter_and_in_a_replay_of_many(here: Redrive) -> None:
    group = get_letter(here.store, 1).group
    triage.triage(here.store, freeze(here.store, LetterFilter(group=group)), ANN, diagnosis="transient")
    triage.note(here.store, freeze(here.store, LetterFilter(pipeline="shop")), ANN, text="both")
    triage.note(here.store, freeze(here.store, LetterFilter(ids=(2,))), ANN, text="this one")
    replays.start(here.store, LetterFilter(ids=(1,)), ANN, plan=plan_of())
    here.work([SHOP], until_idle=True, concurrency=1)

    first, second = (
        [(each["verb"], each["subject"]) for each in json.loads(line)["operations"]]
        for line in export(here.store, LetterFilter(ids=(1, 2)))
    )

    many = [("triage", f"group {group}"), ("note", "filter pipeline=shop")]
    assert first == [*many, ("replay", "replay 1")]
    assert second == [*many, ("note", "letter 2")]
