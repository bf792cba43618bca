# SPDX-License-Identifier: Apache-2.0
"""Steps that more than one caller makes: a state that is changed by compare-and-swap, and the record of a breaker's change.

And what every store does with them alike.
"""

from __future__ import annotations

from typing import Final

import msgspec

from redrive.store.protocol import Store
from redrive.store.reader import Reader
from redrive.store.records import Call, PhaseChange
from redrive.store.statements import workers as worker_sql

SWAPS_MAX: Final = 100
"""How often one change of a state is tried against others before its caller gives it up, or leaves it to the next commit."""


def breaker_swap(name: str, *, before: bytes | None, after: bytes) -> Call[None]:
    """Return the step that changes the state of a breaker if it is still `before`; None if nobody has written one."""
    if before is None:
        return worker_sql.add_breaker(name=name, state=after).touching(1)
    return worker_sql.swap_breaker(state=after, name=name, before=before).touching(1)


def breaker_change(change: PhaseChange) -> Call[None]:
    """Return the step that records a change of a breaker's phase."""
    return worker_sql.add_breaker_change(**msgspec.structs.asdict(change))


def limit_swap(name: str, key: str, *, before: bytes | None, after: bytes, now: float) -> Call[None]:
    """Return the step that changes the state of a limit if it is still `before`; None if nobody has written one."""
    if before is None:
        return worker_sql.add_limit(name=name, key=key, state=after, now=now).touching(1)
    return worker_sql.swap_limit(name=name, key=key, state=after, now=now, before=before).touching(1)


def lease_time(store: Reader, now: float) -> float:
    """Return the time that decides about leases, in place of the caller's own: on PostgreSQL it is the server's.

    So nobody takes what another machine holds only because their clocks differ.
    """
    return store.query(worker_sql.lease_time(now=now))[0]


class BreakerStates:
    """The states of breakers, for a store to inherit: by its own `query` and `apply`."""

    def breaker(self: Store, name: str) -> bytes | None:
        """See `Store.breaker`."""
        return next(iter(self.query(worker_sql.breaker(name=name))), None)

    def swap_breaker(
        self: Store, name: str, before: bytes | None, after: bytes, change: PhaseChange | None = None
    ) -> bool:
        """See `Store.swap_breaker`."""
        record = [] if change is None else [breaker_change(change)]
        return self.apply(breaker_swap(name, before=before, after=after), *record) is not None
