# SPDX-License-Identifier: Apache-2.0
"""A dry run of a replay: everything that would stand in its way, letter by letter and summed up. Changes nothing.

With the code of the pipeline at hand, values are decoded against the present types; without it, only what the store knows is looked
at, and the answer says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from redrive.core.lifecycle import LetterState
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.replay.filter import FREE, LetterFilter
from redrive.engine.replay.release import Candidate, Obstacle, batch_of, obstacles_to, start_value
from redrive.engine.replay.rules import rules_of, stages_of
from redrive.ops.breakers import breakers
from redrive.ops.letters.edit_history import Part, kept_edits
from redrive.ops.letters.freeze import freeze, frozen_steps
from redrive.store.protocol import Store, listed

PAGE: Final = 1_000
SHOWN: Final = 100
"""Letters that are told one by one; all are counted."""
_CLOSED: Final = frozenset({LetterState.RESOLVED, LetterState.RETURNED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """What was found about one letter."""

    letter: int
    job: int
    kind: str
    told: str
    is_obstacle: bool
    """False for what one should know and what stops nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """What a replay would meet."""

    letters: int
    able: int
    """How many nothing stands in the way of."""
    obstacles: dict[str, int]
    """What stands in the way, and of how many letters; one that has several is counted under each."""
    notices: dict[str, int]
    """What one should know, and of how many letters it holds."""
    remarks: Sequence[Remark]
    """Everything that was found about the first letters there is something to say about."""
    untold: int
    """How many more letters there is something to say about."""
    unchecked: Sequence[str]
    """Pipelines whose code was not at hand, so that no value was decoded."""

    @property
    def is_fine(self) -> bool:
        """Whether every letter could be replayed."""
        return self.able == self.letters


def validate(
    store: Store, which: LetterFilter, *, pipelines: Mapping[str, Pipeline], from_start: bool = False
) -> Validation:
    """Look at every letter a replay would take now, those that are on their way already, and whatever is named."""
    view = _View(store, pipelines, from_start=from_start, is_named=which.ids is not None)
    for page in frozen_steps(store, freeze(store, which), step=PAGE):
        view.look_at(page)
    return view.answer()


def passed_over(store: Store, candidate: Candidate) -> Part | None:
    """Return the part that was edited last and that a replay will not start with; None when it will, or nothing was edited."""
    made = store.query("edits_of_letter", candidate.letter)
    if not made or made[-1][0] == candidate.edit:
        return None
    part = cast("Part", made[-1][1])
    past = kept_edits(store, candidate.job, candidate.letter, part)
    # Who went back to the original misses nothing.
    return None if past and past[-1].after == past[0].before else part


def unused_edits(store: Store, which: LetterFilter, *, from_start: bool) -> int:
    """Count the letters a replay would take now whose last edit it would not start with; changes nothing."""
    # Most installations have no edit at all, which is known without a look at a single letter.
    if not batch_of(store.query("replay_candidates", "[]", int(from_start))).last_edit:
        return 0
    found = 0
    for page in frozen_steps(store, freeze(store, which), step=PAGE):
        named = listed(page)
        batch = batch_of(store.query("replay_candidates", named, int(from_start)))
        free = [each for each in batch.candidates if each.state in FREE]
        found += sum(passed_over(store, each) is not None for each in free)
    return found


def lost_stage(candidate: Candidate, stages: Sequence[str]) -> Obstacle | None:
    """Say that nobody would serve the stage a job goes back to: the last worker that was started has other ones.

    Without the code at hand this is all that can be said; nothing is when `stages` is empty, because nobody has used it here.
    """
    if not stages or candidate.stage in stages:
        return None
    now = ", ".join(stages)
    return Obstacle("stage", f"the pipeline has no stage {candidate.stage!r} any more, but {now}")


class _View:
    """What has been found so far."""

    def __init__(
        self, store: Store, pipelines: Mapping[str, Pipeline], *, from_start: bool, is_named: bool
    ) -> None:
        self._is_named = is_named
        self._store = store
        self._pipelines = pipelines
        self._from_start = from_start
        self._open = {each.name: each.phase for each in breakers(store) if each.phase != "closed"}
        self._strict: dict[str, bool] = {}
        self._stages: dict[str, tuple[str, ...]] = {}
        self._keys: set[tuple[str, str]] = set()
        self._letters = 0
        self._able = 0
        self._obstacles: Counter[str] = Counter()
        self._notices: Counter[str] = Counter()
        self._remarks: list[Remark] = []
        self._told = 0
        self._untold = 0
        self._unchecked: set[str] = set()

    def look_at(self, letters: Sequence[int]) -> None:
        """Look at some letters."""
        named = listed(letters)
        rows = self._store.query("last_configs", named)
        configs = {row[0]: row[1] for row in rows}
        taken = {row[0]: row[2] for row in rows if row[2] is not None}
        batch = batch_of(self._store.query("replay_candidates", named, int(self._from_start)))
        for candidate in batch.candidates:
            is_over = candidate.state not in FREE and candidate.state != LetterState.REPLAYING
            if is_over and not self._is_named:
                continue
            self._letters += 1
            code = self._pipelines.get(candidate.pipeline)
            found = list(self._obstacles_of(candidate, code, taken.get(candidate.letter)))
            self._able += not found
            notices = list(self._notices_of(candidate, code, configs.get(candidate.letter)))
            if batch.last_edit and candidate.state in FREE:
                notices += self._passed_over(candidate)
            self._note(candidate, found, notices)

    def answer(self) -> Validation:
        """Return what was found."""
        return Validation(
            letters=self._letters,
            able=self._able,
            obstacles=dict(self._obstacles.most_common()),
            notices=dict(self._notices.most_common()),
            remarks=self._remarks,
            untold=self._untold,
            unchecked=sorted(self._unchecked),
        )

    def _obstacles_of(
        self, candidate: Candidate, code: Pipeline | None, replay: object
    ) -> Iterator[tuple[str, str]]:
        if candidate.state in _CLOSED:
            # Its round is over, and whatever else could be said is about a later one.
            yield "state", f"it is {candidate.state}"
            return
        if code is None:
            self._unchecked.add(candidate.pipeline)
        found = list(self._in_the_way(candidate, code))
        if replay is not None:
            found.append(("taken", f"it belongs to replay {replay}"))
        yield from found
        if candidate.key is not None:
            mark = (candidate.pipeline, candidate.key)
            if mark in self._keys:
                yield "key", f"an earlier letter of this replay has the same key {candidate.key!r}"
            elif all(kind == "evidence" for kind, _ in found):
                # One that stays behind takes no key from others; evidence has to be there before anything goes.
                self._keys.add(mark)

    def _in_the_way(self, candidate: Candidate, code: Pipeline | None) -> Iterator[tuple[str, str]]:
        """Yield what stands in the way of a letter by itself."""
        if candidate.state == LetterState.DISCARDED:
            yield "state", f"it is discarded; redrive dlq restore {candidate.letter} takes that back"
        is_unproved = candidate.state not in {LetterState.READY, LetterState.REPLAYING}
        if is_unproved and self._is_strict(candidate.pipeline):
            yield "evidence", "there is no evidence that its cause is fixed"
        value = start_value(self._store, candidate)
        for obstacle in obstacles_to(candidate, value, code, from_start=self._from_start):
            yield obstacle.kind, obstacle.told
        if code is None and not self._from_start:
            lost = lost_stage(candidate, self._stages_of(candidate.pipeline))
            if lost is not None:
                yield lost.kind, lost.told

    def _notices_of(
        self, candidate: Candidate, code: Pipeline | None, config: object
    ) -> Iterator[tuple[str, str]]:
        stages = {} if code is None else {stage.name: stage for stage in code.stages}
        stage = stages.get(candidate.stage)
        if stage is None or candidate.state in _CLOSED:
            return
        if config is not None and stage.config != config:
            yield "changed", f"the settings of the stage {stage.name} are others than when it failed"
        if stage.breaker is not None and stage.breaker.name in self._open:
            state = self._open[stage.breaker.name]
            yield "breaker", f"the breaker {stage.breaker.name} is {state}: it would be held"

    def _passed_over(self, candidate: Candidate) -> list[tuple[str, str]]:
        """Say that the last edit of a letter is not what a replay starts with."""
        part = passed_over(self._store, candidate)
        if part is None:
            return []
        mend = f"redrive dlq edit {candidate.letter} --part"
        if part == "input":
            told = f"its edited input is not used: the first stage takes the payload, which {mend} payload changes"
        else:
            told = (
                f"its edited payload is not used: the stage takes its own input, which {mend} input changes"
            )
        return [("edit", told)]

    def _note(
        self, candidate: Candidate, obstacles: Sequence[tuple[str, str]], notices: Sequence[tuple[str, str]]
    ) -> None:
        """Count what was found about a letter, each kind once, and tell all of it unless enough letters were told already."""
        self._obstacles.update(dict.fromkeys((kind for kind, _ in obstacles), 1))
        self._notices.update(dict.fromkeys((kind for kind, _ in notices), 1))
        found = [(*each, True) for each in obstacles] + [(*each, False) for each in notices]
        if not found:
            return
        if self._told == SHOWN:
            self._untold += 1
            return
        self._told += 1
        self._remarks += [
            Remark(letter=candidate.letter, job=candidate.job, kind=kind, told=told, is_obstacle=is_obstacle)
            for kind, told, is_obstacle in found
        ]

    def _stages_of(self, pipeline: str) -> tuple[str, ...]:
        if pipeline not in self._stages:
            self._stages[pipeline] = stages_of(self._store, pipeline)
        return self._stages[pipeline]

    def _is_strict(self, pipeline: str) -> bool:
        if pipeline not in self._strict:
            self._strict[pipeline] = rules_of(self._store, pipeline).evidence == "required"
        return self._strict[pipeline]
