# SPDX-License-Identifier: Apache-2.0
"""What the failed stage was given, for sinks that ask for it: redacted or as it was, and only while it is that of the failure."""

from __future__ import annotations

import pytest

from redrive import Pipeline, Redrive, stage
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.embedded import change_rows

from .test_hooks import deliver
from .test_sinks import ORDER, Basket, bury, failing

VERY_DEEP = b"[" * 1_200 + b"]" * 1_200
LATIN = b'"tea\xe9"'


@pytest.mark.parametrize("size", [10, 10_000], ids=["small", "large"])
def test_only_a_sink_that_asks_for_it_gets_what_the_failed_stage_was_given(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, size: int
) -> None:
    whole, hidden, other = Basket("whole"), Basket("hidden"), Basket("other", payload="include")
    whole.input, hidden.input = "include", "redacted"
    made = {"note": "x" * size, "mail": "kim@hanbit.example"}

    @stage
    def price(_order: dict[str, str]) -> dict[str, str]:
        return made

    pipeline = Pipeline("shop", [price, *failing().stages], sinks=[whole, hidden, other])
    bury(store, rd, pipeline)
    deliver(store, clock, pipeline)

    assert whole.letters[0].input == made
    assert hidden.letters[0].input == {**made, "mail": "<redacted:email>"}
    assert [letter.input for letter in other.letters] == [None]
    assert [letter.payload for letter in (*whole.letters, *other.letters)] == [None, ORDER]


@pytest.mark.untraced
@pytest.mark.parametrize(
    "change",
    [
        ("erased_at", 1.0),
        ("round", 2),
        ("lane_id", 2),
        ("payload", b"\0"),
        ("payload", VERY_DEEP),
        ("payload", LATIN),
    ],
    ids=["erased", "runs again", "went on", "unreadable", "very deep", "latin-1"],
)
def test_an_input_that_is_gone_or_not_that_of_the_failure_any_more_is_none(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, change: tuple[str, object]
) -> None:
    basket = Basket()
    basket.input = "include"
    pipeline = failing(sinks=[basket])
    bury(store, rd, pipeline)
    change_rows(store, f"UPDATE jobs SET {change[0]} = ?", change[1:])
    deliver(store, clock, pipeline)

    assert [letter.input for letter in basket.letters] == [None]


def test_what_a_sink_raises_that_gets_inputs_is_not_quoted(
    store: SqliteStore, rd: Redrive, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    basket = Basket(refusals=1)
    basket.input = "include"
    pipeline = failing(sinks=[basket])
    bury(store, rd, pipeline)
    deliver(store, clock, pipeline)

    assert "raised OSError" in caplog.text
    assert "the basket is full" not in caplog.text
