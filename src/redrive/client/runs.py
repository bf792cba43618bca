# SPDX-License-Identifier: Apache-2.0
"""Runs for a program: the same use cases as `redrive run`.

Nothing is decided here: each method calls one function of `engine` or `ops`. `rd.run` drives a run in this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Unpack

from redrive.client.awaited import AsyncFace, awaited
from redrive.client.options import ActorOptions, actor_of
from redrive.core.arguments import whole
from redrive.core.budget import FailureRule, RunThresholds
from redrive.engine.pipeline.pipeline import Pipeline, check_pipeline
from redrive.engine.replay.rules import record_entry
from redrive.engine.runs import runs as engine
from redrive.engine.runs.items import Item, RunLabel, open_run
from redrive.engine.runs.runs import RunOptions, RunReport
from redrive.ops import runs
from redrive.ops.runs import ItemResult
from redrive.store.protocol import Store
from redrive.store.records import RunId

__all__ = ["AsyncRuns", "Item", "ItemResult", "Runs"]


class Runs:
    """The runs of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._book = engine.Runs(store)

    def add(self, pipeline: str, options: RunOptions, now: float) -> RunId:
        """Add a run without items; `rd.submit_many(run=)` adds them."""
        return self._book.add(pipeline, options, now)

    def open(
        self,
        pipeline: Pipeline,
        payloads: Iterable[object],
        *,
        key: str | None = None,
        label: str | None = None,
        owner: str | None = None,
        rule: RunThresholds | FailureRule | Mapping[str, float] | None = None,
    ) -> RunReport:
        """Store a run with all its items, ten thousand at most, in one transaction; workers run them and decide its status.

        A payload may be an `Item` with a key, an owner and a priority of its own. If a run of this pipeline has the `key`, its
        report is returned instead, with `is_duplicate`, and nothing is stored. `rule` says how the status is decided: by rates, as
        `RunThresholds` or a mapping with them, or by kinds of failures, as `FailureRule`.

        Raises:
            SerializationError: an item does not fit the first stage; `index` is its place.
            ConfigurationError: there are too many items, or the key of one is taken.
        """
        check_pipeline("open(pipeline)", pipeline)
        record_entry(self._store, pipeline)
        lane = self._store.lanes(pipeline.name, [stage.name for stage in pipeline.stages])[0]
        options = (
            RunOptions(rule=rule)
            if isinstance(rule, FailureRule)
            else RunOptions(thresholds=RunThresholds.of("open(rule)", rule))
        )
        name = RunLabel(key=key, label=label, owner=owner)
        return open_run(self._store, pipeline, payloads, lane=lane, name=name, options=options)

    def report(self, run: int) -> RunReport:
        """Return the report of a run; raises RunError when there is none."""
        return self._book.report(run)

    def options(self, run: int) -> RunOptions:
        """Return the options of a run."""
        return self._book.options(run)

    def is_fed(self, run: int) -> bool:
        """Return whether the source was read to its end."""
        return self._book.is_fed(run)

    def latest(self, limit: int = 50) -> list[RunReport]:
        """Return the latest runs, newest first."""
        return self._book.latest(limit)

    def results(
        self, run: int, *, first: int = 0, pipeline: Pipeline | None = None, wait: bool = False
    ) -> Iterator[ItemResult]:
        """Yield the outcomes of the items of a run, from `first` on in their order, while the rest still runs; memory is bounded.

        It stops at the first item that has not ended; with `wait` it waits for it, until the run has ended or is paused. With its
        `pipeline`, values have the type that the last stage returns; without, they are plain JSON.
        """
        output = None if pipeline is None else check_pipeline("results(pipeline)", pipeline).stages[-1].output
        whole("results(first)", first, minimum=0, fix="0 is the first item.")
        return runs.results(self._store, run, first=first, output=output, is_waiting=wait)

    def pause(self, run: int, **by: Unpack[ActorOptions]) -> RunReport:
        """Start no more items until it is resumed; items in a stage finish it. Raises RunError when it is not running."""
        return runs.pause(self._store, run, actor_of(by))

    def resume(self, run: int, **by: Unpack[ActorOptions]) -> RunReport:
        """Let workers continue a paused run whose source was read to its end; `rd.run(resume=)` continues any, in this process."""
        return runs.resume(self._store, run, actor_of(by))

    def cancel(self, run: int, **by: Unpack[ActorOptions]) -> RunReport:
        """End a run: items that have not started are cancelled, those in a stage are asked to end, finished ones stay."""
        return runs.cancel(self._store, run, actor_of(by))

    def label(self, run: int, text: str, **by: Unpack[ActorOptions]) -> RunReport:
        """Change the label of a run."""
        return runs.label(self._store, run, text, actor_of(by))


class AsyncRuns(AsyncFace[Runs]):
    """The runs of a store, for async code; see `Runs`."""

    add = awaited(Runs.add)
    open = awaited(Runs.open)
    report = awaited(Runs.report)
    options = awaited(Runs.options)
    is_fed = awaited(Runs.is_fed)
    latest = awaited(Runs.latest)
    pause = awaited(Runs.pause)
    resume = awaited(Runs.resume)
    cancel = awaited(Runs.cancel)
    label = awaited(Runs.label)

    async def results(
        self, run: int, *, first: int = 0, pipeline: Pipeline | None = None, wait: bool = False
    ) -> AsyncIterator[ItemResult]:
        """Yield the outcomes of the items of a run, in their order; see `Runs.results`."""
        found = await asyncio.to_thread(self.face.results, run, first=first, pipeline=pipeline, wait=wait)
        while (one := await asyncio.to_thread(next, found, None)) is not None:
            yield one
