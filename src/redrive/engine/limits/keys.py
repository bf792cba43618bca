# SPDX-License-Identifier: Apache-2.0
"""The keys of jobs in lanes whose limits or breaker have a key function.

The functions of a pipeline are known to its workers alone. So a worker finds the keys of queued jobs before it claims any, a
bounded number at a time, and writes them beside the jobs; a job that leaves its lane, or is replayed, loses its key. A key function
that raises, or returns what cannot be stored, fails its job alone, when that is run. Lives on the store's thread; `key_of` and
`error_of` may be called from any.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from redrive.core.arguments import TEXT_MAX, text
from redrive.engine.pipeline.codec import Codec
from redrive.engine.pipeline.lanes import Lane
from redrive.engine.pipeline.stage import Stage
from redrive.errors import ConfigurationError
from redrive.store.protocol import Store
from redrive.store.records import ClaimedJob, JobId, LaneId, json_list
from redrive.store.statements import workers as worker_sql

KEYS_MAX: Final = 64
"""Keys of a lane that one claim considers."""
MARK_MAX: Final = 1_000
"""Jobs whose keys one claim finds, from either end of the queue: the latest ones do not wait for a backlog."""
RECORD_SECONDS: Final = 60.0
BROKEN: Final = "!"
"""Begins what is written for a job whose key function raised; the keys of others are JSON lists."""


class JobView(Struct, frozen=True):
    """What a key function can read of a job."""

    id: int
    pipeline: str
    stage: str
    key: str | None
    owner: str | None
    priority: int
    run_id: int | None
    raw: bytes
    """The stage's input as it is stored."""
    codec: Codec

    @property
    def input(self) -> Any:
        """The stage's input."""
        return self.codec.check(self.raw)


class JobKeys:
    """The keys of the jobs of one worker, and of those it might claim."""

    def __init__(self, store: Store, lanes: Mapping[LaneId, Lane]) -> None:
        self._store = store
        self._all = lanes
        self._recorded_at = -math.inf
        self.lanes = {id_: lane for id_, lane in lanes.items() if keyed_names(lane.stage)}
        """The lanes whose jobs have keys."""
        self._cursors: dict[LaneId, str] = {}
        self._pages: dict[LaneId, list[str]] = {}
        """The keys that were considered last."""
        self._rounds: dict[LaneId, str] = {}
        """The first of the keys that were passed over since one was served."""
        self._of_job: dict[JobId, tuple[LaneId, str]] = {}
        _record(store, lanes)

    def keep_recorded(self, now: float) -> None:
        """Record again, now and then, what the keys are for: a worker of another release may have changed it."""
        if now >= self._recorded_at + RECORD_SECONDS:
            self._recorded_at = now
            _record(self._store, self._all)

    def mark(self, lane: LaneId) -> None:
        """Find the keys of jobs that have none yet."""
        rows = self._store.query(worker_sql.jobs_without_key(lane=lane, limit=MARK_MAX))
        if len(rows) == MARK_MAX:
            rows += self._store.query(worker_sql.last_jobs_without_key(lane=lane, limit=MARK_MAX))
        if rows:
            found = {row.id: self._keys_in(self.lanes[lane], row) for row in rows}
            keyed_by = json_list(keyed_names(self.lanes[lane].stage))
            self._store.apply(worker_sql.put_keys(keys=list(found.items()), lane=lane, keyed_by=keyed_by))

    def upcoming(self, lane: LaneId, now: float) -> list[str]:
        """Return keys of a lane that have a due job, each in its turn: those after the last one that was served come first."""
        cursor = self._cursors.get(lane, "")
        rows = self._store.query(worker_sql.keys_of_lane(lane=lane, after=cursor, now=now, limit=KEYS_MAX))
        if cursor and len(rows) < KEYS_MAX:
            rows += self._store.query(
                worker_sql.keys_of_lane(lane=lane, after="", now=now, limit=KEYS_MAX - len(rows))
            )
        found = dict(rows)
        self._pages[lane] = list(found)
        return [key for key, is_due in found.items() if is_due]

    def served(self, lane: LaneId, key: str) -> None:
        """Remember which key of a lane had its turn last."""
        self._cursors[lane] = key
        self._rounds.pop(lane, None)

    def is_many(self, lane: LaneId) -> bool:
        """Return whether a lane may have more keys than one claim considers."""
        return len(self._pages.get(lane, ())) >= KEYS_MAX

    def pass_over(self, lane: LaneId) -> bool:
        """Continue with the next keys of a lane, because none of these can start; return whether some are not considered yet."""
        if not self.is_many(lane):
            self._rounds.pop(lane, None)
            return False
        first, last = self._pages[lane][0], self._pages[lane][-1]
        self._cursors[lane] = last
        began = self._rounds.get(lane)
        if began is None:
            self._rounds[lane] = first
            return True
        if first <= began <= last if first <= last else not last < began < first:
            del self._rounds[lane]
            return False
        return True

    def remember(self, jobs: Iterable[ClaimedJob]) -> None:
        """Remember the keys of claimed jobs."""
        claimed = {job.id: job.lane for job in jobs if job.lane in self.lanes}
        if claimed:
            for job, key in self._store.query(worker_sql.keys_of_jobs(ids=list(claimed))):
                self._of_job[JobId(job)] = (claimed[JobId(job)], key)

    def forget_others(self, leased: Iterable[ClaimedJob]) -> None:
        """Forget the keys of jobs that are no longer leased."""
        kept = {job.id for job in leased}
        self._of_job = {job: found for job, found in self._of_job.items() if job in kept}

    def parts(self, lane: LaneId, keys: str) -> dict[str, str]:
        """Return the key for each limit and for the breaker of a lane, by name; none for a job whose key function raised."""
        if keys.startswith(BROKEN):
            return {}
        return dict(
            zip(keyed_names(self.lanes[lane].stage), msgspec.json.decode(keys, type=list[str]), strict=False)
        )

    def key_of(self, job: JobId, name: str) -> str | None:
        """Return the key of a leased job for a limit or breaker; None when there is none."""
        found = self._of_job.get(job)
        return None if found is None else self.parts(*found).get(name)

    def error_of(self, job: JobId) -> Exception | None:
        """Return why a leased job has no key; None when it has one or needs none."""
        found = self._of_job.get(job)
        if found is None or not found[1].startswith(BROKEN):
            return None
        return ConfigurationError(
            field=f"stage({self.lanes[found[0]].stage.name}).key",
            value=found[1].removeprefix(BROKEN),
            rule="must be a function that returns a string, a whole number or None for every job, and it failed for this one,"
            f" or its keys have more than {TEXT_MAX} characters together",
            fix="Correct the function, then replay the job.",
        )

    def _keys_in(self, lane: Lane, row: worker_sql.JobWithoutKey) -> str:
        """Return the keys of a job as they are stored."""
        view = JobView(
            row.id,
            lane.pipeline.name,
            lane.stage.name,
            row.key,
            row.owner,
            row.priority,
            row.run_id,
            row.input or b"null",
            lane.stage.input,
        )
        try:
            found = [_text(function(view)) for function in _key_functions(lane.stage).values()]
            # The queue is ordered by them, and more may not fit into its index.
            text("keys", "".join(found) or "none", fix="Hash what is longer.")
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything.
            return BROKEN + type(error).__name__
        return json_list(found)


def keyed_names(stage: Stage[..., object]) -> list[str]:
    """Return the names of what has keys in a stage: its breaker, then its limits."""
    return list(_key_functions(stage))


def breaker_part(name: str) -> str:
    """Return by which name the key of a breaker is known, so that a limit may have the same one."""
    return f"breaker {name}"


def _key_functions(stage: Stage[..., object]) -> Mapping[str, Callable[[Any], object]]:
    found = {limit.name: limit.key for limit in stage.limits if limit.key is not None}
    if stage.breaker is None or stage.breaker.key is None:
        return found
    return {breaker_part(stage.breaker.name): stage.breaker.key, **found}


def _text(key: object) -> str:
    if key is None:
        return ""
    if isinstance(key, bool) or not isinstance(key, str | int):
        raise TypeError(type(key).__name__)
    return str(key)


def _record(store: Store, lanes: Mapping[LaneId, Lane]) -> None:
    """Store what the keys of each lane are for; keys that were found for something else are dropped."""
    for id_, lane in lanes.items():
        named = keyed_names(lane.stage)
        keyed_by = json_list(named) if named else None
        if [keyed_by] != store.query(worker_sql.keyed_by(lane=id_)):
            store.apply(
                worker_sql.drop_keys(lane=id_),
                worker_sql.drop_leased_keys(lane=id_),
                worker_sql.set_keyed_by(keyed_by=keyed_by, lane=id_),
            )
