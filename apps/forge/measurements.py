# SPDX-License-Identifier: Apache-2.0
"""Measurements over finished samples: declared, ordered by what they depend on, and kept by (sample, name, version).

A value is kept with a digest of what it was made from: the sample's output and the values it depends on. While those are the
same it is not made again, so a new measurement over an old run makes itself alone, and no sample.
"""

from __future__ import annotations

import hashlib
import inspect
import sqlite3
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar, get_args, get_type_hints

import msgspec

from apps.forge.artifacts import Artifacts
from redrive import ConfigurationError, RedriveError, redact

T = TypeVar("T")
Value = float | int | str | bool | None

SAMPLES_AT_ONCE: Final = 256

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS measurements (
    sample INTEGER NOT NULL, name TEXT NOT NULL, version TEXT NOT NULL, source TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (sample, name, version)
) WITHOUT ROWID
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One finished sample, as a measurement gets it."""

    sample: int
    output: Any
    """What its last stage returned."""
    values: Mapping[str, Value]
    """The values of the measurements that this one comes after."""


Measure = Callable[[Sequence[Measured], Artifacts], Sequence[Value]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A function from many samples to a value for each, in their order. Build one with `@measurement`."""

    fn: Measure
    name: str
    version: str
    after: tuple[str, ...]

    @property
    def kind(self) -> object:
        """The type of a value, from the annotation: `list[float]` is of floats. None without one."""
        return next(iter(get_args(get_type_hints(self.fn).get("return"))), None)

    @property
    def code(self) -> str:
        """A digest of its source text."""
        return source_digest(self.fn)


def measurement(
    *, version: str = "1", after: Sequence[str] = (), name: str | None = None
) -> Callable[[Measure], Measurement]:
    """Make a function a measurement; raise `version` when its values change their meaning. `after` names what it depends on."""

    def declare(fn: Measure) -> Measurement:
        return Measurement(
            fn=fn, name=name or str(getattr(fn, "__name__", "")), version=version, after=tuple(after)
        )

    return declare


def source_digest(fn: Callable[..., object]) -> str:
    """Return a short digest of the source text of a function, or of its name where there is no source."""
    try:
        text = inspect.getsource(fn)
    except (OSError, TypeError):
        text = f"{fn.__module__}.{getattr(fn, '__qualname__', '')}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def in_order(measurements: Sequence[Measurement]) -> tuple[Measurement, ...]:
    """Return measurements so that each comes after what it depends on.

    Raises:
        ConfigurationError: two have one name, one depends on nothing known, or they depend on each other in a circle.
    """
    known = {each.name: each for each in measurements}
    if len(known) < len(measurements):
        names = [each.name for each in measurements]
        twice = next(name for name in names if names.count(name) > 1)
        raise _refused(
            twice, "is the name of two measurements", "Give one of them another: @measurement(name=...)."
        )
    for each in measurements:
        for needed in each.after:
            if needed not in known:
                raise _refused(
                    each.name,
                    f"comes after {needed}, which is no measurement",
                    f"There are: {', '.join(known)}.",
                )
    try:
        order = tuple(TopologicalSorter({each.name: each.after for each in measurements}).static_order())
    except CycleError as error:
        circle = " -> ".join(reversed(error.args[1]))
        raise _refused(
            circle, "is a circle: each comes after the next", "Remove one of these dependencies."
        ) from None
    return tuple(known[name] for name in order)


def _refused(name: str, rule: str, fix: str) -> ConfigurationError:
    return ConfigurationError(field="measurement", value=name, rule=rule, fix=fix)


@dataclass(slots=True)
class Made:
    """What happened to one measurement: how many values were made, and how many were there already."""

    name: str
    version: str
    made: int = 0
    cached: int = 0


class MeasurementStore:
    """The values of one run, in an SQLite file of their own beside the jobs."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Generator[MeasurementStore]:
        """Open the file, or make it."""
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(_SCHEMA)
            yield cls(connection)

    def known(self, measurement: Measurement, sources: Mapping[int, str]) -> dict[int, Value]:
        """Return the values of these samples that were made from the same source."""
        rows = self._connection.execute(
            "SELECT sample, source, value FROM measurements"
            " WHERE name = ? AND version = ? AND sample BETWEEN ? AND ?",
            (measurement.name, measurement.version, min(sources), max(sources)),
        )
        return {
            sample: msgspec.json.decode(value)
            for sample, source, value in rows
            if sources.get(sample) == source
        }

    def put(self, measurement: Measurement, sources: Mapping[int, str], values: Mapping[int, Value]) -> None:
        """Keep values, all of them or none."""
        rows = [
            (
                sample,
                measurement.name,
                measurement.version,
                sources[sample],
                msgspec.json.encode(value).decode(),
            )
            for sample, value in values.items()
        ]
        with self._connection:
            self._connection.executemany("INSERT OR REPLACE INTO measurements VALUES (?, ?, ?, ?, ?)", rows)


@dataclass(frozen=True, slots=True)
class Measuring:
    """Measures samples batch by batch: what is kept is not made again."""

    measurements: tuple[Measurement, ...]
    """In order."""
    store: MeasurementStore
    artifacts: Artifacts

    def rows(
        self, samples: Iterable[tuple[int, bytes, Any]], counts: Mapping[str, Made]
    ) -> Iterator[dict[str, Value]]:
        """Yield the values of each sample by name; a sample is its number, its output as JSON, and its output."""
        for batch in batches(samples, SAMPLES_AT_ONCE):
            values: dict[int, dict[str, Value]] = {sample: {} for sample, _, _ in batch}
            for each in self.measurements:
                self._measure(each, batch, values, counts[each.name])
            yield from ({"sample": sample, **found} for sample, found in values.items())

    def _measure(
        self,
        measurement: Measurement,
        batch: Sequence[tuple[int, bytes, Any]],
        values: dict[int, dict[str, Value]],
        count: Made,
    ) -> None:
        needed = {
            sample: {name: values[sample][name] for name in measurement.after} for sample, _, _ in batch
        }
        sources = {
            sample: hashlib.sha256(text + msgspec.json.encode(needed[sample], order="sorted")).hexdigest()
            for sample, text, _ in batch
        }
        found = self.store.known(measurement, sources)
        missing = [
            Measured(sample=sample, output=output, values=needed[sample])
            for sample, _, output in batch
            if sample not in found
        ]
        if missing:
            made = dict(zip((each.sample for each in missing), self._call(measurement, missing), strict=True))
            self.store.put(measurement, sources, made)
            found |= made
        count.made += len(missing)
        count.cached += len(batch) - len(missing)
        for sample, value in found.items():
            values[sample][measurement.name] = value

    def _call(self, measurement: Measurement, samples: Sequence[Measured]) -> list[Value]:
        first, last = samples[0].sample, samples[-1].sample
        where = f"the measurement {measurement.name} of samples {first} to {last}"
        hint = "Correct it, then run forge measure: values that were made are kept."
        try:
            made = list(measurement.fn(samples, self.artifacts))
        except Exception as error:
            problem = f"{where} failed: {type(error).__name__}: {redact(str(error))}. {hint}"
            raise RedriveError(problem, hint=hint) from error
        if len(made) != len(samples):
            problem = f"{where} returned {len(made)} values for {len(samples)} samples. {hint}"
            raise RedriveError(problem, hint=hint)
        return made


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield items in lists of at most so many."""
    left = iter(items)
    while batch := list(islice(left, size)):
        yield batch
