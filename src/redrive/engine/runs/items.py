# SPDX-License-Identifier: Apache-2.0
"""The items of runs: a run that is opened with all of them at once, and those that a source yields bit by bit.

A run is opened in one transaction: either it is there with every item, or nothing is. That is for items that are known and few, a
few thousand at most; the workers of the pipeline run them, and one of them decides the status of the run at their end. A source may
have any length. Each of its items that can be stored becomes a job, even one of the wrong type: that job then fails, and no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

import msgspec

from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.pipeline.submission import check_size, check_text, new_job
from redrive.engine.runs.runs import RunOptions, RunReport, Runs
from redrive.engine.runtime import CURRENT
from redrive.errors import ConfigurationError, SerializationError
from redrive.store.protocol import Store
from redrive.store.records import INLINE_MAX, LaneId, NewJob, RunId, json_list
from redrive.store.statements import runs as run_sql

ITEMS_MAX: Final = 10_000
LABEL_MAX: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One item of a run that is opened with its items, with a key, an owner and a priority of its own."""

    payload: object
    key: str | None = None
    owner: str | None = None
    """The run's, if there is none."""
    priority: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLabel:
    """How a run is found again: a key that is unique in its pipeline, a label for people, and an owner."""

    key: str | None = None
    label: str | None = None
    owner: str | None = None

    def __post_init__(self) -> None:
        check_text("key", self.key)
        check_text("owner", self.owner)
        if self.label is not None:
            check_label(self.label)


def check_label(label: object) -> str:
    """Return the label of a run; refuse one that does not fit on a line."""
    if not isinstance(label, str) or not 0 < len(label) <= LABEL_MAX or not label.isprintable():
        raise ConfigurationError(
            field="label",
            value=label,
            rule=f"must be a text of 1 to {LABEL_MAX} printable characters",
            fix='"nightly import", for example.',
        )
    return label


def open_run(
    store: Store,
    pipeline: Pipeline,
    payloads: Iterable[object],
    *,
    lane: LaneId,
    name: RunLabel,
    options: RunOptions,
) -> RunReport:
    """Store a run with its items, and return its report; or that of the run of this pipeline that has its key already.

    Raises:
        SerializationError: an item does not fit the first stage; `index` is its place.
        ConfigurationError: there are too many, or the key of an item is taken by another job.
    """
    jobs = [_job(pipeline, payload, place, name.owner) for place, payload in enumerate(payloads)]
    if len(jobs) > ITEMS_MAX:
        raise ConfigurationError(
            field="open(payloads)",
            value=len(jobs),
            rule=f"must be at most {ITEMS_MAX:,} items, because they are stored at once",
            fix="rd.run(pipeline, items) reads any number of them.",
        )
    items = json_list([(job.payload.decode(), job.key, job.owner, job.priority) for job in jobs])
    now, encoded = CURRENT.get().clock.wall(), msgspec.json.encode(options)
    trace = jobs[0].trace if jobs else None
    made = store.apply(
        run_sql.open_run(
            pipeline=pipeline.name,
            options=encoded,
            now=now,
            items=len(jobs),
            key=name.key,
            label=name.label,
            owner=name.owner,
        ).touching(1),
        run_sql.open_items(lane=lane, now=now, items=items, inline_max=INLINE_MAX).touching(len(jobs)),
        run_sql.open_values(items=items, inline_max=INLINE_MAX),
        *([] if trace is None else [run_sql.open_traces(trace=trace)]),
    )
    if made is not None:
        return Runs(store).report(made[0][0])
    there = (
        [] if name.key is None else store.query(run_sql.run_with_key(pipeline=pipeline.name, key=name.key))
    )
    if there:
        return replace(Runs(store).report(there[0]), is_duplicate=True)
    raise _taken(store, pipeline, items)


def _job(pipeline: Pipeline, given: object, place: int, owner: str | None) -> NewJob:
    item = given if isinstance(given, Item) else Item(payload=given)
    try:
        return new_job(
            pipeline, item.payload, key=item.key, owner=item.owner or owner, priority=item.priority
        )
    except SerializationError as error:
        where = f"item {place}, counting from 0: {error.where}"
        located = SerializationError(where=where, kind=error.kind, problem=error.problem)
        located.index, located.hint = place, "Nothing was stored. Correct it, and open the run again."
        raise located from error


def _taken(store: Store, pipeline: Pipeline, items: str) -> ConfigurationError:
    """Return the error about the first item whose key another job has; or another item of this run."""
    found = store.query(run_sql.taken_item(pipeline=pipeline.name, items=items))
    place, key, by = found[0] if found else ("?", None, None)
    return ConfigurationError(
        field=f"key of item {place}",
        value=key,
        rule="must be free and given once: " + ("another item has it" if by is None else f"job {by} has it"),
        fix="Nothing was stored. Leave the item out, or give it another key.",
    )


def jobs_of(
    items: Sequence[object], pipeline: Pipeline, lane: LaneId, run: RunId, *, first: int, now: float
) -> tuple[list[NewJob], SerializationError | None]:
    """Return the items of a run as jobs, up to the first that cannot be stored, and the error about that one."""
    jobs: list[NewJob] = []
    entry = pipeline.stages[0]
    for place, item in enumerate(items, start=first):
        try:
            payload = entry.input.encode(item)
            check_size(entry.name, payload)
        except SerializationError as error:
            where = f"{pipeline.name} (item {place}, counting from 0): {error.where}"
            located = SerializationError(where=where, kind=error.kind, problem=error.problem)
            located.index, located.__cause__ = place, error
            fix = f"Correct this item in the source, and resume run {run} with it."
            located.hint = f"The items before it are submitted. {fix}"
            return jobs, located
        jobs.append(NewJob(lane=lane, payload=payload, run_at=now, run=run, ordinal=place))
    return jobs, None


def first_difference(jobs: Iterable[NewJob], rows: Iterable[run_sql.ItemPayload]) -> int | None:
    """Return the first position at which an item differs from the stored one; pruned or erased ones are not compared."""
    stored = {row.ordinal: row.payload for row in rows if row.payload is not None}
    for job in jobs:
        ordinal = cast("int", job.ordinal)
        if stored.get(ordinal, job.payload) != job.payload:
            return ordinal
    return None
