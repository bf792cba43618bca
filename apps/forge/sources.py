# SPDX-License-Identifier: Apache-2.0
"""Where samples come from: JSON lines, CSV and Parquet files, read one by one and never as a whole.

A line that is no sample is named by its number. It ends the reading, or is left out and counted, by choice. A sample of the
wrong type is a sample: it fails alone, as a dead letter.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from redrive import ConfigurationError, RedriveError

Samples = Iterator[tuple[int, dict[str, Any] | str]]
"""The number of a line, and its sample, or what is wrong with it."""

NAMED_MAX: Final = 20
"""At most so many broken lines are named; all are counted."""
ROWS_AT_ONCE: Final = 1_000


class BrokenLineError(RedriveError, ValueError):
    """A line of a sample file is no sample."""

    code = "forge-broken-line"

    def __init__(self, *, path: Path, line: int, problem: str) -> None:
        self.path, self.line = path, line
        hint = "Correct the line, or leave such lines out: --bad-lines skip."
        super().__init__(f"{path}, line {line}: {problem}. {hint}", hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What one pass over a file found."""

    sha256: str
    samples: int
    broken: int
    first_broken: tuple[tuple[int, str], ...]
    """The numbers of broken lines, with what is wrong, up to a limit."""


class SampleFile:
    """A file of samples; `kind` is the type that the first stage takes, for the fields of a CSV file are text."""

    def __init__(self, path: Path, *, kind: object = None, skips_broken: bool = False) -> None:
        self.path = path
        self.format = path.suffix.lower().removeprefix(".")
        self.skips_broken = skips_broken
        self._kind = kind
        readers: dict[str, Callable[[], Samples]] = {
            "jsonl": self._json_lines,
            "csv": self._csv_rows,
            "parquet": self._parquet_rows,
        }
        if self.format not in readers:
            raise ConfigurationError(
                field="--input",
                value=str(path),
                rule="must be a .jsonl, .csv or .parquet file",
                fix="Convert it.",
            )
        self._read = readers[self.format]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the samples; raises BrokenLineError unless broken lines are left out."""
        for line, found in self._rows():
            if not isinstance(found, str):
                yield found
            elif not self.skips_broken:
                raise BrokenLineError(path=self.path, line=line, problem=found)

    def check(self) -> Checked:
        """Read all of it once, before anything is stored; raises BrokenLineError unless broken lines are left out."""
        samples = broken = 0
        named: list[tuple[int, str]] = []
        for line, found in self._rows():
            if not isinstance(found, str):
                samples += 1
                continue
            if not self.skips_broken:
                raise BrokenLineError(path=self.path, line=line, problem=found)
            broken += 1
            named += [(line, found)] if len(named) < NAMED_MAX else []
        with self.path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        return Checked(sha256=sha256, samples=samples, broken=broken, first_broken=tuple(named))

    def _rows(self) -> Samples:
        try:
            yield from self._read()
        except OSError as error:
            rule, fix = "cannot be read", f"{error.strerror or error}."
            raise ConfigurationError(field="--input", value=str(self.path), rule=rule, fix=fix) from error

    def _json_lines(self) -> Samples:
        decode = msgspec.json.Decoder().decode
        with self.path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                try:
                    found = decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    yield number, f"it is not JSON: {error}"
                    continue
                yield number, found if isinstance(found, dict) else "it is not a JSON object"

    def _csv_rows(self) -> Samples:
        with self.path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
            rows = csv.reader(lines, strict=True)
            names = next(rows, [])
            while True:
                try:
                    row = next(rows)
                except StopIteration:
                    return
                except csv.Error as error:
                    yield rows.line_num, f"it is not CSV: {error}"
                    continue
                if len(row) == len(names):
                    yield rows.line_num, self._typed(dict(zip(names, row, strict=True)))
                elif row:
                    yield rows.line_num, f"it has {len(row)} fields, and the first line has {len(names)}"

    def _typed(self, row: dict[str, str]) -> dict[str, Any]:
        """Return a row with numbers where the first stage takes numbers; one that does not fit stays as it is, and fails there."""
        if self._kind is None:
            return dict(row)
        try:
            typed: object = msgspec.to_builtins(msgspec.convert(row, self._kind, strict=False))
        except msgspec.ValidationError:
            return dict(row)
        return typed if isinstance(typed, dict) else dict(row)

    def _parquet_rows(self) -> Samples:
        import pyarrow as pa
        from pyarrow import parquet

        try:
            with parquet.ParquetFile(self.path) as file:
                number = 0
                for batch in file.iter_batches(batch_size=ROWS_AT_ONCE):
                    for row in batch.to_pylist():
                        number += 1
                        yield number, row
        except pa.ArrowException as error:
            raise ConfigurationError(
                field="--input",
                value=str(self.path),
                rule="is not a Parquet file that can be read",
                fix=f"{error}.",
            ) from error
