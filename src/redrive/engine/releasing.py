# SPDX-License-Identifier: Apache-2.0
"""Sending failed jobs back into their pipeline: what stands in the way of each, and the steps that release those that may go.

A release is one transaction: the letter becomes `replaying` and its job `queued`, in a new round, at the stage that failed with
that stage's stored input, or at the first one with the payload when a full restart is asked for. Whatever edit was made to the part
it starts with is what it starts with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

import msgspec

from redrive.core.lifecycle import JobState
from redrive.engine.codec import storable
from redrive.engine.letters import MESSAGE_MAX, literals_in
from redrive.engine.pipeline import Pipeline
from redrive.errors import SerializationError
from redrive.redaction import redact
from redrive.store.protocol import INLINE_MAX, JobId, LaneId, Row, Step, Store

_BATCH: Final = msgspec.json.Decoder(list[list[object]]).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A letter whose job is to run again, with what is known about both."""

    letter: int
    job: JobId
    state: str
    lane: LaneId
    pipeline: str
    stage: str
    status: str
    key: str | None
    dispatch: int
    is_erased: bool
    twin: int | None
    """The job that has the same key and is queued, processing or complete."""
    edited: bytes | None
    value: bytes | None

    @property
    def start_value(self) -> bytes | None:
        """What the job would start with."""
        return self.value if self.edited is None else self.edited


class Obstacle(msgspec.Struct, frozen=True):
    """Why a letter cannot be replayed: in a word, and in full."""

    kind: str
    told: str


def candidates_in(text: object) -> list[Candidate]:
    """Return the candidates of a batch that came as one text; a value in it is the text of its JSON."""
    return [
        candidate_of((*row[:-2], _encoded(row[-2]), _encoded(row[-1]))) for row in _BATCH(cast("str", text))
    ]


def _encoded(text: object) -> bytes | None:
    return None if text is None else str(text).encode()


def candidate_of(row: Row) -> Candidate:
    """Return a row of the store as the candidate it is."""
    letter, job, state, lane, pipeline, stage, status, key, dispatch, erased_at, twin, edited, value = row
    return Candidate(
        letter=cast("int", letter),
        job=JobId(cast("int", job)),
        state=str(state),
        lane=LaneId(cast("int", lane)),
        pipeline=str(pipeline),
        stage=str(stage),
        status=str(status),
        key=cast("str | None", key),
        dispatch=cast("int", dispatch),
        is_erased=erased_at is not None,
        twin=cast("int | None", twin),
        edited=cast("bytes | None", edited),
        value=cast("bytes | None", value),
    )


def obstacle_to(candidate: Candidate, pipeline: Pipeline | None, *, from_start: bool) -> Obstacle | None:
    """Say what stands in the way of a replay; None when nothing does. Without the code, types cannot be looked at."""
    if candidate.status != JobState.FAILED:
        return Obstacle("running", f"its job is {candidate.status}")
    if candidate.start_value is None or (candidate.is_erased and candidate.edited is None):
        return Obstacle("erased", "the values of its job were erased")
    if candidate.twin is not None:
        return Obstacle("key", f"job {candidate.twin} has its key {candidate.key!r} by now")
    return None if pipeline is None else _mismatch(candidate, pipeline, candidate.start_value, from_start)


def _mismatch(
    candidate: Candidate,
    pipeline: Pipeline,
    value: bytes,
    from_start: bool,  # noqa: FBT001 - the same word all over.
) -> Obstacle | None:
    """Say how a value and the code do not fit each other any more."""
    named = [stage for stage in pipeline.stages if stage.name == candidate.stage]
    stage = next(iter(pipeline.stages[:1] if from_start else named), None)
    if stage is None:
        return Obstacle("stage", f"the pipeline has no stage {candidate.stage!r} any more")
    try:
        stage.input.check(value)
    except SerializationError as error:
        # What a type refuses is often quoted, and values must not come out this way.
        problem = redact(storable(error.problem), payload=literals_in(value))[:MESSAGE_MAX]
        return Obstacle("type", f"its value does not fit the stage {stage.name}: {problem}")
    return None


def release_steps(
    candidates: Sequence[Candidate], *, campaign: int | None, first_lane: LaneId | None, now: float
) -> list[Step]:
    """Return the steps that release these letters, whole or not at all; with `first_lane`, as full restarts."""
    letters = msgspec.json.encode([each.letter for each in candidates]).decode()
    jobs = msgspec.json.encode([each.job for each in candidates]).decode()
    steps = [
        Step("take_letters", (letters, campaign), rows=len(candidates)),
        Step("replay_jobs", (jobs, now, first_lane), rows=len(candidates)),
    ]
    for candidate in candidates:
        if candidate.edited is not None:
            steps += _edited(candidate, candidate.edited)
    return steps


def by_distinct_key(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return candidates no two of which have the same key: of two that do, only the first can go."""
    seen: set[tuple[str, str]] = set()
    kept: list[Candidate] = []
    for candidate in candidates:
        if candidate.key is not None:
            if (candidate.pipeline, candidate.key) in seen:
                continue
            seen.add((candidate.pipeline, candidate.key))
        kept.append(candidate)
    return kept


def first_lane_of(store: Store, pipeline: Pipeline | None, name: str) -> LaneId:
    """Return the lane of a pipeline's first stage; without its code, of the one that was first when it was last seen."""
    if pipeline is not None:
        return store.lanes(pipeline.name, [stage.name for stage in pipeline.stages])[0]
    rows = [row for row in store.query("lanes") if row[1] == name]
    return LaneId(cast("int", min(rows, key=lambda row: cast("int", row[3]))[0]))


def by_name(pipelines: Iterable[Pipeline]) -> Mapping[str, Pipeline]:
    """Return pipelines by their names."""
    return {pipeline.name: pipeline for pipeline in pipelines}


def _edited(candidate: Candidate, value: bytes) -> list[Step]:
    """Put an edited value in the place of the original, which stays on record with the edit."""
    if len(value) <= INLINE_MAX:
        return [Step("put_input", (value, 0, candidate.job), rows=1)]
    # The failed dispatch had no output of its own, so that its place is free.
    return [
        Step("insert_value", (candidate.job, candidate.dispatch, value)),
        Step("put_input", (None, candidate.dispatch, candidate.job), rows=1),
    ]
