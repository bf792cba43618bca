# SPDX-License-Identifier: Apache-2.0
"""Typed values to JSON bytes and back: what goes between stages and into the store.

msgspec does the work for dataclasses, Structs, TypedDicts, enums, dates and the built-in types. Models that bring a codec of their
own (`model_dump_json` and `model_validate_json`, as pydantic's do) use it. Nothing is ever pickled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

import msgspec

from redrive.errors import SerializationError

_ENCODER: Final = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Codec:
    """How values of one type become bytes and come back. `None` as the type means: whatever JSON holds."""

    name: str
    decode: Callable[[bytes], object]

    def encode(self, value: object) -> bytes:
        """Return the value as JSON; raises SerializationError for what JSON cannot hold."""
        dump = getattr(value, "model_dump_json", None)
        try:
            if callable(dump):
                return str(dump()).encode()
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
            raise SerializationError(where=self.name, kind="JSON", problem=str(error)) from error


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
