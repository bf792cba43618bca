# SPDX-License-Identifier: Apache-2.0
"""A worker's lease: renewed by a thread of its own, so that a blocked event loop loses nothing, and the reaping of others'.

Reaping waits for one full lease of uninterrupted contact with the store: after an outage every worker's lease has ended, and none
of them is dead. It is also left out when the wall clock and the monotonic clock drifted apart since the last beat, because then
it is the clock that moved, not the workers that stopped. Two jumps that undo each other between two beats of a reaper are seen by
nobody; so a clock that went back is not believed at once by whoever renews, and its lease still holds when the clock comes back.
A renewal waits for nothing but the store: what else there is to tell comes after it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final

from redrive.engine.clock import Clock
from redrive.engine.error_text import shown
from redrive.errors import SchemaMismatchError, StoreDamagedError, StoreError
from redrive.store.protocol import JobId, Renewal, Store

logger = logging.getLogger("redrive.worker")

BEATS_PER_LEASE: Final = 3
GAP_MAX: Final = 0.5
"""The share of a lease without an answer after which contact counts as interrupted; a beat comes every third of a lease."""
DRIFT_MAX: Final = 0.2
"""The share of a lease by which the two clocks may differ between two beats."""


class Leases:
    """What one worker does about leases, one `beat` at a time."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        lease: float,
        on_dead: Callable[[str], None],
        on_lost_store: Callable[[StoreError], None] = lambda _: None,
        on_cancel: Callable[[Sequence[JobId]], None] = lambda _: None,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._lease = lease
        self._on_dead = on_dead
        self._on_lost_store = on_lost_store
        self._on_cancel = on_cancel
        self._progress = progress
        self._contact_since: float | None = None
        self._seen_at = clock.monotonic()
        self._offset = clock.wall() - self._seen_at
        self._believed = self._offset
        """The offset of the clocks that leases are made for: the present one, or for a while the one before the clock went back."""
        self._believed_at = self._seen_at

    def silent_for(self) -> float:
        """Return for how many seconds the store has not answered."""
        return self._clock.monotonic() - self._seen_at

    def beat(self, worker: str) -> None:
        """Renew this worker's lease, reap the dead, and then have progress told.

        A store that cannot be reached interrupts the contact, and nothing more.
        """
        wall, monotonic = self._clock.wall(), self._clock.monotonic()
        drift, self._offset = abs(wall - monotonic - self._offset), wall - monotonic
        self._believe(self._offset, monotonic)
        try:
            renewal = self._renewed(worker, wall, monotonic)
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
            logger.warning("worker %s: no contact with the store: %s", worker, error)
        else:
            self._progress(worker)

    def new_lease(self) -> tuple[float, float]:
        """Return the time, and how long a lease must be that begins now; for a worker that the store does not know yet."""
        wall, monotonic = self._clock.wall(), self._clock.monotonic()
        self._believe(wall - monotonic, monotonic)
        return wall, self._lease_from(wall, monotonic)

    def _renewed(self, worker: str, wall: float, monotonic: float) -> Renewal:
        renewal = self._store.renew(worker, wall, self._lease_from(wall, monotonic))
        if renewal.is_known and self._clock.monotonic() - monotonic > self._lease / BEATS_PER_LEASE:
            # It had to wait for its turn, and what it wrote was old by then.
            wall, monotonic = self._clock.wall(), self._clock.monotonic()
            return self._store.renew(worker, wall, self._lease_from(wall, monotonic))
        return renewal

    def _believe(self, offset: float, monotonic: float) -> None:
        """Take the present offset of the clocks for the right one; after a jump back, only when it has stayed for a lease."""
        is_back = self._believed - offset > DRIFT_MAX * self._lease
        if not is_back or monotonic - self._believed_at > self._lease:
            self._believed, self._believed_at = offset, monotonic

    def _lease_from(self, wall: float, monotonic: float) -> float:
        """Return how long a lease must be from this moment to hold by the time that is believed as well."""
        return self._lease + max(0.0, self._believed - (wall - monotonic))

    def _reap(self, wall: float) -> None:
        given_back = self._store.reap(wall)
        if given_back:
            logger.warning("%d jobs of dead workers were given back", given_back)


class Heartbeat:
    """The thread that beats. `name_of` tells under which name the store knows the worker; None while it knows none."""

    def __init__(self, leases: Leases, name_of: Callable[[], str | None], *, lease: float) -> None:
        self._leases = leases
        self._name_of = name_of
        self._pause = lease / BEATS_PER_LEASE
        self._is_due = threading.Event()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="redrive-heart", daemon=True)

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    def stop(self) -> None:
        """Beat no more."""
        self._is_over = True
        self._is_due.set()
        self._thread.join()

    def new_lease(self) -> tuple[float, float]:
        """See `Leases.new_lease`."""
        return self._leases.new_lease()

    def beat_soon(self) -> None:
        """Beat without waiting for the next turn; from any thread."""
        self._is_due.set()

    def beat(self) -> None:
        """Beat once, if the store knows the worker."""
        name = self._name_of()
        if name is None:
            return
        try:
            self._leases.beat(name)
        except Exception as error:  # noqa: BLE001 - without a beat the lease would end, and a living worker lose its jobs.
            logger.error("a heartbeat failed; the next one follows: %s", shown(error))  # noqa: TRY400 - redacted.

    def _run(self) -> None:
        while True:
            self._is_due.wait(self._pause)
            self._is_due.clear()
            if self._is_over:
                return
            self.beat()
