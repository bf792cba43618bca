# SPDX-License-Identifier: Apache-2.0
"""The outputs of a run: a line of JSON for each sample, in the order of the input, and the same as Parquet.

The lines are written while the run works: as far as every sample before has ended. A run that was killed continues its file
after the last whole line. Only a page of samples is in memory at a time.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import pyarrow as pa

from apps.forge.folder import RunFolder
from apps.forge.spec import Forge
from apps.forge.tables import columns_of, write_parquet
from redrive import Redrive, connect
from redrive.client.runs import ItemResult

LOOK_SECONDS: Final = 0.5
"""How long it takes at most until a sample that has ended can be read."""
COLUMNS: Final = {
    "sample": pa.int64(),
    "job": pa.int64(),
    "status": pa.string(),
    "round": pa.int64(),
    "stage": pa.string(),
    "code": pa.string(),
    "reason": pa.string(),
}
"""Besides the fields of the output."""


NOTHING: Final = msgspec.Raw()
"""The output of a sample that has none."""


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One sample that has ended."""

    sample: int
    """Its place in the input, from 0."""
    job: int
    """Its job, for the `redrive` command."""
    status: str
    """complete, failed, skipped or cancelled."""
    round: int = 1
    """1, and one more for each time it was reprocessed."""
    stage: str | None = None
    """Where it failed, or was filtered."""
    code: str | None = None
    reason: str | None = None
    output: msgspec.Raw = NOTHING

    @property
    def has_output(self) -> bool:
        """Whether it completed, with an output."""
        return bool(bytes(self.output))


_LINES: Final = msgspec.json.Decoder(Line)


class OutputWriter:
    """Writes the lines of a run while it works, on a thread of its own with a connection of its own."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._run: int | None = None
        self._is_due = threading.Event()
        self._is_over = False
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="forge-outputs", daemon=True)

    def __enter__(self) -> Self:
        """Start it."""
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Write what has ended by now, and stop; raises what went wrong with it, unless something else did."""
        self._is_over = True
        self._is_due.set()
        self._thread.join()
        if self._problem is not None and kind is None:
            raise self._problem

    def look(self, run: int) -> None:
        """Look for samples of the run that have ended."""
        self._run = run
        self._is_due.set()

    def _work(self) -> None:
        try:
            written = whole_lines(self._folder.samples)
            with connect(self._folder.database) as rd, self._folder.samples.open("ab") as file:
                is_over = False
                while not is_over:
                    self._is_due.wait(LOOK_SECONDS)
                    self._is_due.clear()
                    is_over = self._is_over
                    for line in () if self._run is None else ended_in_order(rd, self._run, written):
                        file.write(msgspec.json.encode(line) + b"\n")
                        written += 1
                    file.flush()
        except Exception as error:  # noqa: BLE001 - raised by __exit__, on the thread of the run.
            self._problem = error


def ended_in_order(rd: Redrive, run: int, first: int = 0, again: Collection[int] = ()) -> Iterator[Line]:
    """Yield the samples of a run from one on, in order, until the first that has not ended.

    `again` are those that were reprocessed: only they can be in a later round.
    """
    for found in rd.runs.results(run, first=first):
        if found.status == "complete":
            number = rd.job(found.job).facts.round if found.item in again else 1
            output = msgspec.Raw(msgspec.json.encode(found.value))
            yield Line(sample=found.item, job=found.job, status=found.status, round=number, output=output)
        else:
            yield _unfinished(rd, found)


def _unfinished(rd: Redrive, found: ItemResult) -> Line:
    """Return the line of a sample without an output, with where and why it ended."""
    job = rd.job(found.job)
    facts = job.facts
    reason = facts.error_message
    if reason is None and (attempts := job.attempts()):
        reason = attempts[-1].message
    return Line(
        sample=found.item,
        job=found.job,
        status=found.status,
        round=facts.round,
        stage=facts.stage,
        code=facts.error_code if found.status == "failed" else None,
        reason=reason,
    )


def write_lines(rd: Redrive, run: int, folder: RunFolder, *, is_rewritten: bool = False) -> None:
    """Write the lines that are missing; or all of them anew, where samples were reprocessed."""
    if is_rewritten:
        new = folder.samples.with_name(f".{folder.samples.name}.new")
        with new.open("wb") as file:
            lines = ended_in_order(rd, run, again=reprocessed_samples(folder))
            file.writelines(msgspec.json.encode(line) + b"\n" for line in lines)
        new.replace(folder.samples)
        return
    written = whole_lines(folder.samples)
    with folder.samples.open("ab") as file:
        file.writelines(msgspec.json.encode(line) + b"\n" for line in ended_in_order(rd, run, written))


def whole_lines(path: Path) -> int:
    """Count the lines of a file; cut off a last one that is not whole, as after a kill."""
    if not path.exists():
        return 0
    count = end = 0
    with path.open("rb+") as file:
        for line in file:
            if not line.endswith(b"\n"):
                file.truncate(end)
                break
            count, end = count + 1, end + len(line)
    return count


def read_lines(path: Path) -> Iterator[Line]:
    """Yield the lines of a file of outputs; the last one may be half written while a run works."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield _LINES.decode(line)


def write_samples(folder: RunFolder, spec: Forge) -> None:
    """Write the outputs as Parquet: a column for each field of the last stage's output."""
    fields = columns_of(spec.stages[-1].output.kind)
    # A field with the name of one of our columns gets another.
    names = {name: f"output_{name}" if name in COLUMNS else name for name in fields}
    columns = {**COLUMNS, **({names[name]: kind for name, kind in fields.items()} or {"output": None})}

    def rows() -> Iterator[dict[str, Any]]:
        for line in read_lines(folder.samples):
            output = msgspec.json.decode(line.output) if line.has_output else None
            row = {name: getattr(line, name) for name in COLUMNS}
            if fields and isinstance(output, dict):
                row |= {name: output.get(field) for field, name in names.items()}
            elif not fields:
                row["output"] = output
            yield row

    write_parquet(folder.samples.with_suffix(".parquet"), columns, rows())


def keep_history(folder: RunFolder, number: int) -> None:
    """Keep the outputs and the manifest as they are, before samples are reprocessed."""
    kept = folder.history(number)
    kept.mkdir(parents=True, exist_ok=True)
    for path in (folder.samples, folder.samples.with_suffix(".parquet"), folder.manifest):
        if path.exists():
            shutil.copy2(path, kept / path.name)


def trace_lineage(folder: RunFolder, number: int, stage: str | None) -> int:
    """Record each failed sample, with what it is before it is reprocessed; return how many there are."""
    configs = msgspec.json.decode((folder.history(number) / folder.manifest.name).read_bytes())["stages"]
    count = 0
    with folder.lineage.open("ab") as file:
        for line in read_lines(folder.history(number) / folder.samples.name):
            if line.status == "failed" and stage in {None, line.stage}:
                config = configs.get(line.stage, {}).get("config")
                traced = {"reprocess": number, "config_before": config, "before": line}
                file.write(msgspec.json.encode(traced) + b"\n")
                count += 1
    return count


def reprocessed_samples(folder: RunFolder) -> set[int]:
    """Return the samples that were ever reprocessed."""
    with suppress(FileNotFoundError), folder.lineage.open("rb") as file:
        return {msgspec.json.decode(line)["before"]["sample"] for line in file}
    return set()
