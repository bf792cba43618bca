# SPDX-License-Identifier: Apache-2.0
"""Typed values to JSON bytes and back: what goes between stages and into the store.

msgspec does the work for dataclasses, Structs, TypedDicts, enums, dates and the built-in types. Models that bring a codec of their
own (`model_dump_json` and `model_validate_json`, as pydantic's do) use it. Nothing is ever pickled.

Text that msgspec takes over as it is, a `msgspec.Raw` or what such a model makes of itself, may be anything. It is looked at before
it goes into the store: there it would fail whoever comes next instead of the stage that made it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, cast

import msgspec
from msgspec import Raw, inspect

from redrive.errors import SerializationError


def _own_json(value: object) -> Raw:
    """Return what a value of a type msgspec does not know makes of itself."""
    dump = getattr(value, "model_dump_json", None)
    if not callable(dump):
        problem = f"Encoding objects of type {type(value).__name__} is unsupported"
        raise TypeError(problem)
    made = str(dump()).encode()
    _READ_OVER(made)
    return Raw(made)


_READ_OVER: Final = msgspec.json.Decoder(Raw).decode
"""Finds out whether a text is one JSON value without making anything of it, at a fraction of what decoding costs."""
_ENCODER: Final = msgspec.json.Encoder(enc_hook=_own_json)
PLACES_MAX: Final = 5
"""So many wrong places of a value are named."""
_QUOTED: Final = re.compile(r"'[^']*'")
DEPTH_MAX: Final = 200
"""So many lists and objects may stand inside each other. pydantic reads no more, and other decoders give up below a thousand."""
_SHORT: Final = 2 * DEPTH_MAX
"""In a text of so many bytes there is no room for more brackets than that."""
_ANYTHING: Final = (inspect.AnyType, inspect.RawType, inspect.CustomType)
"""Types whose values bring text along, or may."""
_EXACT: Final = frozenset({int, str, bool})
"""Of these there is nothing inside that could be of another type."""
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_AS_LISTS: Final = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))


@dataclass(frozen=True, slots=True)
class Codec:
    """How values of one type become bytes and come back. `None` as the type means: whatever JSON holds."""

    name: str
    decode: Callable[[bytes], object]
    is_open: bool = True
    """False when by its type a value has a bounded depth, and no place for text that is taken over as it is."""
    kind: object = None

    def encode(self, value: object) -> bytes:
        """Return the value as JSON; raises SerializationError for what JSON cannot hold, or what is nested too deep to be read."""
        try:
            encoded = _ENCODER.encode(value)
            if self.is_open or type(value) is Raw:
                _READ_OVER(encoded)
                if not encoded.isascii():
                    # Strings are only read over.
                    str(encoded, "utf-8")
                if len(encoded) > _SHORT and is_deep(encoded):
                    raise RecursionError  # noqa: TRY301 - it is what the encoder says as well, only later.
        except Exception as error:
            problem = _refused(error)
            raise SerializationError(where=self.name, kind=type(value).__name__, problem=problem) from error
        return encoded

    def seal(self, value: object) -> bytes:
        """Return the value as JSON that can be read back by its type; raises SerializationError when it is of another one."""
        encoded = self.encode(value)
        if self.kind is not None and not (
            type(value) is self.kind and (type(value) in _EXACT or _is_model(value))
        ):
            self.check(encoded)
        return encoded

    def check(self, encoded: bytes) -> object:
        """Return the value these bytes hold; raises SerializationError naming the field that does not fit."""
        try:
            return self.decode(encoded)
        except Exception as error:
            raise SerializationError(where=self.name, kind="JSON", problem=told_of(error)) from error


def _is_model(value: object) -> bool:
    """Say whether a value has checked itself when it was made."""
    return hasattr(value, "model_validate_json")


def is_deep(encoded: bytes) -> bool:
    """Say whether JSON is nested deeper than `DEPTH_MAX`; of most values this looks at no more than the number of brackets."""
    # Counting takes long. To replace only so many finds out the same, and does it with the speed of a search.
    rest = encoded.replace(b"[", b"", DEPTH_MAX + 1).replace(b"{", b"", DEPTH_MAX + 1)
    if len(encoded) - len(rest) <= DEPTH_MAX:
        return False
    # Texts may hold brackets as well, but to find the texts takes longer than all the rest.
    return _outlasts(encoded) and _outlasts(_STRING.sub(b"", encoded))


def _outlasts(text: bytes) -> bool:
    """Say whether brackets are left after the innermost pairs were taken away again and again."""
    left = text.translate(_AS_LISTS, _NO_BRACKETS)
    for _ in range(DEPTH_MAX):
        before = len(left)
        left = left.replace(b"[]", b"")
        if len(left) == before:
            # Nothing left, or only what has no other half: that stood in a text.
            break
    return bool(left)


def _refused(error: Exception) -> str:
    """Say why a value does not become JSON; what libraries say here is about types and places."""
    match error:
        case RecursionError():
            return f"it is nested deeper than {DEPTH_MAX} levels"
        case UnicodeDecodeError():
            return f"text that it brings along as JSON is {told_of(error)}"
        case msgspec.DecodeError():
            return f"text that it brings along as JSON is not one JSON value: {told_of(error)}"
        case _:
            return str(error)


def told_of(error: Exception) -> str:
    """Say where and how a value does not fit, without a word of the value: what libraries say quotes it."""
    told = getattr(error, "errors", None)
    if callable(told):
        # As pydantic has it: its texts quote the input, its places and kinds do not.
        return "; ".join(_place(each) for each in cast("list[dict[str, object]]", told())[:PLACES_MAX])
    if isinstance(error, msgspec.MsgspecError):
        return _QUOTED.sub("'...'", str(error))
    if isinstance(error, RecursionError):
        return "nested too deep"
    if isinstance(error, UnicodeDecodeError):
        return f"no valid UTF-8 (byte {error.start} of a text)"
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
        return Codec(name, cast("Callable[[bytes], object]", validate), kind=kind)
    if kind is None or kind is object:
        return Codec(name, msgspec.json.Decoder().decode)
    try:
        decode = msgspec.json.Decoder(cast("type[object]", kind)).decode
        return Codec(name, decode, is_open=_is_open(inspect.type_info(kind)), kind=kind)
    except TypeError as error:
        raise SerializationError(where=name, kind=str(kind), problem=str(error)) from error


def _is_open(info: object, *above: object) -> bool:
    """Say whether anything may stand in a value of this type, or the type in itself."""
    if isinstance(info, _ANYTHING) or any(each is info for each in above):
        return True
    return any(_is_open(part, *above, info) for part in _parts(info))


def _parts(info: object) -> Iterator[object]:
    """Yield the types that a type is made of."""
    for name in getattr(info, "__struct_fields__", ()):
        part = getattr(info, name)
        for each in cast("tuple[object, ...]", part) if isinstance(part, tuple) else (part,):
            if isinstance(each, inspect.Field):
                yield each.type
            elif isinstance(each, inspect.Type):
                yield each
