# SPDX-License-Identifier: Apache-2.0
"""Events in the order of their time: ends of attempts and changes of breakers; and what operators did about a job or a letter.

Only reads. `EventReader` knows how far it has read, so that nothing is missed between two looks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from redrive.engine.runtime import CURRENT
from redrive.ops import breakers
from redrive.ops.audit import operations
from redrive.ops.breakers import BreakerEvent
from redrive.ops.jobs import inspect
from redrive.ops.jobs.facts import get_job
from redrive.ops.jobs.inspect import Event
from redrive.ops.letters.details import letter_details
from redrive.store.protocol import Store
from redrive.store.statements.operations import Operation

PAGE: Final = 500
POLL_SECONDS: Final = 0.2
"""How often a reader that is up to date should look for new events, in seconds."""


class EventReader:
    """The events of everything, of one pipeline, or of one job, from the moment the reader is made on, and the latest before it.

    A change of a breaker is about many jobs, and so about none of them. Raises JobNotFoundError.
    """

    def __init__(self, store: Store, *, job: int | None = None, pipeline: str | None = None) -> None:
        if job is not None:
            get_job(store, job)
        self._store = store
        self._job = job
        self._pipeline = pipeline
        self._last, self._last_change = inspect.last_event(store), breakers.last_breaker_change(store)
        self.is_behind = False
        """Whether there are more events to read already."""

    def latest(self, limit: int) -> list[Event | BreakerEvent]:
        """Return the latest events before the reader was made, oldest first."""
        attempts = inspect.latest_events(self._store, job=self._job, pipeline=self._pipeline, limit=limit)
        known = [event for event in attempts if event.seq <= self._last]
        changes = [change for change in self._changes(limit) if change.id <= self._last_change]
        return _in_order(known, changes)[-limit:]

    def news(self) -> list[Event | BreakerEvent]:
        """Return what came since the last look, oldest first, a page at most."""
        end = inspect.last_event(self._store)
        news = inspect.events_after(
            self._store, self._last, job=self._job, pipeline=self._pipeline, limit=PAGE
        )
        changes = self._changes(PAGE, after=self._last_change)
        self._last_change = changes[-1].id if changes else self._last_change
        self.is_behind = len(news) == PAGE
        # Unless the page is full, all events up to the end were read, also those that do not match.
        self._last = news[-1].seq if self.is_behind else max(end, news[-1].seq if news else 0)
        return _in_order(news, changes)

    def follow(self) -> Iterator[Event | BreakerEvent]:
        """Yield events that were not read yet, and wait for further ones, for ever."""
        while True:
            yield from self.news()
            if not self.is_behind:
                CURRENT.get().clock.sleep(POLL_SECONDS)

    def _changes(self, limit: int, after: int | None = None) -> list[BreakerEvent]:
        if self._job:
            return []
        return breakers.breaker_changes(self._store, after=after, pipeline=self._pipeline, limit=limit)


def operations_on(
    store: Store, *, job: int | None, letter: int | None, before: int | None, limit: int
) -> list[Operation]:
    """Return the last operations, oldest first: all, or those on a job or a letter, also as part of a group or a replay.

    The id of the first one is the `before` of the page before.
    """
    if job is None and letter is None:
        return operations(store, limit, before=before)
    found = list(letter_details(store, letter).operations) if letter is not None else []
    if job is not None:
        of_job = inspect.job_details(store, job).operations
        found = list(of_job) if letter is None else [each for each in found if each in of_job]
    return [each for each in found if before is None or each.id < before][-limit:]


def _in_order(attempts: list[Event], changes: list[BreakerEvent]) -> list[Event | BreakerEvent]:
    return sorted([*attempts, *changes], key=lambda event: event.at)
