# SPDX-License-Identifier: Apache-2.0
"""A replay as it is stored: its row, its options, and how many of its letters are in which state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, cast

import msgspec

from redrive.core.decoding import prepare
from redrive.core.replay import Counts, Plan
from redrive.engine.replay.filter import LetterFilter
from redrive.store.protocol import Store
from redrive.store.records import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A replay as it is stored."""

    id: int
    pipeline: str
    status: str
    filter: LetterFilter
    plan: Plan
    cutoff: int
    marked_to: int
    expected: int
    pardoned: Counts
    next_at: float
    why: str | None
    note: str | None
    driver: str | None
    driven_until: float
    actor: str
    created_at: float
    ended_at: float | None
    closed_at: float | None
    moves: int


_COLUMNS: Final = (
    "id pipeline status filter options cutoff marked_to expected pardoned next_at why note driver driven_until actor created_at"
    " ended_at closed_at moves"
).split()


class ReplayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a replay, as they are stored."""

    plan: Plan
    is_evidence_optional: bool = False


def replay_of(row: Row) -> Replay:
    """Return a replay from its row."""
    facts: dict[str, object] = dict(zip(_COLUMNS, row, strict=True))
    facts |= {name: msgspec.json.decode(cast("bytes", facts[name])) for name in ("filter", "pardoned")}
    return msgspec.convert({**facts, "plan": options_of(row).plan}, Replay)


def options_of(row: Row) -> ReplayOptions:
    """Return the options of a replay from its row."""
    return msgspec.json.decode(cast("bytes", row[4]), type=ReplayOptions)


def counts_of(store: Store, replay: int) -> Counts:
    """Return how many letters of a replay are in which state."""
    return msgspec.convert(
        {str(standing): letters for standing, letters in store.query("replay_counts", replay)}, Counts
    )


prepare(Replay, ReplayOptions)
