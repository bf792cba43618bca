# SPDX-License-Identifier: Apache-2.0
"""A named statement as an object: what it takes, by name, and what its rows are.

It is declared as a function without a body, so that type checkers know its parameters and rows wherever it is called:

    @statement
    def live_runs(*, now: float) -> LiveRun: ...

Calling it runs nothing: it makes what `Store.query` and `Store.apply` take. Its text stands under its name in an SQL file of each
dialect, with the parameters in the order of the declaration. A tuple that is passed stands for several of them, a list for one, as
JSON. What a database would not take is refused here, so that all stores refuse it alike. Rows are converted here, too: to what one
column has, to a named tuple, or to a dataclass, which may have times and types of JSON where the database has seconds and texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from functools import cached_property
from types import GenericAlias, NoneType
from typing import (
    Any,
    Final,
    Generic,
    Literal,
    ParamSpec,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from redrive.core.arguments import stored
from redrive.core.units import instant
from redrive.store.records import Call, Row, json_list

P = ParamSpec("P")
R = TypeVar("R")
_STORED: Final = (int, float, str, bytes, bool, Literal)
"""Types that a column has in the database, too."""


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
            for field, value in _flat(name, given[name]):
                stored(field, value)
                parameters.append(_list_of(field, value) if type(value) is list else value)
        return Call(self.name, tuple(parameters), decoder=self.decode)

    def decode(self, rows: list[Row]) -> list[R]:
        """Return rows as what they were declared to be."""
        if not rows:
            return []
        if self.is_scalar:
            given: list[Any] = [row[0] for row in rows]
        else:
            given = [self._members_of(row) for row in rows] if is_dataclass(self.row) else rows
        found: list[R] = msgspec.convert(given, GenericAlias(list, self.row), strict=False)
        return found

    def _members_of(self, row: Row) -> dict[str, object]:
        """Return the columns of a row by name, those that are times or JSON as such."""
        members: dict[str, Any] = dict(zip(self._columns, row, strict=True))
        for name, read in self._readers:
            if members[name] is not None:
                members[name] = read(members[name])
        return members

    @cached_property
    def row(self) -> type[R]:
        """The type of a row; of its one column, if it has no more."""
        found: type[R] = get_type_hints(self.declared)["return"]
        return found

    @cached_property
    def is_scalar(self) -> bool:
        """Whether a row is the value of its one column."""
        return not hasattr(self.row, "_fields") and not is_dataclass(self.row)

    @cached_property
    def _columns(self) -> Mapping[str, Any]:
        return get_type_hints(self.row)

    @cached_property
    def _readers(self) -> list[tuple[str, Callable[[Any], object]]]:
        """How to read the columns that have another type in the database."""
        kinds = {name: _without_none(declared) for name, declared in self._columns.items()}
        return [
            (name, instant if kind is datetime else msgspec.json.decode)
            for name, kind in kinds.items()
            if (get_origin(kind) or kind) not in _STORED
        ]


def _without_none(declared: Any) -> Any:
    options = get_args(declared)
    return next(each for each in options if each is not NoneType) if NoneType in options else declared


def _flat(name: str, value: object) -> Iterator[tuple[str, object]]:
    """Return what a parameter stands for, with the name of each: all that a tuple has, and the tuples in it."""
    if not isinstance(value, tuple):
        yield name, value
        return
    parts = cast("tuple[object, ...]", value)
    names: tuple[str, ...] = getattr(parts, "_fields", (name,) * len(parts))
    for part, each in zip(names, parts, strict=True):
        yield from _flat(part, each)


def _list_of(name: str, values: Any) -> str:
    """Return a list as JSON; of what is in it, only texts and numbers of its own are looked at."""
    for each in values:
        stored(name, each)
    return json_list(values)


def members_of(row: object) -> dict[str, object]:
    """Return the fields of a row that is a dataclass, by name."""
    return {each.name: getattr(row, each.name) for each in fields(cast("Any", row))}


def statement(declared: Callable[P, R]) -> Statement[P, R]:
    """Declare a named statement."""
    return Statement(declared)
