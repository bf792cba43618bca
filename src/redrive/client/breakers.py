# SPDX-License-Identifier: Apache-2.0
"""Breakers for a program: the same use cases as `redrive breaker`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from redrive.client.awaited import AsyncFace, Face, awaited
from redrive.client.options import ActorOptions, actor_of
from redrive.ops import breakers
from redrive.ops.breakers import BreakerFacts


class Breakers(Face):
    """The breakers that workers share. `new=True` allows a name that no worker has stored yet; else UnknownNameError."""

    def list(self) -> Sequence[BreakerFacts]:
        """Return the breakers that have seen a failure, or were changed by hand, by name."""
        return breakers.breakers(self._store)

    def open(self, name: str, *, new: bool = False, **by: Unpack[ActorOptions]) -> BreakerFacts:
        """Open a breaker: hold jobs that need it until a probe succeeds."""
        return breakers.move(self._store, name, "open", actor_of(by), is_new=new)

    def close(self, name: str, *, new: bool = False, **by: Unpack[ActorOptions]) -> BreakerFacts:
        """Close a breaker: release the jobs that need it, gradually."""
        return breakers.move(self._store, name, "close", actor_of(by), is_new=new)

    def isolate(self, name: str, *, new: bool = False, **by: Unpack[ActorOptions]) -> BreakerFacts:
        """Isolate a breaker: hold jobs that need it until it is closed by hand; no probe is sent."""
        return breakers.move(self._store, name, "isolate", actor_of(by), is_new=new)


class AsyncBreakers(AsyncFace[Breakers]):
    """Breakers for async code; see `Breakers`."""

    list = awaited(Breakers.list)
    open = awaited(Breakers.open)
    close = awaited(Breakers.close)
    isolate = awaited(Breakers.isolate)
