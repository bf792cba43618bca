# SPDX-License-Identifier: Apache-2.0
"""What answers questions: a store, or one moment of it. Whatever only reads takes this, and can be asked of either."""

from __future__ import annotations

from typing import Protocol, TypeVar, overload

from redrive.store.records import Call, Row

R = TypeVar("R")


class Reader(Protocol):
    """What answers questions: a store, or one moment of it."""

    @overload
    def query(self, asked: Call[R], /) -> list[R]: ...
    @overload
    def query(self, asked: str, /, *parameters: object) -> list[Row]: ...
    def query(self, asked: Call[R] | str, /, *parameters: object) -> list[R] | list[Row]:
        """Run a statement that only reads."""
        ...
