# SPDX-License-Identifier: Apache-2.0
"""Typed values to JSON bytes and back: what goes between stages and into the store.

msgspec does the work for dataclasses, Structs, TypedDicts, enums, dates and the built-in types. Models that bring a codec of their
own (`model_dump_json` and `model_validate_json`, as pydantic's do) use it. Nothing is ever pickled.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

import msgspec

from redrive.errors import SerializationError


def _own_json(value: object) -> msgspec.Raw:
    """Return what a value of a type msgspec does not know makes of itself."""
    dump = getattr(value, "model_dump_json", None)
    if not callable(dump):
        problem = f"Encoding objects of type {type(value).__name__} is unsupported"
        raise TypeError(problem)
    return msgspec.Raw(str(dump()).encode())


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_own_json)
PLACES_MAX: Final = 5
"""So many wrong places of a value are named."""
_QUOTED: Final = re.compile(r"'[^']*'")


@dataclass(frozen=True, slots=True)
class Codec:
    """How values of one type become bytes and come back. `None` as the type means: whatever JSON holds."""

    name: str
    decode: Callable[[bytes], object]

    def encode(self, value: object) -> bytes:
        """Return the value as JSON; raises SerializationError for what JSON cannot hold."""
        try:
            return _ENCODER.encode(value)
        except Exception as error:
            raise SerializationError(
                where=self.name, kind=type(value).__name__, problem=str(error)
            ) from error

    def check(self, encoded: bytes) -> object:
        """Return the value these bytes hold; raises SerializationError naming the field that does not fit."""
        try:
            return self.decode(encoded)
        except Exception as error:
            raise SerializationError(where=self.name, kind="JSON", problem=told_of(error)) from error


def told_of(error: Exception) -> str:
    """Say where and how a value does not fit, without a word of the value: what libraries say quotes it."""
    told = getattr(error, "errors", None)
    if callable(told):
        # As pydantic has it: its texts quote the input, its places and kinds do not.
        return "; ".join(_place(each) for each in cast("list[dict[str, object]]", told())[:PLACES_MAX])
    if isinstance(error, msgspec.MsgspecError):
        return _QUOTED.sub("'...'", str(error))
    return type(error).__name__


def _place(error: dict[str, object]) -> str:
    where = ".".join(str(part) for part in cast("tuple[object, ...]", error.get("loc", ())))
    return f"{error.get('type', 'wrong')} at {where or 'the top'}"


def storable(text: str) -> str:
    """Return a text that every store can take: what is no Unicode, such as half of a pair in a file name, is spelled out."""
    return text.encode("utf-8", "backslashreplace").decode()


def codec_for(name: str, kind: object) -> Codec:
    """Return the codec of a type; `name` says in errors whose value it is. `object` and None take whatever JSON holds."""
    validate = getattr(kind, "model_validate_json", None)
    if callable(validate):
        return Codec(name, cast("Callable[[bytes], object]", validate))
    if kind is None or kind is object:
        return Codec(name, msgspec.json.Decoder().decode)
    try:
        return Codec(name, msgspec.json.Decoder(cast("type[object]", kind)).decode)
    except TypeError as error:
        raise SerializationError(where=name, kind=str(kind), problem=str(error)) from error
