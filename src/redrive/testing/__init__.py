# SPDX-License-Identifier: Apache-2.0
"""Public helpers for testing code that uses redrive: time that passes without waiting, and chance from a seed.

    with redrive.testing.virtual_time() as clock:
        fetch_with_retries()             # every guard in this context waits on the virtual clock
    assert clock.waits == [1.0, 2.0]

Only redrive's own waits are virtual: what the guarded function does itself, and `timeout=` on a running attempt, take real time.
"""

from __future__ import annotations

from redrive.testing.clock import VirtualClock, virtual_time

__all__ = ["VirtualClock", "virtual_time"]
