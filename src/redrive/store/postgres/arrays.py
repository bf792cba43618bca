# SPDX-License-Identifier: Apache-2.0
"""How values pass between Python and PostgreSQL, so that rows look as the embedded store gives them.

A whole column of a batch is one parameter, encoded at once: psycopg would look at every element for its type. Whole numbers go as
bigint and text as text, whatever they are compared with. Flags come back as 0 and 1, sums as int, JSON as text.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from psycopg import Connection
from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import Dumper, Loader
from psycopg.pq import Format
from psycopg.types.numeric import NumericBinaryLoader
from psycopg.types.string import StrBinaryDumper, TextBinaryLoader

BIGINT, DOUBLE, TEXT, BYTEA = 20, 701, 25, 17
NULL: Final = struct.pack(">i", -1)
Encode = Callable[[Any], bytes]


class Column:
    """One column of a batch, encoded as an array."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


class Bigints(Column):
    """Whole numbers."""


class Doubles(Column):
    """Instants and durations."""


class Texts(Column):
    """Texts."""


class Values(Column):
    """Bytes."""


def _sized(data: bytes | bytearray) -> bytes:
    return len(data).to_bytes(4, "big") + data


def _sized_text(value: str) -> bytes:
    return _sized(value.encode())


_KINDS: Final[dict[str, tuple[type[Column], int, Encode]]] = {
    "bigint": (Bigints, BIGINT, partial(struct.Struct(">iq").pack, 8)),
    "double precision": (Doubles, DOUBLE, partial(struct.Struct(">id").pack, 8)),
    "text": (Texts, TEXT, _sized_text),
    "bytea": (Values, BYTEA, _sized),
}
_NUMBERS: Final = {"bigint": "q", "double precision": "d"}
_NUMBER_BYTES: Final = 8
_EMPTY_NUMBER: Final = struct.pack(">iq", _NUMBER_BYTES, 0)


def column(kind: str, values: Sequence[object]) -> Column:
    """Return a column of a batch as an array of a type.

    Raises:
        struct.error, UnicodeError: a value does not fit the type.
    """
    made, element, encode = _KINDS[kind]
    has_null = None in values
    head = struct.pack(">iiiii", 1, int(has_null), element, len(values), 1)
    if not values:
        return made(struct.pack(">iii", 0, 0, element))
    if kind in _NUMBERS and not has_null:
        return made(head + _sized_numbers(_NUMBERS[kind], values))
    if kind == "text":
        # Most columns of a batch have few values: names, codes, outcomes.
        encoded = {value: NULL if value is None else encode(value) for value in set(values)}
        return made(head + b"".join([encoded[value] for value in values]))
    return made(head + b"".join([NULL if value is None else encode(value) for value in values]))


def _sized_numbers(kind: str, values: Sequence[object]) -> bytes:
    """Return numbers, each with its size before it; the first bytes of all, then the second ones, which is three times as fast."""
    packed = struct.pack(f">{len(values)}{kind}", *values)
    sized = bytearray(_EMPTY_NUMBER * len(values))
    for place in range(_NUMBER_BYTES):
        sized[4 + place :: 4 + _NUMBER_BYTES] = packed[place::_NUMBER_BYTES]
    return bytes(sized)


class CopyWriter:
    """Jobs as `copy_jobs` takes them, in binary form. What most of a batch have alike is encoded once."""

    _HEAD: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
    _END: Final = struct.pack(">h", -1)
    _MINE: Final = struct.Struct(">hiqidii")

    def __init__(self) -> None:
        self._parts = [self._HEAD]
        self._alike: dict[tuple[object, ...], bytes] = {}

    def add(
        self,
        turn: tuple[int, float, int],
        alike: tuple[object, ...],
        ordinal: int | None,
        value: bytes | None,
    ) -> None:
        """Add a row; its turn is the id, the due time and the priority."""
        id_, run_at, priority = turn
        self._parts += (
            self._MINE.pack(5 + len(alike), 8, id_, 8, run_at, 4, priority),
            self._alike.get(alike) or self._shared(alike),
            NULL if ordinal is None else _field(ordinal),
            NULL if value is None else _sized(value),
        )

    def encoded(self) -> bytes:
        """Return all rows, encoded."""
        return b"".join((*self._parts, self._END))

    def _shared(self, alike: tuple[object, ...]) -> bytes:
        found = self._alike[alike] = b"".join(map(_field, alike))
        return found


def _field(value: object) -> bytes:
    """Return a field of a row: a bigint, a double, text or bytes, with its size before it."""
    match value:
        case None:
            return NULL
        case bytes():
            return _sized(value)
        case str():
            return _sized_text(value)
        case float():
            return _KINDS["double precision"][2](value)
        case _:
            return _KINDS["bigint"][2](value)


class _ColumnDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Column) -> Buffer:
        return obj.data


class _BigintsDumper(_ColumnDumper):
    oid = 1016


class _DoublesDumper(_ColumnDumper):
    oid = 1022


class _TextsDumper(_ColumnDumper):
    oid = 1009


class _ValuesDumper(_ColumnDumper):
    oid = 1001


class _WholeDumper(Dumper):
    """Always a bigint: a number whose type follows from its size would make another statement of it."""

    format = Format.BINARY
    oid = BIGINT

    def dump(self, obj: int) -> Buffer:
        return int(obj).to_bytes(8, "big", signed=True)


class _FlagLoader(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> int:
        return int(bytes(data) == b"\x01")


class _NumberLoader(NumericBinaryLoader):
    """Makes a sum an `int`, and an average, which has decimal places even if it is whole, a `float`."""

    def load(self, data: Buffer) -> Any:
        found = super().load(data)
        exponent = found.as_tuple().exponent
        return int(found) if exponent == 0 else float(found)


class _JsonbLoader(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> str:
        return bytes(data[1:]).decode()


def adapt(connection: Connection[Any]) -> None:
    """Let a connection pass values as said above."""
    known: AdaptContext = connection
    adapters = known.adapters
    if adapters is None:
        return
    for made, dumper in (
        (Bigints, _BigintsDumper),
        (Doubles, _DoublesDumper),
        (Texts, _TextsDumper),
        (Values, _ValuesDumper),
        (int, _WholeDumper),
        (bool, _WholeDumper),
        (str, StrBinaryDumper),
    ):
        adapters.register_dumper(made, dumper)
    for name, loader in (
        ("bool", _FlagLoader),
        ("numeric", _NumberLoader),
        ("json", TextBinaryLoader),
        ("jsonb", _JsonbLoader),
    ):
        adapters.register_loader(name, loader)
