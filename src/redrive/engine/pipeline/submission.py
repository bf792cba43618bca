# SPDX-License-Identifier: Apache-2.0
"""From a payload to a job that can be stored: encoded, checked against the first stage's type, and within bounds.

One, or many in batches. What does not fit is refused before it is stored, never later; nothing here runs a job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final, TypedDict, Unpack

import msgspec

from redrive.core.arguments import function, seconds, text
from redrive.core.budget import RunStatus
from redrive.engine.observers import trace_of_caller
from redrive.engine.pipeline.pipeline import PipelineRef
from redrive.engine.runs.runs import Runs
from redrive.engine.runtime import CURRENT
from redrive.errors import ConfigurationError, SerializationError
from redrive.store.protocol import Store
from redrive.store.records import LaneId, NewJob, RunId, SubmittedJob

PAYLOAD_MAX: Final = 16 * 1024 * 1024
"""Bytes of one payload; anything larger belongs in an object store, with its address in the payload."""
NO_LANE: Final = LaneId(0)
"""The lane of a job whose pipeline's lanes have not been looked up yet."""


class ManyOptions(TypedDict, total=False):
    """What many jobs have in common, as keyword arguments."""

    run_at: datetime | None
    delay: timedelta | float | None
    priority: int
    owner: str | None
    expires_at: datetime | None


class JobOptions(ManyOptions, total=False):
    """What a job is submitted with besides its payload, as keyword arguments."""

    key: str | None


def new_job(
    pipeline: PipelineRef, payload: object, *, lane: LaneId = NO_LANE, **options: Unpack[JobOptions]
) -> NewJob:
    """Return the job; refuse an argument that does not fit by its name."""
    return job_maker(pipeline, lane=lane, **options)(payload)


def job_maker(
    pipeline: PipelineRef, *, lane: LaneId, key: str | None = None, **options: Unpack[ManyOptions]
) -> Callable[[object], NewJob]:
    """Return what makes jobs of payloads; refuse an option that does not fit by its name, once for all of them."""
    priority, owner = options.get("priority", 5), options.get("owner")
    run_at, expires_at = options.get("run_at"), options.get("expires_at")
    if isinstance(priority, bool) or priority not in range(10):
        raise ConfigurationError(
            field="priority", value=priority, rule="must be a whole number from 0 to 9", fix="0 goes first."
        )
    for field, given in (("key", key), ("owner", owner)):
        check_text(field, given)
    wall = CURRENT.get().clock.wall
    due = None if run_at is None else instant("run_at", run_at)
    pause = _pause(options.get("delay"), run_at)
    end = None if expires_at is None else instant("expires_at", expires_at)
    trace = trace_of_caller()

    def make(payload: object) -> NewJob:
        return NewJob(
            lane=lane,
            payload=encoded_payload(pipeline, payload),
            run_at=(wall() if due is None else due) + pause,
            priority=priority,
            key=key,
            owner=owner,
            expires_at=end,
            trace=trace,
        )

    return make


def _pause(delay: timedelta | float | None, run_at: datetime | None) -> float:
    """Return how many seconds a job waits before it starts."""
    if delay is None:
        return 0.0
    if run_at is not None:
        raise ConfigurationError(
            field="delay", value=delay, rule="cannot be combined with run_at", fix="Give one of them."
        )
    return seconds("delay", delay)


class BulkSubmission:
    """Stores many payloads as jobs, in batches: each is checked as a whole before it is stored, and stays stored.

    `make` makes a job of a payload, and `store_jobs` stores a batch. Memory is bounded by a batch, but for the ids. An error cannot
    undo earlier batches; it reports which jobs they stored.
    """

    def __init__(
        self,
        store: Store,
        pipeline: PipelineRef,
        make: Callable[[object], NewJob],
        *,
        key: Callable[[object], str | None] | None = None,
        run: int | None = None,
        store_jobs: Callable[[list[NewJob]], list[SubmittedJob]],
    ) -> None:
        fix = 'Pass a function of the payload: key=lambda order: order["id"], for example.'
        function("submit_many(key)", key, fix=fix)
        if key is not None and run is not None:
            raise ConfigurationError(
                field="submit_many(key)",
                value=key,
                rule="cannot be combined with run",
                fix="An item of a run is identified by its position: leave one of the two out.",
            )
        self._store_jobs = store_jobs
        self._make = make
        self._key = key
        self._book = Runs(store)
        self._run = None if run is None else RunId(run)
        self._first = 0 if self._run is None else self._book.next_ordinal(self._run, pipeline.name)
        self._was_fed = self._run is not None and self._book.is_fed(self._run)
        self.ids: list[int] = []
        """Of the jobs that were stored, in order."""
        self._index = 0

    def submit(self, payloads: Iterable[object], size: int) -> list[int]:
        """Store the payloads, so many per transaction; return the ids in order."""
        if self._run is not None and self._was_fed:
            # Otherwise it might end between two batches.
            self._book.mark_source(self._run, is_fed=False)
        try:
            for batch in self.batches(payloads, size):
                self.stored(self._store_jobs(batch))
        except SerializationError:
            raise
        except Exception as error:
            if self.ids:
                ids = f"the ids {self.ids[0]} to {self.ids[-1]}"
                error.add_note(f"submit_many had stored {len(self.ids)} jobs before it, with {ids}")
            raise
        finally:
            if self._run is not None and self._was_fed:
                self._book.mark_source(self._run, is_fed=True)
        if self._run is not None:
            self._book.mark_source(self._run, is_fed=True)
            if self._book.report(self._run).status == RunStatus.PAUSED:
                # Items that were added to a paused run wait with the others.
                self._book.pause_items(self._run)
        return self.ids

    def batches(self, payloads: Iterable[object], size: int) -> Iterator[list[NewJob]]:
        """Yield the jobs of payloads, so many at a time; `stored` is called for each batch before the next."""
        batch: list[NewJob] = []
        try:
            for payload in payloads:
                batch.append(self._job(payload))
                self._index += 1
                if len(batch) >= size:
                    yield batch
                    batch = []
        except SerializationError as error:
            raise self._refusal(error) from error
        if batch:
            yield batch

    def stored(self, made: Iterable[SubmittedJob]) -> None:
        """Note the jobs of a batch."""
        self.ids += [int(one.id) for one in made]

    def _job(self, payload: object) -> NewJob:
        made = self._make(payload)
        if self._key is not None:
            key = self._key(payload)
            check_text(f"key of payload {self._index}", key)
            return msgspec.structs.replace(made, key=key)
        if self._run is not None:
            return msgspec.structs.replace(made, run=self._run, ordinal=self._first + self._index)
        return made

    def _refusal(self, error: SerializationError) -> SerializationError:
        """Return an error that also names the payload it is about, and what was stored before it."""
        stored = len(self.ids)
        before = f"{stored} jobs were stored before it" if stored else "no job was stored before it"
        where = f"payload {self._index}, counting from 0 ({before}): {error.where}"
        refusal = SerializationError(where=where, kind=error.kind, problem=error.problem)
        refusal.index, refusal.stored = self._index, tuple(self.ids)
        again = f"submit payloads[{stored}:]" if stored else "submit them all again"
        refusal.hint = f"Correct it, then {again}; with key= all of them may be submitted again."
        return refusal


def check_text(field: str, given: str | None) -> None:
    """Refuse a key or an owner that cannot be stored or searched."""
    if given is not None:
        text(field, given, fix="Hash what is longer.")


def encoded_payload(pipeline: PipelineRef, payload: object) -> bytes:
    """Encode a payload for the first stage of a pipeline; raises SerializationError naming the field that does not fit."""
    codec = pipeline.payload
    encoded = codec.encode(payload)
    codec.check(encoded)
    check_size(f"{pipeline.name} (payload)", encoded)
    return encoded


def check_size(where: str, encoded: bytes) -> None:
    """Refuse a value that is too large to be stored."""
    if len(encoded) > PAYLOAD_MAX:
        problem = f"the limit is {PAYLOAD_MAX} bytes"
        raise SerializationError(where=where, kind=f"{len(encoded)} bytes", problem=problem)


def instant(field: str, at: datetime) -> float:
    """Return an aware point in time as seconds."""
    if not isinstance(at, datetime) or at.tzinfo is None:
        raise ConfigurationError(
            field=field, value=at, rule="must carry its time zone", fix="datetime.now(UTC) + timedelta(...)."
        )
    return at.timestamp()
