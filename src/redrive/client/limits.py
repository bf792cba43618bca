# SPDX-License-Identifier: Apache-2.0
"""Limits for a program: the same use cases as `redrive limit`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from redrive.client.awaited import AsyncFace, Face, awaited
from redrive.client.options import ActorOptions, actor_of
from redrive.ops import limits
from redrive.ops.limits import LimitFacts


class Limits(Face):
    """The limits that workers share. A name that no worker has recorded raises UnknownNameError."""

    def list(self) -> Sequence[LimitFacts]:
        """Return the limits that workers have recorded or used, by name and key."""
        return limits.limits(self._store)

    def set(
        self,
        name: str,
        *,
        key: str = "",
        rate: str | float | None = None,
        burst: float | None = None,
        concurrency: int | None = None,
        **by: Unpack[ActorOptions],
    ) -> LimitFacts:
        """Override the numbers of the code until they are set again; without any number, use those of the code again."""
        return limits.set_limit(
            self._store, name, by=actor_of(by), key=key, rate=rate, burst=burst, concurrency=concurrency
        )

    def pause(self, name: str, *, key: str = "", **by: Unpack[ActorOptions]) -> LimitFacts:
        """Let no job of a limit start until it is resumed."""
        return limits.pause(self._store, name, actor_of(by), key=key)

    def resume(self, name: str, *, key: str = "", **by: Unpack[ActorOptions]) -> LimitFacts:
        """Let the jobs of a limit start again, also if the dependency had asked to wait."""
        return limits.resume(self._store, name, actor_of(by), key=key)


class AsyncLimits(AsyncFace[Limits]):
    """Limits for async code; see `Limits`."""

    list = awaited(Limits.list)
    set = awaited(Limits.set)
    pause = awaited(Limits.pause)
    resume = awaited(Limits.resume)
