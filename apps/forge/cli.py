# SPDX-License-Identifier: Apache-2.0
"""The `forge` command. RUN is the folder that `forge run --out` made; any process may ask about it.

Exit codes: 0 completed; 1 a partial success, failed or aborted, or manifests that differ; 2 wrong arguments or input; 3 paused or
interrupted: `forge resume` continues it.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

from apps.forge import manifest as manifests
from apps.forge import stats as statistics
from apps.forge import work
from apps.forge.example import demo as demonstration
from apps.forge.measurements import Made
from apps.forge.spec import load_spec
from apps.tracing import trace_if_configured
from redrive import RedriveError, RunReport, redact

app = typer.Typer(
    name="forge",
    help="Run samples through stages, and account for each.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Run = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of the run.")]
Concurrency = Annotated[int, typer.Option("--concurrency", help="Stages that run at once.")]
Lease = Annotated[
    float, typer.Option("--lease", help="Seconds until another process may take over from one that died.")
]
Output = Annotated[Literal["table", "json"], typer.Option("--output", "-o", help="A table, or JSON.")]

DONE: Final = 0
FAILED: Final = 1
REFUSED: Final = 2
RESUMABLE: Final = 3


@app.command()
def run(
    target: Annotated[str, typer.Argument(metavar="SPEC", help="The spec: module:name or file.py:name.")],
    *,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="The folder for everything the run makes.")
    ],
    source: Annotated[
        Path | None, typer.Option("--input", metavar="FILE", help="Samples: .jsonl, .csv or .parquet.")
    ] = None,
    bad_lines: Annotated[
        Literal["stop", "skip"],
        typer.Option(
            "--bad-lines", help="What to do about a line that is no sample: start nothing, or leave it out."
        ),
    ] = "stop",
    concurrency: Concurrency = 64,
    lease: Lease = 30.0,
) -> None:
    """Run every sample through the stages of a spec, and measure the results."""
    loaded = load_spec(target)
    with _progress(loaded.spec.name) as on_progress:
        order = work.Order(
            out=out,
            input=source,
            skips_broken=bad_lines == "skip",
            concurrency=concurrency,
            lease=lease,
            on_progress=on_progress,
        )
        outcome = work.start(loaded, order)
    _end(out, outcome)


@app.command()
def resume(folder: Run, *, concurrency: Concurrency = 64, lease: Lease = 30.0) -> None:
    """Continue a run that was paused, interrupted or killed."""
    with _progress(folder.name) as on_progress:
        order = work.Order(out=folder, concurrency=concurrency, lease=lease, on_progress=on_progress)
        outcome = work.resume(order)
    _end(folder, outcome)


@app.command()
def pause(folder: Run) -> None:
    """Pause a run, whichever process works on it: samples finish the stage they are in."""
    report = work.pause(folder, actor=_actor())
    _print_facts({"run": str(folder), **_account(report)}, "table")
    typer.echo(f"forge resume {folder} continues it", err=True)


@app.command()
def reprocess(
    folder: Run,
    *,
    stage: Annotated[str | None, typer.Option("--stage", help="Only what failed in this stage.")] = None,
    concurrency: Concurrency = 64,
) -> None:
    """Run the failed samples again, from the stage that failed, with the stages as they are now."""
    order = work.Order(out=folder, concurrency=concurrency)
    outcome = work.reprocess(order, stage=stage, actor=_actor())
    _end(folder, outcome)


@app.command()
def measure(folder: Run) -> None:
    """Measure the samples of a run with the measurements as they are now; what did not change is not made again."""
    _print_measured(work.measure(folder))
    _print_picture(statistics.draw_measurements(folder))


@app.command()
def status(folder: Run, *, output: Output = "table") -> None:
    """Show the account of a run: total = succeeded + dead + skipped + cancelled + open."""
    manifest, report = work.report(folder)
    facts: dict[str, object] = {"run": str(folder), "name": manifest["name"], "hash": manifest["hash"]}
    facts |= {"status": "not started"} if report is None else _account(report)
    facts |= {"broken_lines": manifest["input"].get("broken", 0), "results": work.results(folder)}
    _print_facts(facts, output)


@app.command()
def stats(folder: Run, *, output: Output = "table") -> None:
    """Show retries, failures and the reliability of stages; and draw them."""
    found = statistics.statistics(folder)
    if output == "json":
        typer.echo(msgspec.json.encode(found).decode())
        return
    _print_table(
        "retries",
        ("retries", "samples", "share"),
        [(each.retries, each.jobs, f"{each.share:.2%}") for each in found.retries],
    )
    _print_table(
        "failed attempts",
        ("code", "failures", "samples", "share"),
        [(each.code, each.failures, each.jobs, f"{each.share:.2%}") for each in found.errors],
    )
    _print_table(
        "stages",
        ("stage", "attempts", "ok", "retry", "dead", "skipped", "success", "seconds"),
        [
            (
                each.stage,
                each.attempts,
                each.ok,
                each.retry,
                each.dead,
                each.skipped,
                f"{each.success:.2%}",
                f"{each.seconds:.4f}",
            )
            for each in found.stages
        ],
    )
    _print_picture(statistics.draw(folder, found))


@app.command()
def diff(
    one: Annotated[Path, typer.Argument(metavar="A", help="The folder of a run, or its manifest.")],
    other: Annotated[Path, typer.Argument(metavar="B", help="Another one.")],
) -> None:
    """Show which stage or setting differs between two runs; exit with 1 if one does."""
    lines = list(manifests.differences(manifests.read_manifest(one), manifests.read_manifest(other)))
    for line in lines:
        typer.echo(line)
    if not lines:
        typer.echo("no differences: the same input, stages, measurements, settings, code and libraries")
    raise typer.Exit(FAILED if lines else DONE)


@app.command()
def demo(
    *,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder of the run.")],
    count: Annotated[int, typer.Option("--count", min=1, help="How many samples to make.")] = 2_000,
    rate: Annotated[
        float, typer.Option("--rate", help="Calls a second that the local model allows.")
    ] = 200.0,
    concurrency: Concurrency = 32,
) -> None:
    """Run the example on made-up samples and a local model with a rate limit and faults: no network, no key."""
    source = out.with_name(f"{out.name}-samples.jsonl")
    source.parent.mkdir(parents=True, exist_ok=True)
    with source.open("wb") as file:
        file.writelines(demonstration.sample_lines(count))
    memory = demonstration.Memory(count)
    loaded = load_spec("apps.forge.example.flow:spec")
    with demonstration.local_endpoint(rate) as answers, _progress(loaded.spec.name) as on_progress:

        def look(report: RunReport) -> None:
            memory.look(report)
            on_progress(report)

        outcome = work.start(
            loaded, work.Order(out=out, input=source, concurrency=concurrency, on_progress=look)
        )
    pace = count / memory.seconds
    typer.echo(f"{count} samples in {memory.seconds:.1f} s, {pace:.0f} a second")
    typer.echo(
        "the model answered " + ", ".join(f"{number} times {status}" for status, number in answers.items())
    )
    typer.echo("memory: " + ", ".join(f"{mib} MiB at {done}" for done, mib in memory.points))
    _end(out, outcome)


def _end(folder: Path, outcome: work.Outcome) -> None:
    """Print how a run stands, draw it, and exit."""
    for change in outcome.changes:
        typer.echo(f"changed since the run was started: {change}", err=True)
    report = outcome.report
    _print_facts({"run": str(folder), **_account(report)}, "table")
    if outcome.why is not None:
        typer.echo(f"stopped: {outcome.why}", err=True)
    is_open = report.status in work.OPEN or report.open > 0
    if is_open:
        typer.echo(f"the run has not ended: forge resume {folder}", err=True)
    else:
        _print_measured(outcome.measured)
        _print_picture(statistics.draw(folder, statistics.statistics(folder)))
        _print_picture(statistics.draw_measurements(folder))
    ended = DONE if report.status == "completed" else FAILED
    raise typer.Exit(RESUMABLE if is_open else ended)


def _actor() -> str:
    return os.environ.get("USER", "unknown")


def _account(report: RunReport) -> dict[str, object]:
    counts = {name: getattr(report, name) for name in manifests.COUNTS}
    return {"status": report.status, **counts, **({} if report.reason is None else {"reason": report.reason})}


@contextmanager
def _progress(name: str) -> Generator[work.OnProgress]:
    """Show the progress of a run on a terminal."""
    console = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("[red]{task.fields[dead]} dead[/]"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, total=None, dead=0)

        def update(report: RunReport) -> None:
            progress.update(task, total=report.total, completed=report.total - report.open, dead=report.dead)

        yield update


def _print_facts(facts: dict[str, object], output: str) -> None:
    if output == "json":
        typer.echo(msgspec.json.encode(facts).decode())
        return
    for name, value in facts.items():
        typer.echo(f"{name:12} {value}")


def _print_table(title: str, columns: Sequence[str], rows: Sequence[tuple[object, ...]]) -> None:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, justify="left" if column in {"code", "stage", "retries"} else "right")
    for row in rows:
        table.add_row(*(Text(str(value)) for value in row))
    Console().print(table)


def _print_measured(measured: Sequence[Made]) -> None:
    for each in measured:
        typer.echo(f"measured {each.name} (version {each.version}): {each.made} made, {each.cached} kept")


def _print_picture(path: Path | None) -> None:
    if path is not None:
        typer.echo(f"picture: {path}")


def main() -> None:
    """Run the command line."""
    trace_if_configured()
    try:
        app()
    except RedriveError as error:
        text = str(error) if error.hint in str(error) else f"{error}. {error.hint}"
        typer.echo(f"error: {redact(text)}", err=True)
        raise SystemExit(REFUSED) from None
