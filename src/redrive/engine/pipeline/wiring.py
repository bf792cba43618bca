# SPDX-License-Identifier: Apache-2.0
"""Whether the output of one stage can be the input of the next, and a payload that of a pipeline elsewhere, by their types.

Only what can never work is refused: a value travels as JSON, so two types are compared by the kinds of JSON values they can be (an
object, a text, a number, ...). What is uncertain is accepted: unions that share a kind, `Any`, types without annotation, models
with a codec of their own, and objects of different classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, cast

from msgspec import Struct, inspect

from redrive.engine.pipeline.stage import Stage
from redrive.errors import ConfigurationError

_KINDS: Final[dict[type, str]] = {
    inspect.NoneType: "null",
    inspect.BoolType: "bool",
    inspect.IntType: "number",
    # Not a number is written as null.
    inspect.FloatType: "number null",
    inspect.StrType: "text",
    inspect.BytesType: "text",
    inspect.ByteArrayType: "text",
    inspect.DateTimeType: "text number",
    inspect.DateType: "text",
    inspect.TimeType: "text",
    inspect.TimeDeltaType: "text number",
    inspect.UUIDType: "text",
    inspect.DecimalType: "text number",
    inspect.ListType: "array",
    inspect.SetType: "array",
    inspect.FrozenSetType: "array",
    inspect.VarTupleType: "array",
    inspect.TupleType: "array",
    inspect.NamedTupleType: "array",
    inspect.DictType: "object",
    inspect.TypedDictType: "object",
    inspect.DataclassType: "object",
}
_OF_VALUES: Final[dict[type, str]] = {
    bool: "bool",
    int: "number",
    float: "number",
    str: "text",
    type(None): "null",
}


class Shape(Struct, frozen=True):
    """What is known of a type without its code: the kinds of JSON values, and the fields of an object."""

    kinds: tuple[str, ...]
    required: tuple[str, ...] = ()
    fields: dict[str, tuple[str, ...]] = {}
    """The kinds of each field that is known; none for a field that may be anything."""


def check_wiring(pipeline: str, stages: Sequence[Stage[..., object]]) -> None:
    """Refuse a stage whose output can never be the input of the next one."""
    for one, following in pairwise(stages):
        given, taken = one.output.kind, following.input.kind
        if can_be(given, taken):
            continue
        raise ConfigurationError(
            field=f"Pipeline({pipeline}).stages",
            value=f"{one.name} -> {following.name}",
            rule=f"cannot be connected: {one.name} returns {_named(given)}, and {following.name} takes {_named(taken)}",
            fix="Return what the next stage takes, or put a stage between them.",
        )


def can_be(given: object, taken: object) -> bool:
    """Return whether a value of one type can be one of the other after it was JSON; True when that is not certain."""
    from_here, to_there = _kinds(given), _kinds(taken)
    return from_here is None or to_there is None or not from_here.isdisjoint(to_there)


def shape_of(hint: object) -> Shape | None:
    """Return the shape of a type; None for one that may be anything."""
    kinds = _kinds(hint)
    if kinds is None:
        return None
    info = inspect.type_info(hint)
    if not isinstance(info, inspect.DataclassType | inspect.StructType | inspect.TypedDictType):
        return Shape(tuple(sorted(kinds)))
    return Shape(
        tuple(sorted(kinds)),
        tuple(each.encode_name for each in info.fields if each.required),
        {each.encode_name: tuple(sorted(_kinds_of(each.type) or ())) for each in info.fields},
    )


def mismatch(given: Shape | None, taken: Shape | None) -> str | None:
    """Return why values of one shape can never be values of the other; None if they can, or that is not certain."""
    if given is None or taken is None:
        return None
    if set(given.kinds).isdisjoint(taken.kinds):
        return f"it is {_listed(given.kinds)}, and the pipeline takes {_listed(taken.kinds)}"
    if not given.fields:
        return None
    lacking = [name for name in taken.required if name not in given.fields]
    if lacking:
        return f"it has no field {', '.join(lacking)}"
    for name, kinds in given.fields.items():
        wanted = taken.fields.get(name, ())
        if kinds and wanted and set(kinds).isdisjoint(wanted):
            return f"its field {name} is {_listed(kinds)}, and the pipeline takes {_listed(wanted)}"
    return None


def _listed(kinds: Sequence[str]) -> str:
    return " or ".join(kinds)


def _kinds(hint: object) -> frozenset[str] | None:
    """Return the kinds of JSON values that values of a type can be; None when that is not certain."""
    if hint is None or callable(getattr(hint, "model_validate_json", None)):
        return None
    try:
        return _kinds_of(inspect.type_info(hint))
    except (TypeError, NameError):
        return None


def _kinds_of(info: inspect.Type) -> frozenset[str] | None:
    if isinstance(info, inspect.Metadata):
        return _kinds_of(info.type)
    if isinstance(info, inspect.UnionType):
        parts = [_kinds_of(each) for each in info.types]
        return None if None in parts else frozenset[str]().union(*cast("list[frozenset[str]]", parts))
    if isinstance(info, inspect.StructType):
        return frozenset({"array" if info.array_like else "object"})
    if isinstance(info, inspect.EnumType):
        return _of_values(member.value for member in info.cls)
    if isinstance(info, inspect.LiteralType):
        return _of_values(info.values)
    names = _KINDS.get(type(info))
    return None if names is None else frozenset(names.split())


def _of_values(values: Iterable[object]) -> frozenset[str] | None:
    kinds = [_OF_VALUES.get(type(value)) for value in values]
    return None if None in kinds else frozenset(cast("list[str]", kinds))


def _named(kind: object) -> str:
    return kind.__name__ if isinstance(kind, type) and not hasattr(kind, "__args__") else str(kind)
