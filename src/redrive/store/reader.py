# SPDX-License-Identifier: Apache-2.0
"""What answers questions: a store, or one moment of it. Whatever only reads takes this, and can be asked of either."""

from __future__ import annotations

from typing import Protocol, TypeVar

from redrive.store.records import Call

R = TypeVar("R")


class Reader(Protocol):
    """What answers questions: a store, or one moment of it."""

    def query(self, asked: Call[R], /) -> list[R]:
        """Run a statement that only reads."""
        ...
