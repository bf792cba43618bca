# SPDX-License-Identifier: Apache-2.0
"""Fields of a value that its type does not know: decoders pass over them, so that a mistyped name would never be noticed.

What a type knows is read from its JSON schema, which msgspec's types and models with a codec of their own both have. Where a type
tells none, or takes whatever comes, nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, cast

import msgspec

from redrive.ops.letters.diff import Side, parts_of, place_in, side_of

Schema = Mapping[str, object]
_CHOICES: Final = ("anyOf", "oneOf", "allOf")
_BY_NAME: Final = ("populate_by_name", "validate_by_name")


def unknown_fields(kind: object, encoded: bytes) -> list[str]:
    """Return the places of a value that its type does not know, as JSON Pointers of the redacted value."""
    schema = _schema_of(kind)
    if schema is None:
        return []
    named = cast("Mapping[str, Schema]", schema.get("$defs", {}))
    return list(_unknown(side_of(encoded), [schema], named, ""))


def _schema_of(kind: object) -> Schema | None:
    if kind is None or kind is object:
        return None
    own = getattr(kind, "model_json_schema", None)
    settings = cast("Mapping[str, object]", getattr(kind, "model_config", {}))
    if callable(own) and any(settings.get(name) for name in _BY_NAME):
        # Such a field has two names, and the schema tells one of them.
        return None
    try:
        return cast("Schema", own() if callable(own) else msgspec.json.schema(kind, schema_hook=_whatever))
    except Exception:  # noqa: BLE001 - a model's own code may raise anything, and a type without a schema is only not looked at.
        return None


def _whatever(_kind: object) -> dict[str, object]:
    """Say that anything may stand where a type of another library does; msgspec takes a schema of nothing for none at all."""
    return {"description": "whatever comes"}


def _unknown(side: Side, schemas: Iterable[Schema], named: Mapping[str, Schema], path: str) -> Iterator[str]:
    """Yield the places within a value that none of the forms it may have knows."""
    parts = parts_of(side)
    if parts is None:
        return
    is_object = isinstance(side.raw, dict)
    forms = [
        form
        for form in _forms(schemas, named)
        if form.get("type") in {None, "object" if is_object else "array"}
    ]
    for name, (key, part) in parts.items():
        place = place_in(path, name)
        found = [schema for form in forms for schema in _part_of(form, key)]
        if found or not forms:
            yield from _unknown(part, found, named, place)
        else:
            yield place


def _forms(schemas: Iterable[Schema], named: Mapping[str, Schema]) -> Iterator[Schema]:
    """Yield what schemas come to once their names and choices are followed."""
    for schema in schemas:
        if "$ref" in schema:
            yield from _forms([named.get(str(schema["$ref"]).rsplit("/", 1)[-1], {})], named)
        elif choice := next((each for each in _CHOICES if each in schema), None):
            yield from _forms(cast("list[Schema]", schema[choice]), named)
        else:
            yield schema


def _part_of(form: Schema, key: object) -> Iterator[Schema]:
    """Yield what a form says about one of its parts; nothing about one that it does not know."""
    if isinstance(key, int):
        first = cast("list[Schema]", form.get("prefixItems", []))
        rest = form.get("items", {})
        yield first[key] if key < len(first) else _any_or(rest)
        return
    fields = cast("Mapping[object, Schema]", form.get("properties", {}))
    if key in fields:
        yield fields[key]
    elif "properties" not in form or form.get("additionalProperties"):
        yield _any_or(form.get("additionalProperties", {}))


def _any_or(schema: object) -> Schema:
    return cast("Schema", schema) if isinstance(schema, dict) else {}
