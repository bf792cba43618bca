# SPDX-License-Identifier: Apache-2.0
"""Rows as Parquet files, written in groups, so that memory does not grow with their number.

Columns come from the types of the values: text, numbers, truth values, lists and structs of them. What no column type fits is
written as JSON text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from msgspec import inspect
from pyarrow import parquet

from apps.forge.measurements import batches

GROUP: Final = 5_000
"""Rows in a group."""

_PLAIN: Final[tuple[tuple[type, Any], ...]] = (
    (inspect.StrType, pa.string()),
    (inspect.BoolType, pa.bool_()),
    (inspect.IntType, pa.int64()),
    (inspect.FloatType, pa.float64()),
)


def column_type(kind: object) -> Any:
    """Return the type of a column for values of a Python type; None for one that must be written as JSON."""
    return _column(inspect.type_info(kind))


def columns_of(kind: object) -> dict[str, Any]:
    """Return the columns for the fields of a Struct or dataclass; empty for any other type."""
    found = inspect.type_info(kind)
    if not isinstance(found, inspect.StructType | inspect.DataclassType):
        return {}
    return {each.encode_name: _column(each.type) for each in found.fields}


def _column(kind: inspect.Type) -> Any:
    for info, column in _PLAIN:
        if isinstance(kind, info):
            return column
    if isinstance(kind, inspect.UnionType):
        # Every column may be null, so `int | None` is a column of integers.
        others = [each for each in kind.types if not isinstance(each, inspect.NoneType)]
        return _column(others[0]) if len(others) == 1 else None
    if isinstance(kind, inspect.ListType | inspect.VarTupleType):
        item = _column(kind.item_type)
        return None if item is None else pa.list_(item)
    if isinstance(kind, inspect.StructType | inspect.DataclassType):
        columns = {each.encode_name: _column(each.type) for each in kind.fields}
        return None if None in columns.values() else pa.struct(list(columns.items()))
    return None


def write_parquet(path: Path, columns: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows, all of them or nothing; a column without a type holds JSON."""
    schema = pa.schema([(name, pa.string() if kind is None else kind) for name, kind in columns.items()])
    texts = [name for name, kind in columns.items() if kind is None]
    new = path.with_name(f".{path.name}.new")
    with parquet.ParquetWriter(new, schema) as writer:
        for group in batches(rows, GROUP):
            listed = [{**row, **{name: _json(row.get(name)) for name in texts}} for row in group]
            writer.write_batch(pa.RecordBatch.from_pylist(listed, schema=schema))
    new.replace(path)


def _json(value: object) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()
