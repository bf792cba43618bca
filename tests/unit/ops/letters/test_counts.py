# SPDX-License-Identifier: Apache-2.0
"""How many letters a replay would take, whatever the filter: the ways of counting agree."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from redrive.engine.replay.filter import LetterFilter
from redrive.errors import LetterNotFoundError, ReplayRefusedError
from redrive.ops.letters.preview import preview_replay
from redrive.store.protocol import Store
from redrive.testing import VirtualClock, virtual_time
from tests.unit.engine.replay.shop import Shop


@pytest.fixture
def shop(store: Store) -> Generator[Shop]:
    with virtual_time(seed=1) as clock:
        made = Shop(store, clock)
        made.fail(2, owner="ann")
        middle(made.clock)
        made.fail(3, owner="bob")
        yield made


def middle(clock: VirtualClock) -> float:
    clock.advance(1_000)
    return clock.wall() - 500


@pytest.mark.untraced
@pytest.mark.parametrize(
    ("which", "letters"),
    [
        (LetterFilter(), 5),
        (LetterFilter(pipeline="shop", stage="pay"), 5),
        (LetterFilter(code="IO_DENIED", state="open"), 5),
        (LetterFilter(owner="ann"), 2),
        (LetterFilter(ids=(1, 5)), 2),
        (LetterFilter(since=0.0), 5),
        (LetterFilter(until=1e12, pipeline="shop"), 5),
    ],
)
def test_every_filter_is_counted_exactly(shop: Shop, which: LetterFilter, letters: int) -> None:
    assert preview_replay(shop.store, which).letters == letters


def test_a_time_divides_the_letters(shop: Shop) -> None:
    between = shop.clock.wall() - 500

    assert preview_replay(shop.store, LetterFilter(since=between)).letters == 3
    assert preview_replay(shop.store, LetterFilter(until=between)).letters == 2
    with pytest.raises(ReplayRefusedError, match="nothing to replay"):
        preview_replay(shop.store, LetterFilter(until=between, state="ready"))


def test_an_unknown_letter_is_refused_with_those_that_are_near(shop: Shop) -> None:
    with pytest.raises(LetterNotFoundError) as missing:
        preview_replay(shop.store, LetterFilter(ids=(7,)))

    assert "5" in missing.value.hint
