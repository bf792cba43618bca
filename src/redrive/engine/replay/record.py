# SPDX-License-Identifier: Apache-2.0
"""A replay as it is stored: its row, its options, and how many of its letters are in which state."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from redrive.core.decoding import prepare
from redrive.core.replay import Counts, Plan
from redrive.core.stop_reason import stop_sentence_in
from redrive.engine.replay.filter import LetterFilter
from redrive.store.reader import Reader
from redrive.store.statements import replays as replay_sql
from redrive.store.statements.replays import ReplayFacts
from redrive.store.statements.statement import members_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay(ReplayFacts):
    """A replay as it is stored; `reason` is a sentence."""

    filter: LetterFilter
    plan: Plan
    pardoned: Counts


class ReplayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a replay, as they are stored."""

    plan: Plan
    is_evidence_optional: bool = False


def replay_of(row: replay_sql.StoredReplay) -> Replay:
    """Return a replay from its row."""
    filter_, pardoned = msgspec.json.decode(row.filter), msgspec.json.decode(row.pardoned)
    facts = {**members_of(row), "filter": filter_, "pardoned": pardoned, "plan": options_of(row).plan}
    return msgspec.convert({**facts, "reason": stop_sentence_in(row.reason)}, Replay)


def options_of(row: replay_sql.StoredReplay) -> ReplayOptions:
    """Return the options of a replay from its row."""
    return msgspec.json.decode(row.options, type=ReplayOptions)


def counts_of(store: Reader, replay: int) -> Counts:
    """Return how many letters of a replay are in which state."""
    return msgspec.convert(dict(store.query(replay_sql.replay_counts(replay=replay))), Counts)


prepare(Replay, ReplayOptions)
