# SPDX-License-Identifier: Apache-2.0
"""What changes between two values, as people may see it: a diff of both without secrets, and the places whose change that hides.

A place is named as a JSON Pointer (RFC 6901) of the redacted value, so that a name which is a secret stays one.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, cast

import msgspec

from redrive.redaction.process import redact_mapping

MARK: Final = re.compile(r"<(?:redacted|payload):[^<>\s]{1,256}>")
"""What stands in a redacted value for what was there."""
PLACES_MAX: Final = 10


def redacted_json(encoded: bytes) -> str:
    """Return JSON indented, without secrets and personal facts."""
    clean = redact_mapping(msgspec.json.decode(encoded))
    return msgspec.json.format(msgspec.json.encode(clean), indent=2).decode()


def difference(before: bytes | None, after: bytes, name: str) -> str:
    """Return a unified diff of two values as redacted JSON, and after it how many changes are redacted, and where."""
    # By newlines alone: `splitlines` would also break at characters that JSON lets stand inside a text.
    old = [] if before is None else redacted_json(before).split("\n")
    new = redacted_json(after).split("\n")
    lines = list(difflib.unified_diff(old, new, f"{name} before", f"{name} after", lineterm=""))
    hidden = [] if before is None else list(_hidden(side_of(before), side_of(after), ""))
    if hidden:
        lines.append(_told(hidden))
    return "\n".join(lines) or "(only how it is written changes)"


@dataclass(frozen=True, slots=True)
class Side:
    """A value, and what is shown of it."""

    raw: object
    clean: object


def side_of(encoded: bytes) -> Side:
    """Return JSON with what is shown of it."""
    raw: object = msgspec.json.decode(encoded)
    return Side(raw, redact_mapping(raw))


def changed_places(before: bytes | None, after: bytes) -> str:
    """Name the first places at which two values differ, and how many there are more."""
    if before is None:
        return _listed([""])
    return _listed(list(_changed(side_of(before), side_of(after), "")))


def _changed(old: Side, new: Side, path: str) -> Iterator[str]:
    """Yield the places that change, the innermost ones."""
    if _text(old.raw) == _text(new.raw):
        return
    before, after = parts_of(old), parts_of(new)
    if before is None or after is None or type(old.raw) is not type(new.raw):
        yield path
        return
    for name in dict.fromkeys((*before, *after)):
        place = place_in(path, name)
        if name in before and name in after and before[name][0] == after[name][0]:
            yield from _changed(before[name][1], after[name][1], place)
        else:
            yield place


def _hidden(old: Side, new: Side, path: str) -> Iterator[str]:
    """Yield the places that change where it cannot be seen."""
    if _text(old.raw) == _text(new.raw):
        return
    before, after = parts_of(old), parts_of(new)
    if before is None or after is None or type(old.raw) is not type(new.raw):
        is_partly = any(a != b for a, b in zip(_pieces(old), _pieces(new), strict=False))
        if is_partly or _text(old.clean) == _text(new.clean):
            yield path
        return
    for name, (key, part) in before.items():
        if name not in after:
            continue
        other_key, other = after[name]
        place = place_in(path, name)
        if key != other_key:
            yield place
        else:
            yield from _hidden(part, other, place)


def parts_of(side: Side) -> dict[str, tuple[object, Side]] | None:
    """Return what a container holds, by the names that are shown, each with its real name; None for what is shown as a whole."""
    raw, clean = side.raw, side.clean
    if isinstance(raw, dict) and isinstance(clean, dict):
        # The redactor keeps the order, and gives no two names the same one.
        real, told = cast("dict[str, object]", raw).items(), cast("dict[str, object]", clean).items()
        pairs = zip(real, told, strict=True)
        return {name: (key, Side(value, seen)) for (key, value), (name, seen) in pairs}
    if isinstance(raw, list) and isinstance(clean, list):
        items = zip(cast("list[object]", raw), cast("list[object]", clean), strict=True)
        return {str(place): (place, Side(*both)) for place, both in enumerate(items)}
    return None


def _pieces(side: Side) -> list[str]:
    """Return what stands in a text where marks are shown; what cannot be told apart counts as one piece."""
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


def place_in(path: str, name: str) -> str:
    """Return the pointer to a part, on one line."""
    quoted = msgspec.json.encode(name.replace("~", "~0").replace("/", "~1")).decode()
    return f"{path}/{quoted[1:-1]}"


def _told(places: list[str]) -> str:
    counted = "1 change is redacted" if len(places) == 1 else f"{len(places):,} changes are redacted"
    return f"({counted}: {_listed(places)})"


def _listed(places: list[str]) -> str:
    named = ", ".join(place or "the whole value" for place in places[:PLACES_MAX])
    more = len(places) - PLACES_MAX
    return f"{named}{f', and {more:,} more' if more > 0 else ''}"
