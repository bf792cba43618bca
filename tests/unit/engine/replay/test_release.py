# SPDX-License-Identifier: Apache-2.0
"""What a replay starts with: edits, large values, and what must not come out when a value does not fit."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from redrive import Pipeline, RetryPolicy, stage
from redrive.core.replay import plan_of
from redrive.engine.pipeline.codec import codec_for
from redrive.engine.replay.driver import ReplayDriver
from redrive.engine.replay.filter import LetterFilter
from redrive.engine.replay.record import counts_of
from redrive.engine.replay.release import batch_of, by_distinct_key, misfit, release_steps
from redrive.engine.replay.rules import record_rules
from redrive.errors import ReplayRefusedError
from redrive.ops.jobs.erase import erase
from redrive.ops.jobs.retry import retry_job
from redrive.ops.letters import triage
from redrive.ops.letters.edit import edit
from redrive.ops.letters.freeze import freeze
from redrive.ops.letters.preview import preview_replay
from redrive.ops.replay import replays
from redrive.ops.replay.progress import report_of
from redrive.store.protocol import Store
from redrive.store.records import NewJob, Row
from redrive.store.statements import release as release_sql
from redrive.testing import VirtualClock
from tests.embedded import change_rows, read_rows
from tests.unit.build import work
from tests.unit.engine.replay.shop import BY, LOOSE, Shop

SHOP = LetterFilter(pipeline="shop")


class Person(BaseModel):
    name: str
    age: int


@pytest.fixture
def shop(store: Store, clock: VirtualClock) -> Shop:
    made = Shop(store, clock)
    record_rules(made.store, [made.pipeline])
    return made


def seen_by_first_stage(store: Store, clock: VirtualClock) -> tuple[Pipeline, list[str]]:
    seen = list[str]()

    @stage(retry=RetryPolicy(1))
    async def first(text: str) -> str:
        seen.append(text)
        raise PermissionError("never")

    pipeline = Pipeline("one", [first], replay=LOOSE)
    record_rules(store, [pipeline])
    lane = store.lanes("one", ["first"])[0]
    store.submit([NewJob(lane=lane, payload=b'"as it was"', run_at=0.0)], clock.wall())
    work(store, pipeline)
    return pipeline, seen


def test_an_edited_payload_counts_where_the_payload_is_the_input(store: Store, clock: VirtualClock) -> None:
    pipeline, seen = seen_by_first_stage(store, clock)

    edit(store, 1, BY, part="payload", value=b'"as it should be"')
    retry_job(store, 1, BY)
    work(store, pipeline)

    assert seen == ["as it was", "as it should be"]


def test_an_edited_payload_stays_edited_for_every_later_restart(store: Store, clock: VirtualClock) -> None:
    pipeline, seen = seen_by_first_stage(store, clock)
    edit(store, 1, BY, part="payload", value=b'"as it should be"')

    for _ in range(2):
        retry_job(store, 1, BY, from_start=True)
        work(store, pipeline)

    assert seen == ["as it was", "as it should be", "as it should be"]


def test_a_letter_that_was_edited_since_it_was_read_is_not_released_with_the_old_value(shop: Shop) -> None:
    shop.fail(1)
    batch = batch_of(shop.store.query(release_sql.replay_candidates(ids=[1], from_start=False)))
    edit(shop.store, 1, BY, value=b"5")

    steps = release_steps(shop.store, batch, replay=None, first_lane=None, now=shop.clock.wall())

    assert shop.store.apply(*steps) is None


def test_a_letter_is_released_with_its_own_edit_though_another_was_edited_since_it_was_read(
    shop: Shop,
) -> None:
    shop.fail(2)
    edit(shop.store, 1, BY, value=b"5")
    batch = batch_of(shop.store.query(release_sql.replay_candidates(ids=[1], from_start=False)))
    edit(shop.store, 2, BY, value=b"6")

    steps = release_steps(shop.store, batch, replay=None, first_lane=None, now=shop.clock.wall())

    assert shop.store.apply(*steps) is not None


def test_a_letter_that_was_discarded_since_it_was_read_is_not_released(shop: Shop) -> None:
    shop.fail(1)
    batch = batch_of(shop.store.query(release_sql.replay_candidates(ids=[1], from_start=False)))
    triage.discard(shop.store, freeze(shop.store, SHOP), BY)

    steps = release_steps(shop.store, batch, replay=None, first_lane=None, now=shop.clock.wall())

    assert shop.store.apply(*steps) is None
    assert shop.counts() == {"discarded": 1}


def test_a_letter_is_not_taken_whose_job_cannot_be_queued_any_more(shop: Shop) -> None:
    shop.fail(1)
    batch = batch_of(shop.store.query(release_sql.replay_candidates(ids=[1], from_start=False)))
    erase(shop.store, 1, BY)

    steps = release_steps(shop.store, batch, replay=None, first_lane=None, now=shop.clock.wall())

    assert shop.store.apply(*steps) is None
    assert shop.counts() == {"open": 1}


def test_of_letters_with_one_key_the_first_is_released(shop: Shop) -> None:
    shop.fail(1, key="k")
    shop.fail(1, key="k")
    batch = batch_of(shop.store.query(release_sql.replay_candidates(ids=[1, 2], from_start=False)))

    assert [each.letter for each in by_distinct_key(batch.candidates)] == [1]


def test_large_values_and_large_edits_are_replayed_in_a_replay(store: Store, clock: VirtualClock) -> None:
    pipeline, seen = seen_by_first_stage(store, clock)
    long = "x" * 50_000
    lane = store.lanes("one", ["first"])[0]
    store.submit([NewJob(lane=lane, payload=f'"{long}"'.encode(), run_at=0.0)], clock.wall())
    work(store, pipeline)
    edit(store, 1, BY, value=f'"{long}!"'.encode())
    seen.clear()

    driver = ReplayDriver(store, [pipeline], clock, name=lambda: "w", ask_store=None)  # type: ignore[arg-type]
    store.start_worker("w", clock.wall(), 60)
    begun = replays.start(store, LetterFilter(pipeline="one"), BY, plan=plan_of(()))
    for _ in range(3):
        driver.drive()
    store.stop_worker("w")
    # Nobody drives it any more; what was released goes on.
    replays.cancel(store, begun.id, BY)
    work(store, pipeline)

    assert sorted(map(len, seen)) == [50_000, 50_001]
    assert read_rows(store, "SELECT count(*) FROM job_values WHERE job_id = 1") == [(1,)]


def test_without_the_code_a_full_restart_of_a_pipeline_whose_first_stage_was_renamed_is_refused(
    shop: Shop,
) -> None:
    shop.fail(1)
    shop.store.lanes("shop", ["get", "pay"])

    with pytest.raises(ReplayRefusedError, match="several stages of shop were its first stage"):
        retry_job(shop.store, 1, BY, from_start=True)
    retry_job(shop.store, 1, BY, from_start=True, pipelines=[shop.pipeline])


@pytest.mark.parametrize("kind", [Person, dict[str, int], list[int]])
def test_nothing_of_a_value_that_does_not_fit_is_told(kind: object) -> None:
    value = b'{"name": "hunter2", "age": "zq7"}'

    told = misfit(codec_for("x", kind), value)

    assert told is not None
    assert "hunter2" not in told
    assert "zq7" not in told
    assert misfit(codec_for("x", object), value) is None


def test_a_replay_that_cannot_be_driven_does_not_keep_others_waiting(
    shop: Shop, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.fail(2)
    shop.fix()
    first = replays.start(shop.store, LetterFilter(ids=(1,)), BY, plan=plan_of())
    plain = ReplayDriver._turn

    def broken(self: ReplayDriver, replay: object, row: Row) -> float:
        if replay.id == first.id:  # type: ignore[attr-defined]
            raise RuntimeError("no way")
        return plain(self, replay, row)  # type: ignore[arg-type]

    driver = shop.driver()
    driver.drive()
    driver.drive()
    second = replays.start(shop.store, LetterFilter(ids=(2,)), BY, plan=plan_of())
    monkeypatch.setattr(ReplayDriver, "_turn", broken)
    for _ in range(3):
        driver.drive()

    assert "will retry its turn" in caplog.text
    assert report_of(shop.store, second.id).replaying == 1


def test_a_replay_whose_row_cannot_be_read_does_not_keep_others_waiting(shop: Shop) -> None:
    shop.fail(2)
    shop.fix()
    replays.start(shop.store, LetterFilter(ids=(1,)), BY, plan=plan_of())
    driver = shop.driver()
    driver.drive()
    second = replays.start(shop.store, LetterFilter(ids=(2,)), BY, plan=plan_of())
    change_rows(shop.store, "UPDATE replays SET options = ? WHERE id = 1", (b"{",))
    for _ in range(3):
        driver.drive()

    assert counts_of(shop.store, second.id).released == 1


def test_inputs_that_pydantic_quotes_do_not_come_out_with_a_letter(store: Store, clock: VirtualClock) -> None:

    @stage(retry=RetryPolicy(1))
    async def read(person: dict[str, str]) -> str:
        return Person.model_validate(person).name

    pipeline = Pipeline("one", [read])
    lane = store.lanes("one", ["read"])[0]
    secret = "Johanna Maria Sophia of Nowhere in Particular " * 3
    payload = f'{{"name": "x", "age": "{secret}"}}'.encode()
    store.submit([NewJob(lane=lane, payload=payload, run_at=0.0)], clock.wall())
    work(store, pipeline)

    kept = str(read_rows(store, "SELECT * FROM letters"))
    kept += str(read_rows(store, "SELECT * FROM attempts")) + str(
        read_rows(store, "SELECT error_message FROM jobs")
    )
    assert "SCHEMA_INVALID" in kept
    assert "Johanna" not in kept
    assert "Particular" not in kept


def test_what_failed_while_a_replay_was_paused_is_held_against_it(shop: Shop) -> None:
    shop.fail(10)
    begun = replays.start(shop.store, SHOP, BY, plan=plan_of())
    driver = shop.driver()
    driver.drive()
    driver.drive()
    shop.store.stop_worker("w")
    replays.pause(shop.store, begun.id, BY)
    shop.work()

    replays.resume(shop.store, begun.id, BY)
    shop.work()

    report = report_of(shop.store, begun.id)
    assert (report.status, report.failed_again_same, report.waiting) == ("stopped", 1, 9)


def test_letters_that_came_while_somebody_thought_about_the_count_are_not_part_of_it(shop: Shop) -> None:
    shop.fail(2)
    seen = preview_replay(shop.store, SHOP)
    shop.fail(3)
    shop.fix()

    begun = replays.start(shop.store, SHOP, BY, plan=plan_of(()), seen=seen)
    shop.work()

    report = report_of(shop.store, begun.id)
    assert (report.letters, report.recovered) == (2, 2)
