# SPDX-License-Identifier: Apache-2.0
"""Sending failed jobs back into their pipeline: the obstacles to each, and the steps that release those without any.

A release is one transaction: the letter becomes `replaying` and its job `queued`, in a new round, at the stage that failed with
that stage's stored input, or at the first one with the payload for a full restart. The last edit of the part it starts
with replaces the stored value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from redrive.core.lifecycle import JobState
from redrive.engine.pipeline.codec import Codec
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.errors import SerializationError
from redrive.store.protocol import Store
from redrive.store.records import INLINE_MAX, JobId, LaneId, Step
from redrive.store.statements import jobs as job_sql
from redrive.store.statements import release as release_sql
from redrive.store.statements import workers as worker_sql


class Candidate(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A letter whose job is to run again, with what is known about both, in the order of the columns."""

    letter: int
    job: JobId
    state: str
    lane: LaneId
    pipeline: str
    stage: str
    status: str
    key: str | None
    dispatch: int
    erased_at: float | None
    key_owner: int | None
    """The job that has the same key and is queued, processing or complete."""
    edit: int | None
    """The edit whose value it starts with."""
    beside: int | None
    """The dispatch under which a large value is found."""
    value: str | None


class Batch(msgspec.Struct, frozen=True):
    """Candidates as they were at one moment."""

    candidates: list[Candidate]
    last_edit: int
    """The last edit it knows of; later ones are not in it."""


_FAILED: Final = JobState.FAILED.value
_CANDIDATES: Final = msgspec.json.Decoder(list[Candidate]).decode


def batch_of(rows: Sequence[release_sql.CandidateRows]) -> Batch:
    """Return a batch, which the store returns as one text; a value in it that is none is read as far as it is one."""
    return Batch(_CANDIDATES(rows[0].candidates.decode(errors="replace")), rows[0].last_edit)


def start_value(store: Store, candidate: Candidate) -> bytes | None:
    """Return the value the job would start with, as JSON; None if it was erased."""
    rows: Sequence[bytes | None]
    if candidate.edit is not None:
        rows = store.query(release_sql.edited_value(edit=candidate.edit))
    elif candidate.beside is not None:
        rows = store.query(worker_sql.large_value(job=candidate.job, dispatch=candidate.beside))
    elif candidate.erased_at is not None:
        return None
    else:
        return None if candidate.value is None else candidate.value.encode()
    return rows[0] if rows else None


_REASONS: Final = {
    "running": "its job has not failed",
    "erased": "its job has no values: they were erased for good, or left out of its export (then dlq edit can supply one)",
    "key": "a newer job has its key",
    "stage": "the pipeline no longer has its stage",
    "type": "its value does not fit its stage",
    "discarded": "it was discarded meanwhile",
    "old": "an older version skipped it",
}


class Obstacle(msgspec.Struct, frozen=True, array_like=True):
    """Why a letter cannot be replayed, or was skipped, as it is stored. Which of the other fields are set depends on the kind."""

    kind: str
    job: int | None = None
    """The job that has its key."""
    stage: str | None = None
    """The stage that is gone, or that its value does not fit."""
    detail: str | None = None
    """The status of its job; the stages there are instead; how its value does not fit; or a reason that an older version wrote."""

    @property
    def note(self) -> str:
        """What is true of this letter alone, as text; empty if that is nothing."""
        job = None if self.job is None else f"job {self.job}"
        return ": ".join(each for each in (job, self.stage, self.detail) if each is not None)

    @property
    def text(self) -> str:
        """The reason in full."""
        return f"{reason_text(self.kind)} ({self.note})" if self.note else reason_text(self.kind)


def reason_text(kind: str) -> str:
    """Return what is true of all letters with one kind of obstacle."""
    return _REASONS.get(kind, kind)


def obstacle_to(
    candidate: Candidate, value: bytes | None, pipeline: Pipeline | None, *, from_start: bool
) -> Obstacle | None:
    """Return the first obstacle to a replay that starts with `value`; None if there is none."""
    return next(obstacles_to(candidate, value, pipeline, from_start=from_start), None)


def obstacles_to(
    candidate: Candidate, value: bytes | None, pipeline: Pipeline | None, *, from_start: bool
) -> Iterator[Obstacle]:
    """Yield all obstacles to a replay that starts with `value`; without the code of the pipeline, types are not checked.

    The most expensive check comes last, for callers that need the first obstacle only.
    """
    if candidate.status != _FAILED:
        yield Obstacle("running", detail=candidate.status)
    if value is None:
        yield Obstacle("erased")
    if candidate.key_owner is not None and candidate.key_owner != candidate.job:
        yield Obstacle("key", job=candidate.key_owner)
    if pipeline is None:
        return
    stage = next((each for each in pipeline.stages if from_start or each.name == candidate.stage), None)
    if stage is None:
        yield Obstacle("stage", stage=candidate.stage)
    elif value is not None and (problem := misfit(stage.input, value)) is not None:
        yield Obstacle("type", stage=stage.name, detail=problem)


def misfit(codec: Codec, value: bytes) -> str | None:
    """Return where and how a value does not fit its type; None if it fits."""
    try:
        codec.check(value)
    except SerializationError as error:
        return error.problem
    return None


def release_steps(
    store: Store, batch: Batch, *, replay: int | None, first_lane: LaneId | None, now: float
) -> list[Step]:
    """Return the steps that release these letters, whole or not at all; with `first_lane`, as full restarts."""
    candidates = batch.candidates
    letters = [each.letter for each in candidates]
    jobs: list[int] = [each.job for each in candidates]
    steps: list[Step] = [
        release_sql.count_taken(ids=letters, replay=replay),
        # Before the letters: a notice of their change has the time from which their jobs are queued.
        release_sql.replay_jobs(ids=jobs, now=now, first_lane=first_lane).touching(len(candidates)),
        release_sql.take_letters(ids=letters, replay=replay, last_edit=batch.last_edit).touching(
            len(candidates)
        ),
    ]
    for candidate in candidates:
        if candidate.edit is not None and (value := start_value(store, candidate)) is not None:
            steps += _edited(candidate, value)
    return steps


def by_distinct_key(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return candidates of one pipeline with distinct keys: of two with the same key, only the first can be released."""
    kept: dict[str | int, Candidate] = {}
    for candidate in candidates:
        kept.setdefault(candidate.letter if candidate.key is None else candidate.key, candidate)
    return list(kept.values())


def first_lane_of(store: Store, pipeline: Pipeline | None, name: str) -> LaneId | None:
    """Return the lane of a pipeline's first stage; without its code, None if the store has several that could be it."""
    if pipeline is not None:
        return store.lanes(pipeline.name, [stage.name for stage in pipeline.stages])[0]
    lanes = [lane for lane in store.query(worker_sql.lanes()) if lane.pipeline == name]
    first = min(lane.position for lane in lanes)
    found = [lane for lane in lanes if lane.position == first]
    return LaneId(found[0].id) if len(found) == 1 else None


def by_name(pipelines: Iterable[Pipeline]) -> Mapping[str, Pipeline]:
    """Return pipelines by their names."""
    return {pipeline.name: pipeline for pipeline in pipelines}


def _edited(candidate: Candidate, value: bytes) -> list[Step]:
    """Replace the original by an edited value; the edit keeps the original."""
    if len(value) <= INLINE_MAX:
        return [release_sql.put_input(input=value, input_from=0, job=candidate.job).touching(1)]
    # The failed dispatch had no output of its own, so its place is free.
    return [
        job_sql.insert_value(job=candidate.job, dispatch=candidate.dispatch, value=value),
        release_sql.put_input(input=None, input_from=candidate.dispatch, job=candidate.job).touching(1),
    ]
