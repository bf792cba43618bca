# SPDX-License-Identifier: Apache-2.0
"""Redaction of structures: mappings, sequences and scalars, returned as new structures of the same shape.

Values under secret names are replaced whole, everything else is redacted as text. The input is never changed. Cycles,
depth and size are bounded; objects of unknown types are shown as their redacted repr, because somebody may print them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Final, cast
from uuid import UUID

from redrive.redaction.named.names import Telling, telling
from redrive.redaction.named.values import is_inert, is_pin, is_random
from redrive.redaction.placeholders import placeholder

DEPTH_MAX: Final = 64
"""What is nested deeper than this is replaced by `<redacted:depth>`."""

NUMBER_MIN: Final = 10**8
"""Whole numbers from this size on are looked at as text: they may be a card or an id number."""

_HARMLESS: Final = (float, complex, Decimal, date, time, timedelta, UUID)
_ALWAYS_SECRET: Final = frozenset({"session", "auth", "dsn", "pin"})
_BARE_NUMBER: Final = re.compile(r"[0-9]{9,15}")
_PAIR: Final = 2


class Walk:
    """One walk over one structure."""

    __slots__ = ("_done", "_open", "_redact")

    def __init__(self, redact: Callable[[str], str]) -> None:
        """Walk with `redact` for every text on the way."""
        self._redact = redact
        self._open: set[int] = set()
        self._done: dict[int, object] = {}

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
        # A number of more digits than any card has cannot be one, and turning it into text could be slow or refused.
        if not NUMBER_MIN <= value < 10**20:
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
        except Exception:  # noqa: BLE001 - a repr is foreign code; its failure may not keep a dead letter from being written.
            return placeholder("unprintable")

    def _container(self, value: Mapping[object, object] | list[object], depth: int) -> object:
        """Redact a container once, however often it is met."""
        key = id(value)
        if key in self._open:
            return placeholder("cycle")
        if key in self._done:
            return self._done[key]
        if depth >= DEPTH_MAX:
            return placeholder("depth")
        self._open.add(key)
        result = self._mapping(value, depth) if isinstance(value, Mapping) else self._sequence(value, depth)
        self._open.discard(key)
        self._done[key] = result
        return result

    def _mapping(self, value: Mapping[object, object], depth: int) -> dict[object, object]:
        result: dict[object, object] = {}
        named = _named_value(value)
        for key, item in value.items():
            said = named if named is not None and key in ("value", "Value") else _telling_key(key)
            shown = self._key(key)
            while shown in result:
                shown = f"{shown}'"
            told = self._told(key, item) if said is None else None
            result[shown] = self._under(said, item, depth) if told is None else told
        return result

    def _told(self, key: object, item: object) -> str | None:
        """Return the placeholder for a bare number that is personal because of its name, such as `phone`."""
        if (
            not isinstance(key, str)
            or not isinstance(item, (str, int))
            or not _BARE_NUMBER.fullmatch(str(item))
        ):
            return None
        shown = self._redact(f"{key}: {item}")
        return shown[len(key) + 2 :] if shown.startswith(f"{key}: <redacted:") else None

    def _key(self, key: object) -> object:
        return self._redact(key) if isinstance(key, str) else key

    def _under(self, said: Telling | None, item: object, depth: int) -> object:
        """Redact a value that stands under a name."""
        if said is None:
            return self.value(item, depth + 1)
        text = item.decode("utf-8", "replace") if isinstance(item, (bytes, bytearray)) else item
        if not said.certain:
            if isinstance(item, list):
                return [self._under(said, part, depth + 1) for part in cast("list[object]", item)]
            is_secret = isinstance(text, str) and is_random(text)
            return placeholder(said.kind) if is_secret else self.value(item, depth + 1)
        is_nothing = item is None or isinstance(item, bool) or (isinstance(text, str) and is_inert(text))
        if said.kind == "pin" and isinstance(text, (str, int)):
            # The pin of a circuit has a small number, or a name.
            is_nothing = not is_pin(str(text))
        return self.value(item, depth + 1) if is_nothing else placeholder(said.kind)

    def _sequence(self, value: list[object], depth: int) -> object:
        is_pairs = isinstance(value, (list, tuple)) and bool(value) and all(_is_pair(item) for item in value)
        names = cast("tuple[str, ...]", getattr(value, "_fields", ()))
        if is_pairs:
            items = [self._pair(cast("list[object]", item), depth) for item in value]
        elif len(names) == len(value):
            items = [
                self._under(_telling_key(name), item, depth) for name, item in zip(names, value, strict=True)
            ]
        else:
            items = self._arguments(value, depth)
        if isinstance(value, list):
            return items
        if isinstance(value, tuple):
            return tuple(items)
        return type(value)(items)

    def _arguments(self, value: list[object], depth: int) -> list[object]:
        """Redact the items of a sequence; the one after a flag such as `--password` stands under its name."""
        items: list[object] = []
        before: object = None
        for item in value:
            is_flag = isinstance(before, str) and before.startswith("--") and isinstance(item, str)
            said = _telling_key(before) if is_flag and not str(item).startswith("-") else None
            items.append(self._under(said, item, depth))
            before = item
        return items

    def _pair(self, item: list[object], depth: int) -> object:
        first, second = item
        pair = [self.value(first, depth + 2), self._under(_telling_key(first), second, depth + 1)]
        return tuple(pair) if isinstance(item, tuple) else pair


def _is_pair(item: object) -> bool:
    return (
        isinstance(item, (list, tuple))
        and len(cast("list[object]", item)) == _PAIR
        and isinstance(item[0], (str, bytes))
    )


def _telling_key(key: object) -> Telling | None:
    """Return what a key says; keys that are neither text nor bytes say nothing."""
    if isinstance(key, bytes):
        key = key.decode("utf-8", "replace")
    if not isinstance(key, str):
        return None
    if key.lower() in _ALWAYS_SECRET:
        return Telling("secret", certain=True)
    return telling(key)


def _named_value(value: Mapping[object, object]) -> Telling | None:
    """Return what the name in `{"name": "DB_PASSWORD", "value": ...}` says."""
    name = next((value[key] for key in ("name", "Name", "key", "Key") if key in value), None)
    return _telling_key(name) if isinstance(name, (str, bytes)) else None
