# SPDX-License-Identifier: Apache-2.0
"""Redact structures: mappings, sequences and scalars, returned as new structures of the same shape.

Values under secret names are replaced as a whole, everything else is redacted as text. The input is never changed. Cycles,
depth and size are bounded; an object of an unknown type becomes its redacted repr, because it may be printed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Final, cast
from uuid import UUID

from redrive.redaction.named.names import NameMeaning, meaning_of_name
from redrive.redaction.named.values import is_inert, is_pin, is_random
from redrive.redaction.placeholders import placeholder

DEPTH_MAX: Final = 64
"""Deeper values are replaced by `<redacted:depth>`."""

_HARMLESS: Final = (float, complex, Decimal, date, time, timedelta, UUID)
_ALWAYS_SECRET: Final = frozenset({"session", "auth", "dsn", "pin"})
_BARE_NUMBER: Final = re.compile(r"[0-9]{9,15}")


class StructureRedactor:
    """Redacts one structure."""

    __slots__ = ("_done", "_redact")

    def __init__(self, redact: Callable[[str], str]) -> None:
        """Use `redact` for every text."""
        self._redact = redact
        self._done: dict[int, tuple[object, object]] = {}
        """Containers by id, with their results. They are kept: the id of a value that a mapping made for us would be used again."""

    def value(self, value: object, depth: int = 0) -> object:
        """Return `value` redacted."""
        if isinstance(value, str):
            return self._redact(value)
        if value is None or isinstance(value, (bool, *_HARMLESS)):
            return value
        if isinstance(value, int):
            return self._number(value)
        if isinstance(value, (bytes, bytearray)):
            return self._bytes(value)
        if isinstance(value, (Mapping, list, tuple, set, frozenset)):
            return self._container(cast("Mapping[object, object] | list[object]", value), depth)
        return self._unknown(value)

    def _number(self, value: int) -> object:
        # Only numbers of this size may be a card or an id; converting a much larger one to text may be slow or raise.
        if not 10**8 <= value < 10**20:
            return value
        shown = str(value)
        redacted = self._redact(shown)
        return value if redacted == shown else redacted

    def _bytes(self, value: bytes | bytearray) -> object:
        text = value.decode("utf-8", "surrogateescape")
        redacted = self._redact(text)
        return bytes(value) if redacted == text else redacted.encode("utf-8", "surrogateescape")

    def _unknown(self, value: object) -> object:
        try:
            return self._redact(repr(value))
        except Exception:  # noqa: BLE001 - a repr is foreign code; its failure must not prevent writing a dead letter.
            return placeholder("unprintable")

    def _container(self, value: Mapping[object, object] | list[object], depth: int) -> object:
        """Redact a container once, even if it occurs several times."""
        key = id(value)
        if key in self._done:
            return self._done[key][1]
        if depth >= DEPTH_MAX:
            return placeholder("depth")
        # The answer for a container inside itself.
        self._done[key] = value, placeholder("cycle")
        result = self._mapping(value, depth) if isinstance(value, Mapping) else self._sequence(value, depth)
        self._done[key] = value, result
        return result

    def _mapping(self, value: Mapping[object, object], depth: int) -> dict[object, object]:
        result: dict[object, object] = {}
        named = _named_value(value)
        for key, item in value.items():
            meaning = named if named is not None and key in ("value", "Value") else _meaning_of_key(key)
            shown = self._redact(key) if isinstance(key, str) else key
            while shown in result:
                shown = f"{shown}'"
            personal = self._personal_number(key, item) if meaning is None else None
            result[shown] = personal or self._under(meaning, item, depth)
        return result

    def _personal_number(self, key: object, item: object) -> str | None:
        """Return the placeholder for a number that is personal because of its name, such as `phone`."""
        is_number = isinstance(item, (str, int)) and _BARE_NUMBER.fullmatch(str(item))
        if not isinstance(key, str) or not is_number:
            return None
        shown = self._redact(f"{key}: {item}")
        return shown[len(key) + 2 :] if shown.startswith(f"{key}: <redacted:") else None

    def _under(self, meaning: NameMeaning | None, item: object, depth: int) -> object:
        """Redact the value of a name."""
        if meaning is None:
            return self.value(item, depth + 1)
        text = item.decode("utf-8", "replace") if isinstance(item, (bytes, bytearray)) else item
        if not meaning.certain:
            if isinstance(item, list):
                return [self._under(meaning, part, depth + 1) for part in cast("list[object]", item)]
            is_secret = isinstance(text, str) and is_random(text, meaning.kept)
            return placeholder(meaning.kind) if is_secret else self.value(item, depth + 1)
        is_nothing = item is None or isinstance(item, bool) or (isinstance(text, str) and is_inert(text))
        if meaning.kind == "pin" and isinstance(text, (str, int)):
            # The pin of an electronic circuit is a small number or a name.
            is_nothing = not is_pin(str(text))
        return self.value(item, depth + 1) if is_nothing else placeholder(meaning.kind)

    def _sequence(self, value: list[object], depth: int) -> object:
        is_pairs = isinstance(value, (list, tuple)) and bool(value) and all(_is_pair(item) for item in value)
        names = cast("tuple[str, ...]", getattr(value, "_fields", ()))
        if is_pairs:
            items = [self._pair(cast("list[object]", item), depth) for item in value]
        elif len(names) == len(value):
            items = [
                self._under(_meaning_of_key(name), item, depth)
                for name, item in zip(names, value, strict=True)
            ]
        else:
            items = self._arguments(value, depth)
        if isinstance(value, list):
            return items
        if isinstance(value, tuple):
            return tuple(items)
        return type(value)(items)

    def _arguments(self, value: list[object], depth: int) -> list[object]:
        """Redact the items of a sequence; a flag such as `--password` is the name of the next item."""
        items: list[object] = []
        before: object = None
        for item in value:
            is_flag = isinstance(before, str) and before.startswith("--") and isinstance(item, str)
            meaning = _meaning_of_key(before) if is_flag and not str(item).startswith("-") else None
            items.append(self._under(meaning, item, depth))
            before = item
        return items

    def _pair(self, item: list[object], depth: int) -> object:
        first, second = item
        pair = [self.value(first, depth + 2), self._under(_meaning_of_key(first), second, depth + 1)]
        return tuple(pair) if isinstance(item, tuple) else pair


def _is_pair(item: object) -> bool:
    pair = cast("list[object]", item) if isinstance(item, (list, tuple)) else []
    return len(pair) == 2 and isinstance(pair[0], (str, bytes))


def _meaning_of_key(key: object) -> NameMeaning | None:
    """Return the meaning of a key; None for a key that is neither text nor bytes."""
    if isinstance(key, bytes):
        key = key.decode("utf-8", "replace")
    if not isinstance(key, str):
        return None
    if key.lower() in _ALWAYS_SECRET:
        return NameMeaning("secret", certain=True)
    return meaning_of_name(key)


def _named_value(value: Mapping[object, object]) -> NameMeaning | None:
    """Return the meaning of the name in `{"name": "DB_PASSWORD", "value": ...}`."""
    name = next((value[key] for key in ("name", "Name", "key", "Key") if key in value), None)
    return _meaning_of_key(name) if isinstance(name, (str, bytes)) else None
