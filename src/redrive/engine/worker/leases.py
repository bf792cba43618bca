# SPDX-License-Identifier: Apache-2.0
"""A worker's lease, renewed from a thread of its own so that a blocked event loop does not lose it; and reaping dead workers.

Reaping waits for one full lease of uninterrupted contact with the store: after an outage every worker's lease has expired, and none
of them is dead. It is skipped when the wall clock and the monotonic clock differ by more than before, because then the clock moved,
not the workers stopped. Two jumps that undo each other between two beats of a reaper cannot be seen; so after a jump back a renewal
keeps to the earlier clock for a while, and its lease still holds when the clock returns.
A renewal waits for nothing but the store: progress is written after it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from redrive.engine.clock import Clock
from redrive.engine.outage import Outage
from redrive.engine.worker.threads import BackgroundThread
from redrive.errors import SchemaMismatchError, StoreDamagedError, StoreError
from redrive.store.protocol import Store
from redrive.store.records import JobId, Renewal

logger = logging.getLogger("redrive.worker")

BEATS_PER_LEASE: Final = 3
GAP_MAX: Final = 0.5
"""The share of a lease without an answer after which contact counts as interrupted; there are three beats to a lease."""
DRIFT_MAX: Final = 0.2
"""The share of a lease by which the two clocks may differ between two beats."""


class Leases:
    """Renews one worker's lease and reaps dead workers, one `beat` at a time."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        lease: float,
        on_dead: Callable[[str], None],
        on_lost_store: Callable[[StoreError], None] = lambda _: None,
        on_cancel: Callable[[Sequence[JobId]], None] = lambda _: None,
        on_reaped: Callable[[int], None] = lambda _: None,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._lease = lease
        self._on_dead = on_dead
        self._on_lost_store = on_lost_store
        self._on_cancel = on_cancel
        self._on_reaped = on_reaped
        self._progress = progress
        self._outage = Outage(logger)
        self._contact_since: float | None = None
        self._seen_at = clock.monotonic()
        self._offset = clock.wall() - self._seen_at
        self._trusted = self._offset
        """The offset of the clocks that leases are made for: the present one, or for a while the one before the clock went back."""
        self._trusted_at = self._seen_at

    def silent_for(self) -> float:
        """Return for how many seconds the store has not answered."""
        return self._clock.monotonic() - self._seen_at

    def beat(self, worker: str) -> None:
        """Renew this worker's lease, reap dead workers, and then have progress written.

        An unreachable store only interrupts the contact; no error is raised.
        """
        wall, monotonic = self._clock.wall(), self._clock.monotonic()
        drift, self._offset = abs(wall - monotonic - self._offset), wall - monotonic
        self._trust(self._offset, monotonic)
        try:
            renewal = self._renew(worker, wall, monotonic)
            if not renewal.is_known:
                self._contact_since = None
                self._on_dead(worker)
                return
            answered_at = self._clock.monotonic()
            is_gap = answered_at - self._seen_at > GAP_MAX * self._lease
            self._seen_at = answered_at
            if renewal.cancel:
                self._on_cancel(renewal.cancel)
            if self._contact_since is None or is_gap or drift > DRIFT_MAX * self._lease:
                self._contact_since = answered_at
            elif answered_at - self._contact_since >= self._lease:
                self._reap(wall)
        except (SchemaMismatchError, StoreDamagedError) as error:
            self._on_lost_store(error)
        except StoreError as error:
            self._contact_since = None
            self._outage.failed("worker %s: no contact with the store: %s", worker, error)
        else:
            self._outage.answered()
            self._progress(worker)

    def new_lease(self) -> tuple[float, float]:
        """Return the time, and how long a lease that begins now must be; for a worker that is about to register."""
        wall, monotonic = self._clock.wall(), self._clock.monotonic()
        self._trust(wall - monotonic, monotonic)
        return wall, self._lease_from(wall, monotonic)

    def _renew(self, worker: str, wall: float, monotonic: float) -> Renewal:
        renewal = self._store.renew(worker, wall, self._lease_from(wall, monotonic))
        if renewal.is_known and self._clock.monotonic() - monotonic > self._lease / BEATS_PER_LEASE:
            # It had to wait for its turn, and the time it wrote was old by then.
            wall, monotonic = self._clock.wall(), self._clock.monotonic()
            return self._store.renew(worker, wall, self._lease_from(wall, monotonic))
        return renewal

    def _trust(self, offset: float, monotonic: float) -> None:
        """Trust the present offset of the clocks; after a jump back, only when it has stayed for a lease."""
        is_back = self._trusted - offset > DRIFT_MAX * self._lease
        if not is_back or monotonic - self._trusted_at > self._lease:
            self._trusted, self._trusted_at = offset, monotonic

    def _lease_from(self, wall: float, monotonic: float) -> float:
        """Return how long a lease must be from now on to hold by the trusted clock as well."""
        return self._lease + max(0.0, self._trusted - (wall - monotonic))

    def _reap(self, wall: float) -> None:
        count = self._store.reap(wall)
        if count:
            self._on_reaped(count)
            logger.warning("%d jobs of dead workers were queued again", count)


class Heartbeat(BackgroundThread):
    """The thread that beats. `name_of` returns the name by which the store knows the worker; None while it knows none."""

    def __init__(self, leases: Leases, name_of: Callable[[], str | None], *, lease: float) -> None:
        super().__init__("redrive-heartbeat", self._beat, every=lease / BEATS_PER_LEASE)
        self.leases = leases
        self._name_of = name_of

    def _beat(self) -> None:
        name = self._name_of()
        if name is not None:
            self.leases.beat(name)
