# SPDX-License-Identifier: Apache-2.0
"""The report of a replay: counts, what it waits for, an estimate, and its results.

Only reads. Every letter that was counted when the replay was started is in exactly one of the counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from redrive.core.replay import Counts, Wait, next_turn, seconds_left
from redrive.core.units import instant
from redrive.engine.replay.filter import LetterFilter
from redrive.engine.replay.record import Replay, counts_of
from redrive.engine.replay.release import Obstacle
from redrive.engine.runtime import CURRENT
from redrive.ops.pipelines import workers
from redrive.ops.replay.replays import get_replay
from redrive.store.protocol import Store
from redrive.store.reader import Reader
from redrive.store.statements import replays as replay_sql
from redrive.store.statements.replays import RepeatedFailure

SKIPPED_MAX: Final = 1_000
"""Skipped letters that are listed."""
FIRST_MAX: Final = 5
"""Letters that are listed for each kind of obstacle."""
SAMPLE_MAX: Final = 1_000
"""Letters that ended last, by which the pace is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """A replay and its counts: `letters` is the sum of those that follow it."""

    id: int
    pipeline: str
    status: str
    letters: int
    recovered: int
    failed_again_same: int
    failed_again_other: int
    cancelled: int
    skipped: int
    replaying: int
    waiting: int
    left_out: int
    """Changed by somebody after the start and before their turn, or unmarked when it was cancelled."""
    waits_for: str | None
    seconds_left: float | None
    """An estimate, by its rate or else by what has ended lately; None while there is none."""
    verified: int
    """Recovered letters whose job is complete or skipped; counted once the replay has ended."""
    stages_done: int
    """How many stages the replayed jobs have completed since."""
    failures: Sequence[RepeatedFailure]
    skips: Sequence[tuple[str, int]]
    """Why letters were skipped: each kind of obstacle, and how many letters have it; the most frequent one first."""
    first_skipped: Mapping[str, Sequence[tuple[int, Obstacle]]]
    """The first letters for each kind of obstacle."""
    skipped_letters: Sequence[tuple[int, Obstacle]]
    """The skipped letters; the first thousand of them."""
    canary: tuple[int, ...]
    rate: float | None
    from_start: bool
    filter: LetterFilter
    actor: str
    note: str | None
    created_at: datetime
    ended_at: datetime | None
    closed_at: datetime | None


def report_of(store: Store, replay: int, *, skipped_max: int = SKIPPED_MAX) -> ReplayReport:
    """Return the report of a replay at one moment, with at most `skipped_max` skipped letters; raises ReplayNotFoundError."""
    with store.reading() as moment:
        return _report_of(moment, replay, skipped_max)


def _report_of(store: Reader, replay: int, skipped_max: int) -> ReplayReport:
    known = get_replay(store, replay)
    counts = counts_of(store, replay)
    skips: list[tuple[str, int]] = [*store.query(replay_sql.replay_skips(replay=replay))]
    skipped = sum(letters for _, letters in skips)
    named = (
        _skipped(store.query(replay_sql.skipped_letters(replay=replay, limit=skipped_max))) if skips else []
    )
    failures = store.query(replay_sql.returned_of(replay=replay)) if counts.same + counts.other else []
    # Only once it has ended: it reads every letter.
    recovered = store.query(replay_sql.recovered_of(replay=replay)) if known.ended_at is not None else []
    complete, stages = (recovered[0].complete, recovered[0].stages) if recovered else (0, 0)
    # One that was paused while its letters were marked has them all, too.
    is_marked = known.ended_at is not None or known.status == "cancelling" or known.marked_to >= known.cutoff
    waiting = counts.waiting if is_marked else known.expected
    accounted = counts.ended + counts.replaying + waiting + skipped
    return ReplayReport(
        id=known.id,
        pipeline=known.pipeline,
        status=known.status,
        letters=max(known.expected, accounted),
        recovered=counts.completed,
        failed_again_same=counts.same,
        failed_again_other=counts.other,
        cancelled=counts.cancelled,
        skipped=skipped,
        replaying=counts.replaying,
        waiting=waiting,
        left_out=max(0, known.expected - accounted),
        waits_for=waits_for(store, known, counts),
        seconds_left=_seconds_left(store, known, counts),
        verified=complete or 0,
        stages_done=stages or 0,
        failures=failures,
        skips=skips,
        first_skipped=_first_skipped(store, replay, [kind for kind, _ in skips], named),
        skipped_letters=named,
        canary=known.plan.canary,
        rate=known.plan.rate,
        from_start=known.plan.from_start,
        filter=known.filter,
        actor=known.actor,
        note=known.note,
        created_at=instant(known.created_at),
        ended_at=None if known.ended_at is None else instant(known.ended_at),
        closed_at=None if known.closed_at is None else instant(known.closed_at),
    )


def _skipped(rows: Sequence[replay_sql.SkippedLetter]) -> list[tuple[int, Obstacle]]:
    return msgspec.convert([(letter, why) for letter, *why in rows], list[tuple[int, Obstacle]])


def _first_skipped(
    store: Reader, replay: int, kinds: Sequence[str], named: Sequence[tuple[int, Obstacle]]
) -> dict[str, list[tuple[int, Obstacle]]]:
    """Return the first letters for each kind of obstacle; those that are not among the listed ones are queried."""
    first = {kind: [each for each in named if each[1].kind == kind][:FIRST_MAX] for kind in kinds}
    return {
        kind: known
        or _skipped(store.query(replay_sql.skipped_for(replay=replay, kind=kind, limit=FIRST_MAX)))
        for kind, known in first.items()
    }


def waits_for(store: Reader, replay: Replay, counts: Counts) -> str | None:
    """Return what a replay waits for; None if it has ended, or waits for nothing."""
    if replay.ended_at is not None:
        return None
    if replay.status in {"paused", "stopped"}:
        because = "" if replay.reason is None else f": {replay.reason}"
        return f"an operator to resume or cancel it{because}{_pause_reason(store, replay)}"
    if not any(replay.pipeline in each.pipelines for each in workers(store) if each.is_live):
        return f"a worker that serves {replay.pipeline}"
    if replay.status != "running":
        return "its letters to be marked" if replay.status == "marking" else "its letters to be unmarked"
    blocked = _blocked_by(store, replay.pipeline) if counts.replaying else None
    # Of these counts: what its driver last waited for may have ended since.
    now = CURRENT.get().clock.wall()
    turn = next_turn(replay.plan, counts, replay.pardoned, next_at=replay.next_at, now=now)
    return blocked or (turn.reason if isinstance(turn, Wait) else None)


def _pause_reason(store: Reader, replay: Replay) -> str:
    """Return the reason given for a pause, in parentheses."""
    rows = store.query(replay_sql.last_pause_of(replay=replay.id)) if replay.status == "paused" else []
    return f" ({rows[0]})" if rows and rows[0] else ""


def _blocked_by(store: Reader, pipeline: str) -> str | None:
    """Return what keeps the jobs of a pipeline from running."""
    if store.query(replay_sql.is_pipeline_paused(pipeline=pipeline))[0]:
        return f"an operator to resume the pipeline: redrive pipeline resume {pipeline}"
    held = store.query(replay_sql.held_of_pipeline(pipeline=pipeline))[0]
    return f"{held} jobs of {pipeline} that are held" if held else None


def _seconds_left(store: Reader, replay: Replay, counts: Counts) -> float | None:
    if replay.status != "running" or not counts.waiting + counts.replaying:
        return None
    recent = replay_sql.last_ended_of(replay=replay.id, limit=SAMPLE_MAX)
    ended_at = store.query(recent) if replay.plan.rate is None else []
    return seconds_left(replay.plan, counts, ended_at, now=CURRENT.get().clock.wall())
