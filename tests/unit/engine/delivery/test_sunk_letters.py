# SPDX-License-Identifier: Apache-2.0
"""What a sink receives of one letter: its texts redacted, the last attempts, and of a letter that is gone what its attempt knows."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redrive import Redrive
from redrive.core.units import instant
from redrive.engine.delivery import messages
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.embedded import change_rows, read_rows
from tests.unit.build import work

from .test_hooks import deliver
from .test_sink_inputs import VERY_DEEP
from .test_sinks import ORDER, Basket, bury, failing


def test_the_key_and_the_owner_of_a_job_are_redacted_for_a_sink(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    basket = Basket()
    pipeline = failing(sinks=[basket])
    rd.submit(pipeline, ORDER, key="order of kim@hanbit.example", owner="mia@hanbit.example")
    work(store, pipeline)
    deliver(store, clock, pipeline)

    (letter,) = basket.letters
    assert (letter.key, letter.owner) == ("order of <redacted:email>", "<redacted:email>")


def test_a_sink_receives_the_last_attempts_the_oldest_first_and_how_many_there_were(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "HISTORY_MAX", 2)
    basket = Basket()
    pipeline = failing(sinks=[basket])
    bury(store, rd, pipeline)
    deliver(store, clock, pipeline)

    (letter,) = basket.letters
    assert (letter.attempts, [each.outcome for each in letter.history]) == (3, ["retry", "dead"])


def test_a_letter_says_when_it_changed_and_when_it_was_sent(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    basket = Basket(refusals=1)
    pipeline = failing(sinks=[basket])
    bury(store, rd, pipeline)
    changed_at = clock.wall()
    deliver(store, clock, pipeline)
    clock.advance(3_600)
    deliver(store, clock, pipeline)

    (letter,) = basket.letters
    assert letter.sent_at == instant(clock.wall())
    assert letter.sent_at - letter.changed_at >= timedelta(hours=1)
    assert abs(letter.changed_at - instant(changed_at)) < timedelta(seconds=1)


def test_of_a_letter_that_is_gone_a_sink_receives_what_its_attempt_knows(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    basket = Basket()
    pipeline = failing(sinks=[basket])
    bury(store, rd, pipeline)
    change_rows(store, "DELETE FROM dead_letters")
    change_rows(store, "UPDATE outbox SET at = at + 60")
    change_rows(store, "UPDATE jobs SET run_at = run_at - 60")
    deliver(store, clock, pipeline)

    ((ended_at,),) = read_rows(store, "SELECT max(ended_at) FROM attempts")
    (letter,) = basket.letters
    assert (letter.code, letter.error_class, letter.reason) == ("IO_DENIED", "IO_DENIED", "permanent")
    assert (letter.pipeline, letter.stage, letter.round, letter.attempts) == ("shop", "call", 1, 3)
    assert letter.message == "[Errno 13] denied for <payload:$.0>, token=<redacted:secret>"
    assert letter.first_failure_at == letter.last_failure_at == instant(ended_at)
    assert letter.changed_at == instant(ended_at + 60)
    assert (letter.category, letter.fingerprint, letter.is_retryable) == ("", "", False)


def test_what_not_even_the_attempt_of_a_gone_letter_knows_is_empty(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    basket = Basket()
    pipeline = failing(sinks=[basket])
    bury(store, rd, pipeline)
    change_rows(store, "DELETE FROM dead_letters")
    change_rows(store, "UPDATE attempts SET exception = NULL, decision = NULL, message = NULL")
    deliver(store, clock, pipeline)

    (letter,) = basket.letters
    assert (letter.code, letter.exception, letter.reason, letter.message) == ("IO_DENIED", "", "", "")


def test_a_letter_whose_context_is_nested_too_deep_is_told_without_it(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    basket = Basket()
    pipeline = failing(sinks=[basket])
    bury(store, rd, pipeline)
    change_rows(store, "UPDATE letter_facts SET context = ?", (VERY_DEEP,))
    deliver(store, clock, pipeline)

    (letter,) = basket.letters
    assert (letter.letter_id, letter.code, letter.sanitized_context) == (None, "IO_DENIED", {})
