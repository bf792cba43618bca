# SPDX-License-Identifier: Apache-2.0
"""A dry run of a replay: every obstacle and notice, letter by letter and summed up. Changes nothing.

With the code of the pipeline, values are decoded against the present types; without it, only what the store knows is checked, and
the result lists the pipelines whose values were not decoded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Final

from redrive.core.lifecycle import LetterState
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.replay.filter import FREE, LetterFilter
from redrive.engine.replay.release import Candidate, Obstacle, batch_of, by_name, obstacles_to, start_value
from redrive.engine.replay.rules import recorded, rules_of
from redrive.ops.breakers import breakers
from redrive.ops.letters.details import kept_edits
from redrive.ops.letters.freeze import freeze, frozen_steps
from redrive.store.protocol import Store
from redrive.store.records import Part
from redrive.store.statements import letters as letter_sql
from redrive.store.statements import release as release_sql
from redrive.store.statements import replays as replay_sql

PAGE: Final = 1_000
LISTED_MAX: Final = 100
"""Letters that are listed one by one; all are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was found about one letter."""

    letter: int
    job: int
    kind: str
    text: str
    is_obstacle: bool
    """False for a notice, which stops nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """The obstacles to a replay of some letters, and notices."""

    letters: int
    able: int
    """How many have no obstacle."""
    obstacles: dict[str, int]
    """How many letters have which kind of obstacle; one that has several is counted under each."""
    notices: dict[str, int]
    """How many letters have which kind of notice."""
    findings: Sequence[Finding]
    """Everything that was found about the first letters with an obstacle or a notice."""
    unlisted: int
    """How many more letters have an obstacle or a notice."""
    unchecked: Sequence[str]
    """Pipelines whose code was not given, so that no value was decoded."""

    @property
    def is_fine(self) -> bool:
        """Whether every letter could be replayed."""
        return self.able == self.letters


def validate(
    store: Store, which: LetterFilter, *, pipelines: Iterable[Pipeline] = (), from_start: bool = False
) -> Validation:
    """Check every letter a replay would take now, those that are replaying already, and all that are given by id."""
    check = _Check(store, pipelines, from_start=from_start, is_named=which.ids is not None)
    letters = able = affected = 0
    obstacles: Counter[str] = Counter()
    notices: Counter[str] = Counter()
    listed: list[Finding] = []
    for page in frozen_steps(store, freeze(store, which), step=PAGE):
        for found in check.findings(page):
            # Each kind counts once for a letter.
            kinds = list(dict.fromkeys((each.kind, each.is_obstacle) for each in found))
            against = [kind for kind, is_obstacle in kinds if is_obstacle]
            obstacles.update(against)
            notices.update(kind for kind, is_obstacle in kinds if not is_obstacle)
            letters += 1
            able += not against
            affected += bool(found)
            if affected <= LISTED_MAX:
                listed += found
    return Validation(
        letters=letters,
        able=able,
        obstacles=dict(obstacles.most_common()),
        notices=dict(notices.most_common()),
        findings=listed,
        unlisted=max(affected - LISTED_MAX, 0),
        unchecked=sorted(check.unchecked),
    )


def ignored_edit(store: Store, candidate: Candidate) -> Part | None:
    """Return the part that was edited last, if a replay will not start with it; None otherwise."""
    made = store.query(letter_sql.edits_of_letter(letter=candidate.letter))
    if not made or made[-1].id == candidate.edit:
        return None
    part = made[-1].part
    past = kept_edits(store, candidate.job, candidate.letter, part)
    # Going back to the original changes nothing.
    return None if past and past[-1].after == past[0].before else part


def unused_edits(store: Store, which: LetterFilter, *, from_start: bool) -> int:
    """Count the letters a replay would take now and whose last edit it would ignore; changes nothing."""
    # Most installations have no edits at all, which takes no look at a single letter.
    if not batch_of(store.query(release_sql.replay_candidates(ids=[], from_start=from_start))).last_edit:
        return 0
    found = 0
    for page in frozen_steps(store, freeze(store, which), step=PAGE):
        batch = batch_of(store.query(release_sql.replay_candidates(ids=page, from_start=from_start)))
        free = [each for each in batch.candidates if each.state in FREE]
        found += sum(ignored_edit(store, each) is not None for each in free)
    return found


def lost_stage(candidate: Candidate, stages: Sequence[str]) -> Obstacle | None:
    """Return the obstacle that the last worker that was started does not have the stage of a job.

    For use without the code of the pipeline. None if `stages` is empty, because nobody has used the pipeline here.
    """
    if not stages or candidate.stage in stages:
        return None
    return Obstacle("stage", stage=candidate.stage, detail=f"now it has {', '.join(stages)}")


class _Check:
    """Finds the obstacles to a replay, letter by letter."""

    def __init__(
        self, store: Store, pipelines: Iterable[Pipeline], *, from_start: bool, is_named: bool
    ) -> None:
        self._is_named = is_named
        self._store = store
        self._pipelines = by_name(pipelines)
        self._from_start = from_start
        self._open = {each.name: each.phase for each in breakers(store) if each.phase != "closed"}
        self._rules_of = cache(partial(rules_of, store))
        self._recorded = cache(partial(recorded, store))
        self._keys: set[tuple[str, str]] = set()
        self.unchecked: set[str] = set()
        """Pipelines whose code was not given."""

    def findings(self, letters: list[int]) -> Iterator[list[Finding]]:
        """Yield what was found about each of some letters; nothing about those that no replay would take."""
        rows = self._store.query(replay_sql.last_configs(ids=letters))
        configs = {row.id: row.config for row in rows}
        taken = {row.id: row.replay_id for row in rows if row.replay_id is not None}
        batch = batch_of(
            self._store.query(release_sql.replay_candidates(ids=letters, from_start=self._from_start))
        )
        for candidate in batch.candidates:
            is_over = candidate.state not in FREE and candidate.state != LetterState.REPLAYING
            if is_over and not self._is_named:
                continue
            code = self._pipelines.get(candidate.pipeline)
            obstacles = self._obstacles_of(candidate, code, taken.get(candidate.letter))
            found = [(*each, True) for each in obstacles]
            notices = self._notices_of(candidate, code, configs.get(candidate.letter))
            found += [(*each, False) for each in notices]
            if batch.last_edit and candidate.state in FREE:
                found += [(*each, False) for each in self._ignored_edit(candidate)]
            yield [
                Finding(
                    letter=candidate.letter, job=candidate.job, kind=kind, text=text, is_obstacle=is_obstacle
                )
                for kind, text, is_obstacle in found
            ]

    def _obstacles_of(
        self, candidate: Candidate, code: Pipeline | None, replay: object
    ) -> Iterator[tuple[str, str]]:
        if candidate.state in letter_sql.PAST:
            # Its round is over; anything else would be about a later one.
            yield "state", f"it is {candidate.state}"
            return
        if code is None:
            self.unchecked.add(candidate.pipeline)
        found = list(self._own_obstacles(candidate, code))
        if replay is not None:
            found.append(("taken", f"it belongs to replay {replay}"))
        yield from found
        if candidate.key is not None:
            mark = (candidate.pipeline, candidate.key)
            if mark in self._keys:
                yield "key", f"an earlier letter of this replay has the same key {candidate.key!r}"
            elif all(kind == "evidence" for kind, _ in found):
                # A letter that stays behind takes no key from others; evidence must be there before anything is released.
                self._keys.add(mark)

    def _own_obstacles(self, candidate: Candidate, code: Pipeline | None) -> Iterator[tuple[str, str]]:
        if candidate.state == LetterState.DISCARDED:
            yield "state", f"it is discarded; redrive dlq restore {candidate.letter} reopens it"
        is_unproved = candidate.state not in {LetterState.READY, LetterState.REPLAYING}
        if is_unproved and self._rules_of(candidate.pipeline).evidence == "required":
            yield "evidence", "there is no evidence that its cause is fixed"
        value = start_value(self._store, candidate)
        for obstacle in obstacles_to(candidate, value, code, from_start=self._from_start):
            yield obstacle.kind, obstacle.text
        if code is None and not self._from_start:
            lost = lost_stage(candidate, self._recorded(candidate.pipeline).stages)
            if lost is not None:
                yield lost.kind, lost.text

    def _notices_of(
        self, candidate: Candidate, code: Pipeline | None, config: object
    ) -> Iterator[tuple[str, str]]:
        stages = {} if code is None else {stage.name: stage for stage in code.stages}
        stage = stages.get(candidate.stage)
        if stage is None or candidate.state in letter_sql.PAST:
            return
        if config is not None and stage.config != config:
            yield "changed", f"the settings of the stage {stage.name} have changed since it failed"
        if stage.breaker is not None and stage.breaker.name in self._open:
            state = self._open[stage.breaker.name]
            yield "breaker", f"the breaker {stage.breaker.name} is {state}: it would be held"

    def _ignored_edit(self, candidate: Candidate) -> Iterator[tuple[str, str]]:
        part = ignored_edit(self._store, candidate)
        if part is not None:
            start, other = ("the payload", "payload") if part == "input" else ("the stage input", "input")
            command = f"redrive dlq edit {candidate.letter} --part {other}"
            yield "edit", f"its edited {part} will be ignored: this replay starts from {start} ({command})"
