# SPDX-License-Identifier: Apache-2.0
"""JSON values as people may see them: redacted, as a diff, and the places that change, are unknown to a type or lie too deep.

Only looks. A place is a JSON Pointer (RFC 6901) of the redacted value, so that a name which is a secret stays one.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, cast

import jsonpatch
import msgspec
from jsonpointer import escape

from redrive.core.units import plural
from redrive.engine.pipeline.codec import DEPTH_MAX, Codec, is_deep, storable
from redrive.redaction.process import redact, redact_mapping

MARK: Final = re.compile(r"<(?:redacted|payload):[^<>\s]{1,256}>")
"""What a redacted value has in place of a secret."""
PLACES_MAX: Final = 10
PROBES_MAX: Final = 1_000
"""Places that are tried when unknown fields are looked for; each takes two decodes."""
_PROBES: Final = ({"": [None]}, "\x00")
"""Values that no type takes both of, unless it takes whatever comes, or ignores the field."""
_ABSENT: Final = object()
NAMES_MAX: Final = 6
"""Names of a place that are shown: where the nesting begins says more than two hundred of them."""
NAME_MAX: Final = 60
_TOKEN: Final = re.compile(rb'"([^"\\]*(?:\\.[^"\\]*)*)"(\s*:)?|[\[\]{},]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Side:
    """A value, and what is shown of it."""

    raw: object
    clean: object


def redacted_json(encoded: bytes) -> str:
    """Return JSON indented, without secrets and personal facts."""
    clean = redact_mapping(msgspec.json.decode(encoded))
    return msgspec.json.format(msgspec.json.encode(clean), indent=2).decode()


def difference(before: bytes | None, after: bytes, name: str) -> str:
    """Return a unified diff of two values as redacted JSON, and after it how many changes are redacted, and where."""
    # By newlines alone: `splitlines` would also break at characters that JSON allows inside a text.
    old = [] if before is None else redacted_json(before).split("\n")
    new = redacted_json(after).split("\n")
    lines = list(difflib.unified_diff(old, new, f"{name} before", f"{name} after", lineterm=""))
    hidden = [] if before is None else list(_hidden(_side_of(before), _side_of(after), ""))
    if hidden:
        are = "is" if len(hidden) == 1 else "are"
        lines.append(f"({plural(len(hidden), 'change')} {are} redacted: {_listed(hidden)})")
    return "\n".join(lines) or "(only the formatting changes)"


def changed_places(before: bytes | None, after: bytes) -> str:
    """Name the first places at which two values differ, and how many more there are."""
    if before is None:
        return _listed([""])
    patch = jsonpatch.make_patch(msgspec.json.decode(before), msgspec.json.decode(after))
    operations = cast("list[dict[str, str]]", patch.patch)
    places = (operation[name] for operation in operations for name in ("from", "path") if name in operation)
    return _listed(sorted({_redacted_place(place) for place in places}, key=_natural))


def unknown_fields(codec: Codec, encoded: bytes) -> list[str]:
    """Return the places of a value that its type ignores: another value there changes nothing of what the type reads."""
    if codec.kind is None:
        return []
    side = _side_of(encoded)
    read = _round_trip(codec, side.raw)
    if read is None:
        return []
    return list(_Probe(codec, side.raw, read).unknown(side, msgspec.json.decode(read), ""))


class _Probe:
    """Finds fields that a type ignores, by putting other values in their place."""

    def __init__(self, codec: Codec, document: object, read: bytes) -> None:
        self._codec = codec
        self._document = document
        self._read = read
        self._left = PROBES_MAX

    def unknown(self, given: Side, read: object, path: str) -> Iterator[str]:
        """Yield the places within a part that the type ignores; `read` is what the type made of the part."""
        for name, (key, part) in (_parts_of(given) or {}).items():
            found = _part_of(read, key)
            place = _place_in(path, name)
            if found is not _ABSENT and _text(found) == _text(part.raw):
                continue
            is_whole = type(found) not in {dict, list}
            if is_whole and isinstance(key, str) and self._is_ignored(given.raw, key):
                yield place
            else:
                yield from self.unknown(part, found, place)

    def _is_ignored(self, holder: object, key: str) -> bool:
        fields = cast("dict[str, object]", holder)
        value = fields[key]
        self._left -= 1
        try:
            for probe in _PROBES:
                fields[key] = probe
                if self._left < 0 or _round_trip(self._codec, self._document) != self._read:
                    return False
        finally:
            fields[key] = value
        return True


def _round_trip(codec: Codec, document: object) -> bytes | None:
    """Return what a type reads of a value, encoded again; None if it refuses the value."""
    try:
        return codec.encode(codec.decode(msgspec.json.encode(document)))
    except Exception:  # noqa: BLE001 - a model's own code may raise anything.
        return None


def _part_of(read: object, key: object) -> object:
    if isinstance(read, dict):
        return cast("dict[object, object]", read).get(key, _ABSENT)
    if isinstance(read, list) and isinstance(key, int):
        items = cast("list[object]", read)
        return items[key] if key < len(items) else _ABSENT
    return _ABSENT


def too_deep(encoded: bytes) -> str | None:
    """Return that a value is nested too deep for the engine to read, and where; None if it is not. Need not be valid JSON."""
    return deeper(encoded) if is_deep(encoded) else None


def deeper(encoded: bytes) -> str:
    """Return where a value is nested too deep: a JSON Pointer to where that begins, redacted and shortened."""
    return f"it is nested deeper than {DEPTH_MAX} levels, below {_pointer(_way_down(encoded))}"


def _way_down(encoded: bytes) -> list[str | int]:
    """Return the names and places that lead to the first part that lies too deep."""
    way: list[str | int] = []
    for token in _TOKEN.finditer(encoded):
        sign = token[0]
        if token[2] is not None:
            if way:
                way[-1] = token[1].decode("utf-8", "replace")
        elif sign in {b"[", b"{"}:
            if len(way) == DEPTH_MAX:
                break
            way.append(0 if sign == b"[" else "")
        elif sign in {b"]", b"}"} and way:
            way.pop()
        elif sign == b"," and way and isinstance(place := way[-1], int):
            way[-1] = place + 1
    return way


def _pointer(way: list[str | int]) -> str:
    # A name may be a secret; each is redacted whole before it is cut.
    names = [redact(storable(escape(str(part)))) for part in way[:NAMES_MAX]]
    cut = "/..." if len(way) > NAMES_MAX else ""
    return "".join(f"/{name[:NAME_MAX]}" for name in names) + cut or "the top"


def _redacted_place(pointer: str) -> str:
    # Quoted as in JSON, so that it stays on one line.
    names = (msgspec.json.encode(redact(storable(name))).decode() for name in pointer.split("/"))
    return "/".join(name[1:-1] for name in names)


def _natural(place: str) -> list[tuple[int, str]]:
    """Return the key that sorts /2 before /10."""
    return [(int(name) if name.isdigit() else -1, name) for name in place.split("/")]


def _side_of(encoded: bytes) -> Side:
    raw: object = msgspec.json.decode(encoded)
    return Side(raw, redact_mapping(raw))


def _hidden(old: Side, new: Side, path: str) -> Iterator[str]:
    """Yield the places whose change the redaction hides."""
    if _text(old.raw) == _text(new.raw):
        return
    before, after = _parts_of(old), _parts_of(new)
    if before is None or after is None or type(old.raw) is not type(new.raw):
        is_partly = any(a != b for a, b in zip(_pieces(old), _pieces(new), strict=False))
        if is_partly or _text(old.clean) == _text(new.clean):
            yield path
        return
    for name, (key, part) in before.items():
        if name not in after:
            continue
        other_key, other = after[name]
        place = _place_in(path, name)
        if key != other_key:
            yield place
        else:
            yield from _hidden(part, other, place)


def _parts_of(side: Side) -> dict[str, tuple[object, Side]] | None:
    """Return what a container holds, by redacted name, each with its real name; None for a value that is shown as a whole."""
    raw, clean = side.raw, side.clean
    if isinstance(raw, dict) and isinstance(clean, dict):
        # The redactor keeps the order, and makes no two names equal.
        real, shown = cast("dict[str, object]", raw).items(), cast("dict[str, object]", clean).items()
        pairs = zip(real, shown, strict=True)
        return {name: (key, Side(value, seen)) for (key, value), (name, seen) in pairs}
    if isinstance(raw, list) and isinstance(clean, list):
        items = zip(cast("list[object]", raw), cast("list[object]", clean), strict=True)
        return {str(place): (place, Side(*both)) for place, both in enumerate(items)}
    return None


def _pieces(side: Side) -> list[str]:
    """Return the parts of a text that placeholders replace; what cannot be separated counts as one piece."""
    if not isinstance(side.clean, str):
        return []
    text = side.raw if isinstance(side.raw, str) else _text(side.raw)
    first, *rest = MARK.split(side.clean)
    if not rest:
        return []
    if not (text.startswith(first) and text.endswith(rest[-1])):
        return [text]
    found: list[str] = []
    at, last = len(first), len(text) - len(rest[-1])
    for part in rest[:-1]:
        end = text.find(part, at, last) if part else -1
        if end < 0:
            return [text]
        found.append(text[at:end])
        at = end + len(part)
    return [*found, text[at:last]]


def _text(value: object) -> str:
    """Return a value as JSON: unlike in Python, 1, 1.0 and true are three values there."""
    return msgspec.json.encode(value).decode()


def _place_in(path: str, name: str) -> str:
    """Return the pointer to a part, on one line."""
    quoted = msgspec.json.encode(escape(name)).decode()
    return f"{path}/{quoted[1:-1]}"


def _listed(places: list[str]) -> str:
    named = ", ".join(place or "the whole value" for place in places[:PLACES_MAX])
    more = len(places) - PLACES_MAX
    return f"{named}{f', and {more:,} more' if more > 0 else ''}"
