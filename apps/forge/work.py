# SPDX-License-Identifier: Apache-2.0
"""What the commands do: run, resume, pause, reprocess, measure and report. Nothing here prints.

redrive runs the stages, retries, keeps dead letters, stops at the failure budget and replays. This module starts that, and
writes what is around it: the manifest, the outputs, the telemetry and the lineage.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from apps.forge import manifest as manifests
from apps.forge.folder import RunFolder, latest_run, run_of
from apps.forge.manifest import Manifest
from apps.forge.measurements import Made, MeasurementStore, Measuring, in_order, source_digest
from apps.forge.outputs import (
    OutputWriter,
    keep_history,
    read_lines,
    trace_lineage,
    write_lines,
    write_samples,
)
from apps.forge.sources import SampleFile
from apps.forge.spec import LoadedSpec, load_spec
from apps.forge.tables import column_type, write_parquet
from redrive import ConfigurationError, Event, Redrive, RunReport, connect
from redrive.client.options import FilterOptions
from redrive.errors import FailureBudgetExceededError, RunError

OnProgress = Callable[[RunReport], None]

OPEN: Final = frozenset({"running", "paused"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """How to run: where the samples are, where the outputs go, and how much at a time."""

    out: Path
    input: Path | None = None
    skips_broken: bool = False
    concurrency: int = 64
    lease: float = 30.0
    """Seconds after which another process may take over from one that died."""
    on_progress: OnProgress = lambda _: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run stands after a command."""

    report: RunReport
    measured: tuple[Made, ...] = ()
    why: str | None = None
    """Why it was stopped: its budget, and its most frequent failure with what to do about it."""
    changes: tuple[str, ...] = ()
    """What changed in the spec since the run was started."""


def start(loaded: LoadedSpec, order: Order) -> Outcome:
    """Run every sample through the stages, and write the outputs.

    Raises:
        ConfigurationError: the folder has a run already, or there are no samples to run.
        BrokenLineError: a line of the input is no sample, and such lines are not to be left out.
    """
    folder = RunFolder(order.out)
    if folder.manifest.exists():
        other = manifests.read_manifest(order.out)
        raise ConfigurationError(
            field="--out",
            value=str(order.out),
            rule=f"has the manifest of another run ({other['name']}, started {other['started_at']})",
            fix=f"Choose another folder, or continue that run: forge resume {order.out}.",
        )
    facts, place = _source_facts(loaded, order)
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.choose_database()
    manifest = manifests.new_manifest(loaded, facts, place)
    manifests.write_manifest(folder, manifest)
    return _drive(loaded, folder, order)


def resume(order: Order) -> Outcome:
    """Continue a run that was paused, interrupted or killed: nothing is lost, and no committed stage runs again.

    Raises:
        RunError: it has ended.
    """
    folder = RunFolder(order.out).check_exists()
    before = manifests.read_manifest(order.out)
    if before["ended_at"] is not None:
        fix = f"forge reprocess {order.out} runs its failed samples again."
        raise RunError(run=1, problem=f"it has ended as {before['status']}", fix=fix)
    loaded = load_spec(before["spec"])
    manifest = manifests.renewed(before, loaded)
    manifests.write_manifest(folder, manifest)
    source = before["source"]
    path = None if source["path"] is None else Path(source["path"])
    found = replace(order, input=path, skips_broken=source["skips_broken"])
    changes = tuple(manifests.differences(before, manifest))
    return replace(_drive(loaded, folder, found), changes=changes)


def reprocess(order: Order, *, stage: str | None, actor: str) -> Outcome:
    """Run the failed samples again from the stage that failed, of one stage or of all, with the stages as they are now.

    What was there before is kept: `history/N` has the outputs and the manifest, `lineage.jsonl` a line for each sample.

    Raises:
        ConfigurationError: the spec has no such stage.
        RunError: the run has not ended.
    """
    folder = RunFolder(order.out).check_exists()
    before = manifests.read_manifest(order.out)
    loaded = load_spec(before["spec"])
    which: FilterOptions = {"pipeline": loaded.spec.name, "state": "open"}
    if stage is not None:
        which["stage"] = loaded.spec.check_stage(stage)
    with connect(folder.database) as rd:
        report = run_of(rd, folder)
        if report.status in OPEN or before["ended_at"] is None:
            fix = f"forge resume {order.out} continues it."
            raise RunError(run=report.id, problem="it has not ended", fix=fix)
        chosen = rd.letters.choose(**which)
        if not chosen.count:
            return Outcome(report=report)
        number = len(before["reprocessed"]) + 1
        keep_history(folder, number)
        traced = trace_lineage(folder, number, stage)
        manifests.write_manifest(folder, manifests.reprocessed(before, loaded, stage=stage, samples=traced))
        rd.replays.start(actor=actor, reason="forge reprocess", **which)
        return _replay(rd, loaded, folder, order)


def pause(out: Path, *, actor: str) -> RunReport:
    """Start no more samples of a run, whichever process works on it; those in a stage finish it.

    Raises:
        RunError: it is not running.
    """
    folder = RunFolder(out).check_exists()
    with connect(folder.database) as rd:
        return rd.runs.pause(run_of(rd, folder).id, actor=actor, reason="forge pause")


def measure(out: Path) -> tuple[Made, ...]:
    """Measure the finished samples of a run with the measurements of its spec as they are now; no sample is made again."""
    folder = RunFolder(out).check_exists()
    before = manifests.read_manifest(out)
    loaded = load_spec(before["spec"])
    made = _measure(loaded, folder)
    manifests.write_manifest(folder, manifests.measured(before, loaded))
    return made


def report(out: Path) -> tuple[Manifest, RunReport | None]:
    """Return the manifest and the account of a run; the account is None before the run has started. Any process may ask."""
    folder = RunFolder(out).check_exists()
    with connect(folder.database) as rd:
        return manifests.read_manifest(out), latest_run(rd)


def results(out: Path) -> int:
    """Count the samples whose results can be read by now: all before the first that has not ended."""
    return sum(1 for _ in read_lines(RunFolder(out).samples))


def _drive(loaded: LoadedSpec, folder: RunFolder, order: Order) -> Outcome:
    """Start the run of a folder, or continue it."""
    spec, why = loaded.spec, None
    with connect(folder.database) as rd:
        before = latest_run(rd)
        if before is not None and before.status not in OPEN:
            # It was killed after its last sample, before all was written; or while it was reprocessing.
            return _replay(rd, loaded, folder, order)
        is_fed = before is not None and rd.runs.is_fed(before.id)
        with telemetry(folder) as on_event, OutputWriter(folder) as writer:

            def on_progress(report: RunReport) -> None:
                writer.look(report.id)
                order.on_progress(report)

            try:
                rd.run(
                    spec.pipeline(folder.artifacts, on_event),
                    None if is_fed else _samples(loaded, order),
                    concurrency=order.concurrency,
                    lease=order.lease,
                    failure_budget=spec.failure_budget,
                    thresholds=spec.thresholds,
                    resume=None if before is None else before.id,
                    on_progress=on_progress,
                )
            except FailureBudgetExceededError as error:
                why = _why(rd, error)
        return replace(_finish(rd, loaded, folder), why=why)


def _finish(rd: Redrive, loaded: LoadedSpec, folder: RunFolder, *, is_rewritten: bool = False) -> Outcome:
    """Write what is left to write; a run that has not ended only gets its counts."""
    found = run_of(rd, folder)
    write_lines(rd, found.id, folder, is_rewritten=is_rewritten)
    is_over = found.status not in OPEN
    if is_over:
        write_samples(folder, loaded.spec)
    manifests.write_manifest(folder, manifests.ended(manifests.read_manifest(folder.path), found))
    # Last: a measurement that fails can be made later, and the rest is there.
    return Outcome(report=found, measured=_measure(loaded, folder) if is_over else ())


def _replay(rd: Redrive, loaded: LoadedSpec, folder: RunFolder, order: Order) -> Outcome:
    """Work until no replay and no sample is left, and write all outputs anew; one that is interrupted writes nothing."""
    with telemetry(folder) as on_event:
        pipeline = loaded.spec.pipeline(folder.artifacts, on_event)
        rd.work([pipeline], concurrency=order.concurrency, lease=order.lease, until_idle=True)
    found = run_of(rd, folder)
    return Outcome(report=found) if found.open else _finish(rd, loaded, folder, is_rewritten=True)


def _measure(loaded: LoadedSpec, folder: RunFolder) -> tuple[Made, ...]:
    order = in_order(loaded.spec.measurements)
    if not order:
        return ()
    counts = {each.name: Made(each.name, each.version) for each in order}
    output = loaded.spec.stages[-1].output
    samples = (
        (line.sample, bytes(line.output), output.decode(bytes(line.output)))
        for line in read_lines(folder.samples)
        if line.has_output
    )
    new = folder.values.with_name(f".{folder.values.name}.new")
    with MeasurementStore.open(folder.measurements) as store, new.open("wb") as file:
        measuring = Measuring(order, store, folder.artifacts)

        def rows() -> Iterator[dict[str, Any]]:
            for row in measuring.rows(samples, counts):
                file.write(msgspec.json.encode(row) + b"\n")
                yield row

        columns = {"sample": column_type(int), **{each.name: column_type(each.kind) for each in order}}
        write_parquet(folder.values.with_suffix(".parquet"), columns, rows())
    new.replace(folder.values)
    return tuple(counts.values())


@contextmanager
def telemetry(folder: RunFolder) -> Generator[Callable[[Event], None]]:
    """Return a hook that writes a line for each retry, hold and dead letter; redrive calls it at least once for each."""
    lock = threading.Lock()
    with folder.telemetry.open("ab") as file:

        def write(event: Event) -> None:
            line = {
                "kind": event.kind,
                "job": event.job_id,
                "stage": event.stage,
                "attempt": event.attempt,
                "round": event.round,
                "code": event.code,
                "error": event.message,
                "at": event.at,
                "next_delay": (event.due_at - event.at).total_seconds() if event.kind != "dead" else None,
            }
            with lock:
                file.write(msgspec.json.encode(line) + b"\n")
                file.flush()

        yield write


def _source_facts(loaded: LoadedSpec, order: Order) -> tuple[dict[str, object], dict[str, object]]:
    """Return what describes the input, whatever its name; and where it is."""
    place: dict[str, object] = {
        "path": None if order.input is None else str(order.input.absolute()),
        "skips_broken": order.skips_broken,
    }
    if order.input is None:
        source = loaded.spec.source
        if source is None:
            fix = "Give a file, or declare Forge(source=...)."
            rule = "is needed: the spec has no source of its own"
            raise ConfigurationError(field="--input", value=None, rule=rule, fix=fix)
        return {
            "generator": getattr(source, "__qualname__", str(source)),
            "code": source_digest(source),
        }, place
    file = _file(loaded, order.input, skips_broken=order.skips_broken)
    checked = file.check()
    facts = {
        "format": file.format,
        "sha256": checked.sha256,
        "samples": checked.samples,
        "broken": checked.broken,
    }
    return facts, {**place, "broken_lines": checked.first_broken}


def _samples(loaded: LoadedSpec, order: Order) -> Iterable[object]:
    if order.input is not None:
        return _file(loaded, order.input, skips_broken=order.skips_broken)
    return () if loaded.spec.source is None else loaded.spec.source()


def _file(loaded: LoadedSpec, path: Path, *, skips_broken: bool) -> SampleFile:
    return SampleFile(path, kind=loaded.spec.stages[0].input.kind, skips_broken=skips_broken)


def _why(rd: Redrive, error: FailureBudgetExceededError) -> str:
    groups = rd.letters.groups()
    most = max(groups, key=lambda group: group.letters)
    where = f"{most.code} in {', '.join(most.stages)}"
    return f"{error}. The most frequent failure: {where}, {most.letters} times: {most.message}. {most.hint}"
