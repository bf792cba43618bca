# SPDX-License-Identifier: Apache-2.0
"""The settlement of one dispatch: what each way to end burns, counts and keeps."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from email.message import Message
from functools import partial
from urllib.error import HTTPError

import msgspec
import pytest
from msgspec.structs import replace

from redrive import Breaker, Context, Pipeline, Redrive, Skip, Snooze, stage
from redrive.core.breaker_state import opened
from redrive.core.decide import BreakerStatus, DeadLetter, NoDecision, OldDecision, Reason
from redrive.core.decision_text import decode_decision
from redrive.engine.classifier import DEFAULT
from redrive.engine.pipeline.lanes import lanes_of
from redrive.engine.worker.dead_letter import MESSAGE_MAX, FailedAttempt
from redrive.engine.worker.dispatch import Dispatch
from redrive.engine.worker.settlements import (
    REFUSED,
    UNREADABLE,
    reduced_settlement,
    settlement_of_cancel,
    settlement_of_crash,
    settlement_of_failure,
    settlement_of_stop,
    settlement_of_success,
    settlement_of_unreadable_failure,
)
from redrive.sinks import Files
from redrive.store.records import HOOK, ClaimedJob, ClaimRequest, ExchangeRequest, Settlement
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.unit.build import STEADY

API = Breaker("api", consecutive=1, open_for=60)
RESET = ConnectionResetError(104, "reset")
SPENT = {"snoozes": 3, "suspects": 1, "crashes": 1, "codes": b'{"NETWORK_RESET":1}'}


@pytest.fixture
def dispatch(store: SqliteStore, rd: Redrive, clock: VirtualClock) -> Dispatch:
    return dispatched(store, rd, clock, on_retry=lambda _: None)


def dispatched(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, name: str = "call", **options: object
) -> Dispatch:
    """Return the second attempt of a job that has crashed, snoozed and failed before."""

    async def call(number: int) -> int:
        return number

    stages = [stage(name=name, retry=STEADY, breaker=API)(call)]
    pipeline = Pipeline("shop", stages, **options)  # type: ignore[arg-type]
    (lane,) = lanes_of(store, [pipeline]).values()
    rd.submit(pipeline, 1)
    now = clock.wall()
    store.start_worker("w1", now, 60)
    want = ClaimRequest((lane.id,), 1)
    (job,) = store.exchange(ExchangeRequest("w1", [], want, now=now, token=1)).claimed
    context = Context(job_id=job.id, pipeline="shop", stage=name, attempt=2)
    return Dispatch(replace(job, attempt=2, **SPENT), lane, context, now, now + 1)


def failed(dispatch: Dispatch, exc: Exception, standing: BreakerStatus | None = None) -> Settlement:
    attempt = FailedAttempt(DEFAULT.classify(exc, stage="call"), exc)
    return settlement_of_failure(dispatch, attempt, 0.0, standing)


def spent(one: ClaimedJob | Settlement) -> tuple[object, ...]:
    codes = None if one.codes is None else msgspec.json.decode(one.codes)
    return one.attempt, one.snoozes, one.suspects, one.crashes, codes


def test_a_hold_burns_no_attempt_no_snooze_and_counts_no_code(dispatch: Dispatch) -> None:
    held = failed(dispatch, RESET, BreakerStatus(API, opened(dispatch.ended_at)))

    assert (held.outcome, held.burned, held.run_at) == ("hold", False, dispatch.ended_at + 60)
    assert spent(held) == spent(dispatch.job)


def test_a_snooze_burns_a_snooze_alone(dispatch: Dispatch) -> None:
    snoozed = failed(dispatch, Snooze(5))

    assert (snoozed.outcome, snoozed.burned) == ("hold", False)
    assert spent(snoozed) == (2, 4, 1, 1, {"NETWORK_RESET": 1})


def test_a_retry_burns_the_attempt_counts_its_code_and_stays_under_suspicion(dispatch: Dispatch) -> None:
    again = failed(dispatch, RESET)

    assert (again.outcome, again.burned, again.recipients) == ("retry", True, (HOOK,))
    assert spent(again) == (3, 3, 1, 1, {"NETWORK_RESET": 2})


def test_a_failure_keeps_the_status_of_an_answer_and_the_beginning_of_a_long_message(
    dispatch: Dispatch,
) -> None:
    ended = failed(dispatch, HTTPError("http://shop.example", 503, "no " * MESSAGE_MAX, Message(), None))

    assert (ended.http_status, ended.message) == (503, f"HTTP Error 503: {'no ' * MESSAGE_MAX}"[:MESSAGE_MAX])


def test_a_letter_tells_its_stage_and_hides_what_hashes_its_input(dispatch: Dispatch) -> None:
    letter = failed(dispatch, PermissionError("no")).letter

    assert letter is not None
    context = msgspec.json.decode(letter.context)
    secret = dispatch.lane.installation.secret
    assert secret
    digest = hmac.digest(secret, dispatch.job.input, "sha256").hex()
    assert (context["stage"], context["input_sha256"]) == ("call", digest[:16])


def test_sinks_hear_of_a_job_only_when_it_is_given_up(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    dispatch = dispatched(store, rd, clock, on_hold=lambda _: None, sinks=[Files("letters")])
    broken = BreakerStatus(API, opened(dispatch.ended_at))

    assert failed(dispatch, RESET, broken).recipients == (HOOK,)
    assert failed(dispatch, RESET).recipients == ()
    assert failed(dispatch, PermissionError("no")).recipients == (Files("letters").name,)


@pytest.mark.parametrize(("is_alone", "crashes"), [(False, 1), (True, 2)])
def test_every_crash_raises_suspicion_and_that_of_a_lone_process_counts(
    dispatch: Dispatch, is_alone: bool, crashes: int
) -> None:
    crashed = settlement_of_crash(dispatch, is_alone=is_alone)

    assert (crashed.outcome, crashed.burned) == ("crashed", False)
    assert spent(crashed) == (2, 3, 2, crashes, {"NETWORK_RESET": 1})


def test_a_run_that_was_cut_off_or_cancelled_goes_back_as_it_was(dispatch: Dispatch) -> None:
    for ended in (settlement_of_stop(dispatch), settlement_of_cancel(dispatch)):
        assert not ended.burned
        assert spent(ended) == spent(dispatch.job)


@pytest.mark.parametrize(
    ("end", "status", "reason"),
    [
        (settlement_of_cancel, "cancelled", Reason.REQUESTED),
        (settlement_of_stop, "queued", Reason.WORKER_STOPPED),
        (partial(settlement_of_crash, is_alone=True), "queued", Reason.OWN_PROCESS_LOST),
        (partial(settlement_of_crash, is_alone=False), "queued", Reason.PROCESS_LOST),
    ],
)
def test_a_run_that_did_not_end_by_itself_tells_why(
    dispatch: Dispatch, end: Callable[[Dispatch], Settlement], status: str, reason: Reason
) -> None:
    ended = end(dispatch)

    assert (ended.status, decode_decision(ended.decision)) == (status, NoDecision(reason))
    assert (ended.run_at, ended.config) == (dispatch.ended_at, dispatch.lane.stage.config)


def test_a_success_is_over_when_its_stage_ended(dispatch: Dispatch) -> None:
    ok = settlement_of_success(dispatch, b"1")

    assert (ok.status, ok.outcome, ok.burned, ok.decision) == ("complete", "ok", True, None)
    assert (ok.run_at, ok.ended_at) == (dispatch.ended_at, dispatch.ended_at)


def test_the_last_stage_of_a_cancelled_job_that_succeeds_completes_it(dispatch: Dispatch) -> None:
    dispatch.context.is_cancelled = True

    assert settlement_of_success(dispatch, b"1").status == "complete"


def test_a_failure_that_nobody_can_read_burns_its_attempt_and_makes_a_letter_of_fixed_texts(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    basket = Files("letters")
    dispatch = dispatched(store, rd, clock, on_dead=lambda _: None, sinks=[basket])

    ended = settlement_of_unreadable_failure(dispatch)

    assert (ended.status, ended.outcome, ended.burned) == ("failed", "dead", True)
    assert (ended.code, ended.exception, ended.message) == ("BUG_UNKNOWN", "Exception", UNREADABLE)
    assert ended.recipients == (HOOK, basket.name)
    decision = DeadLetter(
        reason=Reason.PERMANENT,
        code="BUG_UNKNOWN",
        attempt=2,
        max_attempts=STEADY.max_attempts,
        rule=UNREADABLE,
    )
    assert decode_decision(ended.decision) == decision
    assert ended.letter is not None
    job = dispatch.job
    assert msgspec.json.decode(ended.letter.context) == {"attempt": 2, "dispatch": job.dispatch, "round": 1}


def test_failures_that_nobody_can_read_are_a_group_for_each_stage(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    ended = [
        settlement_of_unreadable_failure(dispatched(store, rd, clock, name)) for name in ("fetch", "send")
    ]

    assert len({each.letter.fingerprint for each in ended if each.letter is not None}) == 2


def test_a_settlement_that_the_store_refused_is_reduced_to_texts_that_every_store_takes(
    dispatch: Dispatch,
) -> None:
    dispatch.context.note("seen", "yes")
    full = replace(failed(dispatch, type("Größe", (RuntimeError,), {})("no")), recipients=(HOOK,))

    reduced = reduced_settlement(full)

    assert (reduced.message, reduced.exception, reduced.code) == (REFUSED, "Exception", full.code)
    assert (full.notes, reduced.notes, reduced.recipients) == ('{"seen":"yes"}', None, ())
    assert decode_decision(reduced.decision) == OldDecision(Reason.PERMANENT)
    letter = reduced.letter
    assert letter is not None
    assert (letter.message, letter.exception, letter.stack, letter.context) == (
        REFUSED,
        "Exception",
        "",
        b"{}",
    )


def test_of_a_refused_settlement_the_name_of_a_plain_class_and_our_own_decision_are_kept(
    dispatch: Dispatch,
) -> None:
    dispatch.context.submit(dispatch.lane.pipeline, 2)
    skipped, stopped = failed(dispatch, Skip("empty")), settlement_of_stop(dispatch)

    assert reduced_settlement(failed(dispatch, RESET)).exception == "ConnectionResetError"
    assert (len(skipped.children), reduced_settlement(skipped).children) == (1, ())
    assert reduced_settlement(skipped).decision == skipped.decision
    assert reduced_settlement(stopped) == stopped


@pytest.mark.parametrize(
    ("exc", "status", "has_letter"), [(RESET, "cancelled", False), (PermissionError("no"), "failed", True)]
)
def test_a_job_that_somebody_cancelled_is_not_tried_again_but_given_up_with_its_letter(
    dispatch: Dispatch, exc: Exception, status: str, has_letter: bool
) -> None:
    dispatch.context.is_cancelled = True

    ended = failed(dispatch, exc)

    assert (ended.status, ended.letter is not None, ended.recipients) == (status, has_letter, ())


@pytest.mark.parametrize(("exc", "count"), [(RESET, 0), (PermissionError("no"), 0), (Skip("empty"), 1)])
def test_only_a_stage_that_did_not_fail_submits_jobs(dispatch: Dispatch, exc: Exception, count: int) -> None:
    dispatch.context.submit(dispatch.lane.pipeline, 2)

    assert len(failed(dispatch, exc).children) == count
