# SPDX-License-Identifier: Apache-2.0
"""A named statement as an object: what it takes, by name, and what its rows are.

It is declared as a function without a body, so that type checkers know its parameters and rows wherever it is called:

    @statement
    def live_runs(*, now: float) -> LiveRun: ...

Calling it runs nothing: it makes what `Store.query` and `Store.apply` take. Its text stands under its name in an SQL file of each
dialect, with the parameters in the order of the declaration. A tuple that is passed stands for several of them, a list for one, as
JSON. Rows are converted in one place, here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from types import GenericAlias
from typing import Any, Generic, ParamSpec, TypeVar, cast, get_type_hints

import msgspec

from redrive.store.records import Call, Row, json_list

P = ParamSpec("P")
R = TypeVar("R")


class Statement(Generic[P, R]):
    """A named statement."""

    def __init__(self, declared: Callable[P, R]) -> None:
        self.declared = declared
        self.name = declared.__name__
        self.parameters = declared.__code__.co_varnames[: declared.__code__.co_kwonlyargcount]

    def __call__(self, *_: P.args, **given: P.kwargs) -> Call[R]:
        """Return what runs it with these parameters."""
        parameters: list[object] = []
        for name in self.parameters:
            value: object = given[name]
            several = cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,)
            parameters += map(_stored, several)
        return Call(self.name, tuple(parameters), decoder=self.decode)

    def decode(self, rows: list[Row]) -> list[R]:
        """Return rows as what they were declared to be."""
        if not rows:
            return []
        found: list[R] = msgspec.convert(
            [row[0] for row in rows] if self.is_scalar else rows, self._rows, strict=False
        )
        return found

    @cached_property
    def row(self) -> type[R]:
        """The type of a row; of its one column, if it has no more."""
        found: type[R] = get_type_hints(self.declared)["return"]
        return found

    @cached_property
    def is_scalar(self) -> bool:
        """Whether a row is the value of its one column."""
        return not hasattr(self.row, "_fields")

    @cached_property
    def _rows(self) -> Any:
        return GenericAlias(list, self.row)


def _stored(value: object) -> object:
    return json_list(cast("list[object]", value)) if type(value) is list else value


def statement(declared: Callable[P, R]) -> Statement[P, R]:
    """Declare a named statement."""
    return Statement(declared)
