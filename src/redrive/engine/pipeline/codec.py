# SPDX-License-Identifier: Apache-2.0
"""Typed values to JSON bytes and back: what goes between stages and into the store.

msgspec does the work for dataclasses, Structs, TypedDicts, enums, dates and the built-in types. Models that bring a codec of their
own (`model_dump_json` and `model_validate_json`, as pydantic's do) use it. Nothing is ever pickled.

Text that msgspec copies unread, a `msgspec.Raw` or the JSON of such a model, may be anything. It is checked before it is stored:
otherwise the next stage would fail instead of the one that made it. What JSON cannot hold is refused, never changed: a number that
is not finite would become null, and of two keys with the same text one would be lost.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, cast

import msgspec
from msgspec import Raw, inspect

from redrive.errors import SerializationError


def _own_json(value: object) -> Raw:
    """Return the JSON that a value of a type unknown to msgspec makes of itself."""
    dump = getattr(value, "model_dump_json", None)
    if not callable(dump):
        problem = f"Encoding objects of type {type(value).__name__} is unsupported"
        raise TypeError(problem)
    made = str(dump()).encode()
    _READ_OVER(made)
    return Raw(made)


_READ_OVER: Final = msgspec.json.Decoder(Raw).decode
"""Checks that a text is one JSON value without decoding it, at a fraction of the cost."""
_ENCODER: Final = msgspec.json.Encoder(enc_hook=_own_json)
_DECODE: Final = msgspec.json.Decoder().decode
PLACES_MAX: Final = 5
"""An error names at most so many wrong places of a value."""
_QUOTED: Final = re.compile(r"'[^']*'")
DEPTH_MAX: Final = 200
"""Lists and objects may be nested so deep. pydantic reads no more, and other decoders give up below a thousand."""
_SHORT: Final = 2 * DEPTH_MAX
"""A text of so many bytes cannot be nested deeper."""
_ANYTHING: Final = (inspect.AnyType, inspect.RawType, inspect.CustomType)
"""Types whose values may contain text that is copied unread."""
_EXACT: Final = frozenset({int, str, bool})
"""Types whose values contain nothing of another type."""
_NOT_FINITE: Final = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")
"""How numbers that are not finite begin in MessagePack; other bytes may look like this."""
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_AS_LISTS: Final = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))


@dataclass(frozen=True, slots=True)
class Codec:
    """Encodes and decodes values of one type. `None` as the type accepts any JSON."""

    name: str
    decode: Callable[[bytes], object]
    is_open: bool = True
    """False when the type bounds the depth of its values, and leaves no room for text that is copied unread."""
    kind: object = None
    has_floats: bool = True
    """False when its values contain no number that may be infinite, or none."""

    def encode(self, value: object) -> bytes:
        """Return the value as JSON; raises SerializationError if JSON cannot hold it, or it is nested too deep to be read."""
        try:
            encoded = _ENCODER.encode(value)
            if self.is_open or type(value) is Raw:
                if len(encoded) > _SHORT and is_deep(encoded):
                    raise RecursionError  # noqa: TRY301 - as the encoder does, only later.
                # It is the same again unless text was copied unread, or two keys became one.
                if _ENCODER.encode(_DECODE(encoded)) != encoded:
                    check_keys(value)
            if self.has_floats and b"null" in encoded:
                check_numbers(value)
        except Exception as error:  # noqa: BLE001 - a type may raise anything when it encodes itself.
            problem = _encoding_problem(error)
            # Without the cause: a library's own text may quote the value, and would stand in the stack.
            raise SerializationError(where=self.name, kind=type(value).__name__, problem=problem) from None
        return encoded

    def seal(self, value: object) -> bytes:
        """Return the value as JSON that its type can decode; raises SerializationError when it cannot."""
        encoded = self.encode(value)
        if self.kind is not None and not (
            # A model has validated itself when it was made.
            type(value) is self.kind and (type(value) in _EXACT or hasattr(value, "model_validate_json"))
        ):
            self.check(encoded)
        return encoded

    def check(self, encoded: bytes) -> object:
        """Decode a value; raises SerializationError naming the field that does not fit."""
        try:
            return self.decode(encoded)
        except Exception as error:  # noqa: BLE001 - a type may raise anything when it decodes itself.
            raise SerializationError(where=self.name, kind="JSON", problem=describe_mismatch(error)) from None


def check_keys(value: object) -> None:
    """Refuse a value with two keys that are the same text in JSON, such as 1 and "1"; raises ValueError."""
    for part in _containers(value):
        if isinstance(part, dict) and len({_ENCODER.encode({key: 0}) for key in part}) < len(part):
            problem = "two keys of an object are the same text in JSON, and one of them would be lost"
            raise ValueError(problem)


def check_numbers(value: object) -> None:
    """Refuse a value with a number that is not finite, which JSON cannot hold; raises ValueError."""
    # Most values with a null have none: this finds that out at the speed of encoding, unless a number is too large for it.
    with suppress(OverflowError):
        if not _NOT_FINITE.search(_PACK(value)):
            return
    for part in _containers(value):
        members = part.values() if isinstance(part, dict) else part
        if any(isinstance(each, float) and not math.isfinite(each) for each in members):
            problem = "it contains NaN or an infinite number, which JSON cannot hold"
            raise ValueError(problem)


def _containers(value: object) -> Iterator[dict[object, object] | list[object]]:
    """Yield the lists and objects that a value consists of, and first one with the value itself."""
    waiting: list[object] = [[msgspec.to_builtins(value, enc_hook=_as_builtin)]]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict | list | tuple | set | frozenset):
            found = cast("dict[object, object] | list[object]", part)
            yield found
            waiting += found.values() if isinstance(found, dict) else found


def _as_builtin(value: object) -> object:
    """Return what stands for a value of a type unknown to msgspec; text that is copied unread has been read."""
    dump = getattr(value, "model_dump", None)
    return dump() if callable(dump) else None


_PACK: Final = msgspec.msgpack.Encoder(enc_hook=_as_builtin).encode


def is_deep(encoded: bytes) -> bool:
    """Return whether JSON is nested deeper than `DEPTH_MAX`; for most values counting brackets is enough."""
    # Counting all of them takes long. Replacing only so many finds out the same at the speed of a search.
    rest = encoded.replace(b"[", b"", DEPTH_MAX + 1).replace(b"{", b"", DEPTH_MAX + 1)
    if len(encoded) - len(rest) <= DEPTH_MAX:
        return False
    # Strings may contain brackets as well, but finding the strings takes longer than all the rest.
    return _outlasts(encoded) and _outlasts(_STRING.sub(b"", encoded))


def _outlasts(text: bytes) -> bool:
    """Return whether brackets are left after removing the innermost pairs `DEPTH_MAX` times."""
    left = text.translate(_AS_LISTS, _NO_BRACKETS)
    for _ in range(DEPTH_MAX):
        before = len(left)
        left = left.replace(b"[]", b"")
        if len(left) == before:
            # Nothing is left, or only unmatched brackets, which belong to strings.
            break
    return bool(left)


def _encoding_problem(error: Exception) -> str:
    """Describe why a value does not become JSON; messages of libraries are safe here: they name types and places."""
    match error:
        case RecursionError():
            return f"it is nested deeper than {DEPTH_MAX} levels"
        case UnicodeDecodeError():
            return f"the JSON text of a Raw or a model in it is {describe_mismatch(error)}"
        case msgspec.DecodeError():
            return (
                f"the JSON text of a Raw or a model in it is not one JSON value: {describe_mismatch(error)}"
            )
        case _:
            return str(error)


def describe_mismatch(error: Exception) -> str:
    """Describe where and how a value does not fit its type, without the value itself, which libraries quote."""
    errors = getattr(error, "errors", None)
    if callable(errors):
        # pydantic's messages quote the input, its places and kinds do not.
        return "; ".join(_place(each) for each in cast("list[dict[str, object]]", errors())[:PLACES_MAX])
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
    """Return a text that every store can take: what is not Unicode, such as a lone surrogate in a file name, is escaped."""
    return text.encode("utf-8", "backslashreplace").decode()


def codec_for(name: str, kind: object) -> Codec:
    """Return the codec of a type; errors mention `name`. `object` and None accept any JSON."""
    validate = getattr(kind, "model_validate_json", None)
    if callable(validate):
        return Codec(name, cast("Callable[[bytes], object]", validate), kind=kind)
    if kind is None or kind is object:
        return Codec(name, msgspec.json.Decoder().decode)
    try:
        decode = msgspec.json.Decoder(cast("type[object]", kind)).decode
        info = inspect.type_info(kind)
        floats = _contains(info, (*_ANYTHING, inspect.FloatType))
        return Codec(name, decode, is_open=_is_open(info), kind=kind, has_floats=floats)
    except TypeError as error:
        raise SerializationError(where=name, kind=str(kind), problem=str(error)) from error


def _is_open(info: object, *above: object) -> bool:
    """Return whether a value of this type may contain anything, or the type contains itself."""
    if isinstance(info, _ANYTHING) or any(each is info for each in above):
        return True
    if isinstance(info, inspect.DictType) and not isinstance(info.key_type, inspect.StrType):
        # Keys that are no texts may become the same one.
        return True
    return any(_is_open(part, *above, info) for part in _parts(info))


def _contains(info: object, kinds: tuple[type, ...], *above: object) -> bool:
    """Return whether a type consists of one of these kinds."""
    if isinstance(info, kinds):
        return True
    inner = (part for part in _parts(info) if not any(part is each for each in (*above, info)))
    return any(_contains(part, kinds, *above, info) for part in inner)


def _parts(info: object) -> Iterator[object]:
    """Yield the types that a type consists of."""
    for name in getattr(info, "__struct_fields__", ()):
        part = getattr(info, name)
        for each in cast("tuple[object, ...]", part) if isinstance(part, tuple) else (part,):
            if isinstance(each, inspect.Field):
                yield each.type
            elif isinstance(each, inspect.Type):
                yield each
