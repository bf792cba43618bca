# SPDX-License-Identifier: Apache-2.0
"""The statistics of a run: retries that samples needed, failures by frequency, and how reliable each stage is.

redrive counts the attempts and draws the charts; this module gathers them for one run, as data for the tables and as one picture.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from msgspec import Struct
from pyarrow import parquet

from apps.forge.folder import RunFolder, run_of, write_file
from redrive import connect
from redrive.ops.reports import charts
from redrive.ops.reports.reports import Bucket, ErrorReport
from redrive.store.statements.reports import StageReport

CODES_MAX: Final = 12
"""The most frequent codes are drawn; the table has all."""
BINS: Final = 10
_HEIGHT: Final = re.compile(r'height="(\d+)"')


class Statistics(Struct, frozen=True):
    """What `forge stats` shows."""

    name: str
    retries: Sequence[Bucket]
    errors: Sequence[ErrorReport]
    stages: Sequence[StageReport]


def statistics(out: Path) -> Statistics:
    """Return the statistics of the run of a folder."""
    folder = RunFolder(out).check_exists()
    with connect(folder.database) as rd:
        report = run_of(rd, folder)
        return Statistics(
            report.pipeline,
            rd.reports.retries(run=report.id),
            rd.reports.errors(run=report.id),
            rd.reports.stages(run=report.id),
        )


def draw(out: Path, found: Statistics) -> Path:
    """Draw the statistics, and return the picture."""
    outcomes = ("ok", "retry", "hold", "dead", "crashed")
    return _written(
        RunFolder(out).picture("stats"),
        [
            charts.histogram(
                f"{found.name}: samples by retries", [(each.retries, each.jobs) for each in found.retries]
            ),
            charts.ranking(
                "Failed attempts by code", [(each.code, each.failures) for each in found.errors[:CODES_MAX]]
            ),
            charts.shares(
                "Attempts by stage and outcome",
                [
                    (each.stage, {name: getattr(each, name) for name in outcomes}, f"{each.success:.2%} ok")
                    for each in found.stages
                ],
            ),
        ],
    )


def draw_measurements(out: Path) -> Path | None:
    """Draw how the values of each numeric measurement are distributed; None without any."""
    folder, drawn = RunFolder(out), []
    source = folder.values.with_suffix(".parquet")
    for field in parquet.read_schema(source) if source.exists() else ():
        is_number = pa.types.is_floating(field.type) or pa.types.is_integer(field.type)
        if not is_number or field.name == "sample":
            continue
        values = parquet.read_table(source, columns=[field.name]).column(0).drop_null().to_numpy()
        counts, edges = np.histogram(values, bins=BINS)
        mean = f", mean {values.mean():.3g}" if len(values) else ""
        bars = [(f"{edge:.3g}", int(count)) for edge, count in zip(edges, counts, strict=False)]
        drawn.append(charts.histogram(f"{field.name}: {len(values):,} values{mean}", bars))
    return _written(folder.picture("measurements"), drawn) if drawn else None


def _written(path: Path, drawn: Sequence[str]) -> Path:
    """Write charts as one picture, one below the other."""
    parts: list[str] = []
    top = 0
    for chart in drawn:
        parts.append(chart.replace("<svg ", f'<svg y="{top}" ', 1))
        found = _HEIGHT.search(chart)
        top += 0 if found is None else int(found[1])
    size = f'viewBox="0 0 {charts.WIDTH} {top}" width="{charts.WIDTH}" height="{top}"'
    picture = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n{"".join(parts)}\n</svg>\n'
    write_file(path, picture.encode())
    return path
