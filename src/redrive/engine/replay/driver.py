# SPDX-License-Identifier: Apache-2.0
"""The driver of replays: the part of a worker that marks their letters, releases them step by step, and notices when to stop.

One worker drives a replay at a time, under a lease in the replay's own row; every change is made only while that lease and the
replay's status are unchanged, so that a pause, a cancellation or another driver is never overrun. A letter that was released
cannot be released again by any driver: its state prevents it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from redrive.core.lifecycle import LetterState
from redrive.core.replay import Finish, Release, Stop, Wait, next_turn
from redrive.core.stop_reason import StopReason, encode_stop_reason, stop_sentence
from redrive.engine.clock import Clock
from redrive.engine.outage import Outage
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.replay.filter import FREE, LATEST, LetterFilter
from redrive.engine.replay.record import Replay, ReplayOptions, counts_of, options_of, replay_of
from redrive.engine.replay.release import (
    Batch,
    Candidate,
    Obstacle,
    batch_of,
    by_distinct_key,
    by_name,
    first_lane_of,
    obstacle_to,
    release_steps,
    start_value,
)
from redrive.engine.worker.threads import AskStore
from redrive.errors import StoreError, StoreUnavailableError
from redrive.redaction.process import redact
from redrive.store.protocol import Store
from redrive.store.records import Step
from redrive.store.statements import operations as operation_sql
from redrive.store.statements import release as release_sql
from redrive.store.statements import replays as replay_sql
from redrive.store.statements import triage as triage_sql
from redrive.store.steps import lease_time

logger = logging.getLogger("redrive.replays")

DRIVE_SECONDS: Final = 30.0
"""How long a worker that no longer renews its lease keeps a replay to itself."""
LOOK_SECONDS: Final = 1.0
BUSY_SECONDS: Final = 0.02
WAIT_SECONDS: Final = 0.25
"""Between two looks: without a replay; at first after a release; and at most while jobs run. Each look that finds nothing doubles
the pause."""
MARK_WINDOW: Final = 5_000
"""Ids that are looked at in one step of marking."""
RELEASE_MAX: Final = 1_000
"""Letters that are released in one transaction."""


class ReplayDriver:
    """Drives the replays of a worker's pipelines."""

    def __init__(
        self,
        store: Store,
        pipelines: Sequence[Pipeline],
        clock: Clock,
        *,
        name: Callable[[], str],
        ask_store: AskStore,
        on_news: Callable[[], None] | None = None,
    ) -> None:
        self._store = store
        self._pipelines = by_name(pipelines)
        self._clock = clock
        self._name = name
        self._ask_store = ask_store
        self._patience = BUSY_SECONDS
        self._on_news = on_news
        self._is_news = False

    async def run(self) -> None:
        """Drive replays until cancelled."""
        outage = Outage(logger)
        while True:
            wait = LOOK_SECONDS
            try:
                wait = await self._ask_store(self.drive)
                outage.answered()
            except StoreError as error:
                outage.failed("replays do not continue for now: %s", error)
            except Exception as error:  # noqa: BLE001 - one failed look must not end the loop.
                logger.warning("replays do not continue for now: %s", redact(repr(error)))
            if self._is_news and self._on_news is not None:
                self._is_news = False
                self._on_news()
            await self._clock.asleep(wait)

    def drive(self) -> float:
        """Take one turn in every replay we have the lease for; return in how many seconds to look again."""
        waits = [LOOK_SECONDS]
        for row in self._store.query(replay_sql.live_replays()):
            if row.pipeline not in self._pipelines:
                continue
            try:
                replay = replay_of(row)
                if self._take(replay):
                    waits.append(self._turn(replay, row))
            except StoreUnavailableError:
                raise
            except Exception as error:  # noqa: BLE001 - one replay must not keep the others waiting.
                # Mostly another process was faster with a key or a letter; the next turn reads the present state.
                logger.warning("replay %s will retry its turn: %s", row.id, redact(repr(error)))
        return min(waits)

    def _take(self, replay: Replay) -> bool:
        """Take, or keep, the lease on a replay."""
        name, now = self._name(), lease_time(self._store, self._clock.wall())
        if replay.driver == name and replay.driven_until - now > DRIVE_SECONDS / 2:
            return True
        step = replay_sql.drive_replay(
            driver=name, until=now + DRIVE_SECONDS, replay=replay.id, now=now
        ).touching(1)
        return self._store.apply(step) is not None

    def _turn(self, replay: Replay, row: replay_sql.StoredReplay) -> float:
        match replay.status:
            case "marking":
                return self._mark(replay, options_of(row))
            case "cancelling":
                unmark(self._store, replay.id, self._clock.wall())
                return BUSY_SECONDS
            case _:
                return self._release(replay)

    def _mark(self, replay: Replay, options: ReplayOptions) -> float:
        """Mark the letters of the next window as this replay's."""
        end = min(replay.marked_to + MARK_WINDOW, replay.cutoff)
        self._store.apply(
            replay_sql.set_marked_to(
                marked_to=end, replay=replay.id, driver=self._name(), before=replay.marked_to
            ).touching(1),
            *mark_steps(
                replay.id,
                (replay.marked_to, end),
                replay.filter,
                is_evidence_optional=options.is_evidence_optional,
                moves=replay.moves,
            ),
        )
        return 0.0

    def _release(self, replay: Replay) -> float:
        counts = counts_of(self._store, replay.id)
        now = self._clock.wall()
        turn = next_turn(replay.plan, counts, replay.pardoned, next_at=replay.next_at, now=now)
        match turn:
            case Stop(reason):
                self._stop(replay, reason, now)
            case Finish():
                self._store.apply(replay_sql.finish_replay(now=now, replay=replay.id, driver=self._name()))
                self._is_news = True
            case Wait(until=until):
                self._patience = min(2 * self._patience, WAIT_SECONDS)
                return self._patience if until is None else min(max(until - now, 0.0), LOOK_SECONDS)
            case Release():
                if self._release_next(replay, turn, now):
                    self._patience = BUSY_SECONDS
                    return 0.0
                # The counters have waiting letters, but none is found: `redrive doctor --deep` finds out why.
                self._patience = min(2 * self._patience, WAIT_SECONDS)
                return self._patience
        return BUSY_SECONDS

    def _stop(self, replay: Replay, reason: StopReason, now: float) -> None:
        """Stop a replay, with its line of the operator log, in one transaction."""
        sentence, stored = stop_sentence(reason), encode_stop_reason(reason)
        act = operation_sql.Act(now, redact(self._name()), "stop", "replay", str(replay.id), stored)
        answer = self._store.apply(
            replay_sql.log_replay(act=act, after="stopped", replay=replay.id),
            replay_sql.stop_replay(reason=stored, replay=replay.id, driver=self._name()).touching(1),
        )
        if answer is not None:
            logger.warning("replay %s stopped itself: %s", replay.id, sentence)

    def _release_next(self, replay: Replay, turn: Release, now: float) -> bool:
        """Release some letters, and skip those that cannot be released; return whether there were any."""
        limit = min(turn.letters, RELEASE_MAX)
        pipeline = self._pipelines[replay.pipeline]
        from_start = replay.plan.from_start
        batch = batch_of(
            self._store.query(release_sql.replay_batch(replay=replay.id, from_start=from_start, limit=limit))
        )
        able: list[Candidate] = []
        skips: list[Step] = []
        for candidate in batch.candidates:
            value = start_value(self._store, candidate)
            obstacle = obstacle_to(candidate, value, pipeline, from_start=from_start)
            if obstacle is None:
                able.append(candidate)
            else:
                skips += skip_steps(replay.id, candidate.letter, obstacle, now)
        able = by_distinct_key(able)
        first = first_lane_of(self._store, pipeline, pipeline.name) if from_start else None
        chosen = Batch(able, batch.last_edit)
        released = (
            release_steps(self._store, chosen, replay=replay.id, first_lane=first, now=now) if able else []
        )
        next_at = _next_at(turn, replay, len(able), now)
        fence = replay_sql.set_next_release(next_at=next_at, replay=replay.id, driver=self._name()).touching(
            1
        )
        self._is_news |= self._store.apply(fence, *skips, *released) is not None
        return bool(batch.candidates)


def mark_steps(
    replay: int,
    window: tuple[int, int],
    which: LetterFilter,
    *,
    is_evidence_optional: bool,
    moves: int = LATEST,
) -> list[Step]:
    """Return the steps that mark and count a replay's letters in a window of ids; none that came into the set after `moves`."""
    states = FREE if is_evidence_optional else (LetterState.READY,)
    after, last = window
    mark = replay_sql.mark_letters(
        which=which.terms(states),
        after=after,
        last=last,
        replay=replay,
        freed=moves,
        moved=LATEST if which.state is None else moves,
    )
    return [mark, replay_sql.count_marked(replay=replay, after=after, last=last)]


def unmark(store: Store, replay: int, now: float) -> bool:
    """Unmark some letters of a replay that is being cancelled; return whether it has ended with that."""
    answer = store.apply(
        triage_sql.next_move(),
        replay_sql.unmark_letters(replay=replay, limit=MARK_WINDOW),
        replay_sql.end_cancelled(now=now, replay=replay),
    )
    return answer is not None and len(answer[1]) < MARK_WINDOW


def skip_steps(replay: int, letter: int, obstacle: Obstacle, now: float) -> list[Step]:
    """Return the steps that skip a letter of a replay, with the obstacle."""
    return [
        triage_sql.next_move(),
        replay_sql.skip_letter(
            replay=replay,
            letter=letter,
            kind=obstacle.kind,
            job=obstacle.job,
            stage=obstacle.stage,
            detail=obstacle.detail,
            now=now,
        ),
        replay_sql.drop_skipped(letter=letter, replay=replay),
    ]


def _next_at(turn: Release, replay: Replay, released: int, now: float) -> float:
    """Return when the rate allows the next release; skipped letters do not count."""
    rate = replay.plan.rate
    return now if rate is None else turn.next_at - (turn.letters - released) / rate
