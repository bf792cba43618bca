# SPDX-License-Identifier: Apache-2.0
"""The folder of a run: every path in it, in one place, the run itself, and writing a file there all at once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from apps.database import database_of
from apps.forge.artifacts import Artifacts
from redrive import ConfigurationError, Redrive, RunReport
from redrive.errors import RunError


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The files of one run. One folder has one run."""

    path: Path

    @property
    def database(self) -> Path | str:
        """The jobs, attempts and dead letters; the `redrive` command works on it."""
        return database_of(self.path / "jobs.db")

    @property
    def manifest(self) -> Path:
        """What was run, and how it ended."""
        return self.path / "manifest.json"

    @property
    def samples(self) -> Path:
        """The outputs, one line per sample, in the order of the input. It grows while the run works."""
        return self.path / "samples.jsonl"

    @property
    def telemetry(self) -> Path:
        """A line per retry, hold and dead letter."""
        return self.path / "telemetry.jsonl"

    @property
    def lineage(self) -> Path:
        """A line per sample that was reprocessed, with what it was before."""
        return self.path / "lineage.jsonl"

    @property
    def values(self) -> Path:
        """The measurements, one line per sample."""
        return self.path / "measurements.jsonl"

    @property
    def measurements(self) -> Path:
        """The values of measurements, by sample, name and version."""
        return self.path / "measurements.db"

    @property
    def artifacts(self) -> Artifacts:
        """The artefacts of its stages."""
        return Artifacts(self.path / "artifacts")

    def picture(self, name: str) -> Path:
        """Return where a picture is written."""
        return self.path / f"{name}.svg"

    def history(self, number: int) -> Path:
        """Return the folder of what was there before a sample was reprocessed for the nth time."""
        return self.path / "history" / str(number)

    def check_exists(self) -> RunFolder:
        """Return the folder; refuse one without a run."""
        if not self.manifest.is_file():
            raise ConfigurationError(
                field="RUN",
                value=str(self.path),
                rule="is not the folder of a run",
                fix="Give the folder that forge run --out made.",
            )
        return self


def latest_run(rd: Redrive) -> RunReport | None:
    """Return the run of a folder; None before it has started."""
    return next(iter(rd.runs.latest(1)), None)


def run_of(rd: Redrive, folder: RunFolder) -> RunReport:
    """Return the run of a folder; raises RunError before it has started."""
    found = latest_run(rd)
    if found is None:
        raise RunError(run=1, problem="it has not started", fix=f"forge resume {folder.path} starts it.")
    return found


def write_file(path: Path, content: bytes) -> None:
    """Write a file, durably; whoever reads it sees the old content or the new, never a part."""
    new = path.with_name(f".{path.name}.new")
    with new.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
