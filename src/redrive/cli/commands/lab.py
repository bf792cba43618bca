# SPDX-License-Identifier: Apache-2.0
"""`redrive lab`: choose a retry policy by evidence, from a simulated storm or from the attempts on record.

Nothing is changed but the page that `--into` names: a storm needs no database, and history is only read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from redrive.cli.input.options import Database, Format, OfPipeline, Output, OutputOrPicture, open_database
from redrive.cli.output.tables import print_json, print_message, print_rows
from redrive.core.arguments import seconds, whole
from redrive.core.backoff import Backoff, Jitter
from redrive.core.policy import RetryPolicy
from redrive.lab.comparison import (
    OVERLOADS,
    Comparison,
    chart,
    chosen,
    compare,
    markdown,
    strategies,
    write_into,
)
from redrive.lab.history import replay_history, rows_of
from redrive.lab.storm import Scenario

app = typer.Typer(help="Choose a retry policy by evidence.", no_args_is_help=True)

COLUMNS = "clients strategy calls refused retries fewer_refused fewer_retries seconds against_ideal".split()


@app.command()
def storm(
    *,
    clients: Annotated[int, typer.Option(help="Clients that call at once.")] = 10_000,
    rate: Annotated[
        str, typer.Option(metavar="RATE", help="What the service serves: 100/s, 500/min.")
    ] = "100/s",
    burst: Annotated[int, typer.Option(help="Calls it serves at once after a pause.")] = 100,
    base: Annotated[float, typer.Option(help="The first delay, in seconds.")] = 1.0,
    cap: Annotated[float, typer.Option(help="The longest delay, in seconds.")] = 60.0,
    retry_after: Annotated[float | None, typer.Option(help="Seconds a 429 asks to wait.")] = None,
    outage: Annotated[
        float, typer.Option(help="Seconds at the start in which it refuses connections.")
    ] = 0.0,
    failure_rate: Annotated[float, typer.Option(help="Share of calls that fail with a 503.")] = 0.0,
    seeds: Annotated[int, typer.Option(help="Run the seeds 1 to this one; figures are medians.")] = 5,
    strategy: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Compare only this one with fixed backoff; repeatable."),
    ] = None,
    overloads: Annotated[
        bool,
        typer.Option("--overloads", help="Also with clients for 2, 10, 20, 50 and 100 seconds of the rate."),
    ] = False,
    into: Annotated[
        Path | None, typer.Option(metavar="PAGE", help="Write the table into a Markdown page.")
    ] = None,
    output: OutputOrPicture = "table",
) -> None:
    """Simulate clients that retry against a service that limits its rate, with several strategies."""
    whole("--seeds", seeds, minimum=1, fix="20, for example.")
    scenario = Scenario(
        clients=clients,
        rate=rate,
        burst=burst,
        retry_after=retry_after,
        outage=outage,
        failure_rate=failure_rate,
    )
    base = seconds("--base", base, above=True)
    compared = chosen(strategies(scenario, base=base, cap=cap), strategy or ())
    counts = (
        sorted({*(round(each * scenario.per_second) for each in OVERLOADS), clients})
        if overloads
        else [clients]
    )
    scenarios = [replace(scenario, clients=count) for count in counts]
    found = [compare(each, compared, range(1, seeds + 1)) for each in scenarios]
    rows = [row for each, _ in found for row in each]
    if into is not None:
        write_into(into, markdown(rows, range(1, seeds + 1)))
        print_message(f"written into {into}")
    elif output == "svg":
        typer.echo(chart(scenarios[-1], found[-1][1]))
    else:
        _print_rows(rows, output)


@app.command(name="replay-history")
def history(
    *,
    max_attempts: Annotated[int, typer.Option(help="Attempts of the other policy, the first included.")] = 3,
    backoff: Annotated[
        Literal["fixed", "linear", "exponential"], typer.Option(help="How its delays grow.")
    ] = "exponential",
    base: Annotated[float, typer.Option(help="Its first delay, in seconds.")] = 1.0,
    cap: Annotated[float, typer.Option(help="Its longest delay, in seconds.")] = 60.0,
    retry_on: Annotated[
        Literal["classified", "all", "none"], typer.Option(help="Which failures it retries.")
    ] = "classified",
    pipeline: OfPipeline = None,
    stage: Annotated[str | None, typer.Option(metavar="STAGE", help="Only attempts of this stage.")] = None,
    database_url: Database = None,
    output: Output = "table",
) -> None:
    """Apply another policy to the attempts on record: retries, delay, dead letters, and what stays unknown."""
    full = Jitter.full()
    grown = {
        "fixed": lambda: Backoff.fixed(base, jitter=full),
        "linear": lambda: Backoff.linear(base, cap=cap, jitter=full),
        "exponential": lambda: Backoff.exponential(base, cap=cap, jitter=full),
    }[backoff]()
    policy = RetryPolicy(max_attempts, grown, retry_on=retry_on)
    with open_database(database_url) as rd:
        report = replay_history(rd.store, policy, pipeline=pipeline, stage=stage)
    if output == "json":
        print_json(asdict(report))
        return
    shown = [{**row, "delay": f"{row['delay']:.1f} s"} for row in rows_of(report)] if report.stages else []
    print_rows(shown, ("policy", "retries", "delay", "dead", "unknown"), output, empty="no attempts")
    for note in report.notes:
        print_message(note)


def _print_rows(rows: Sequence[Comparison], output: Format) -> None:
    if output == "json":
        print_json([{**asdict(row), "against_ideal": row.against_ideal} for row in rows])
        return
    shown = [
        {
            **asdict(row),
            "fewer_refused": f"{row.fewer_refused:.1%}",
            "fewer_retries": f"{row.fewer_retries:.1%}",
            "against_ideal": f"{row.against_ideal:.2f}",
        }
        for row in rows
    ]
    print_rows(shown, COLUMNS, output, empty="nothing")
