# SPDX-License-Identifier: Apache-2.0
"""The folder of a run: every path in it, in one place, the run itself, and writing a file there all at once."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from apps.database import server_address, with_schema
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
        if not self.schema.is_file():
            return self.path / "jobs.db"
        address = server_address()
        if address is None:
            raise ConfigurationError(
                field="REDRIVE_DATABASE_URL",
                value=os.environ.get("REDRIVE_DATABASE_URL"),
                rule=f"must name the PostgreSQL server that has the jobs of {self.path}",
                fix="Give it the value that it had when the run was started.",
            )
        return with_schema(address, self.schema.read_text(encoding="utf-8"))

    @property
    def schema(self) -> Path:
        """The name of the schema that has the jobs, if they are on a server."""
        return self.path / "schema"

    def choose_database(self) -> None:
        """Decide where the jobs of a new run will be: in a file of the folder, or on a server in a schema of their own.

        Runs of several folders must not share one: each would work on the samples of the others.
        """
        if server_address() is not None:
            write_file(self.schema, f"forge_{secrets.token_hex(6)}".encode())

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
