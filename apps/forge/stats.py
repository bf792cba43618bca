# SPDX-License-Identifier: Apache-2.0
"""The statistics of a run: retries that samples needed, failures by frequency, and how reliable each stage is.

redrive counts the attempts; this module gathers them for one run, as data for the table and for the picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from apps.forge import pictures
from apps.forge.folder import RunFolder, write_file
from redrive import connect
from redrive.ops.reports.reports import Bucket, ErrorReport, StageReport


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
        report = rd.runs.latest(1)[0]
        return Statistics(
            report.pipeline,
            rd.reports.retries(run=report.id),
            rd.reports.errors(run=report.id),
            rd.reports.stages(run=report.id),
        )


def draw(out: Path, found: Statistics) -> Path:
    """Draw the statistics, and return the picture."""
    panels = [
        pictures.bars(
            "Samples by retries",
            [(f"{each.retries} retries", each.jobs, f"{each.share:.1%}") for each in found.retries],
        ),
        pictures.bars(
            "Failed attempts by code",
            [(each.code, each.failures, f"{each.share:.1%}") for each in found.errors[:8]],
            colour=pictures.RED,
        ),
        pictures.stacks(
            "Attempts by stage and outcome",
            [
                (
                    each.stage,
                    {"ok": each.ok, "retry": each.retry, "dead": each.dead, "skipped": each.skipped},
                    f"{each.success:.2%} ok",
                )
                for each in found.stages
            ],
        ),
    ]
    path = RunFolder(out).picture("stats")
    write_file(path, pictures.page(f"{found.name}: {path.parent.name}", panels).encode())
    return path


def draw_measurements(out: Path) -> Path | None:
    """Draw how the values of each numeric measurement are distributed; None without any."""
    import pyarrow as pa
    from pyarrow import parquet

    folder = RunFolder(out)
    source = folder.values.with_suffix(".parquet")
    if not source.exists():
        return None
    panels = []
    for field in parquet.read_schema(source):
        is_number = pa.types.is_floating(field.type) or pa.types.is_integer(field.type)
        if is_number and field.name != "sample":
            column = parquet.read_table(source, columns=[field.name]).column(0).drop_null().to_numpy()
            panels.append(pictures.histogram(field.name, column))
    path = folder.picture("measurements")
    write_file(path, pictures.page(f"Measurements: {path.parent.name}", panels).encode())
    return path
