# SPDX-License-Identifier: Apache-2.0
"""`redrive events` and `redrive stats`: outcomes of attempts and changes of breakers, or what operators did, and counts of jobs.

`stats` reads counters and is cheap however many jobs there are; `doctor --deep` compares them with a recount.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from itertools import chain
from typing import Annotated, Final, Literal, cast

import typer

from redrive.cli.input.options import Database, Format, Limit, OfPipeline, Output, open_database
from redrive.cli.output.tables import (
    cell,
    console,
    print_facts,
    print_json_line,
    print_message,
    print_rows,
    print_table,
    shortened,
)
from redrive.client.connection import Redrive
from redrive.errors import ConfigurationError, UnknownNameError
from redrive.ops import breakers, limits
from redrive.ops.breakers import BreakerEvent
from redrive.ops.events import EventReader
from redrive.ops.jobs import inspect
from redrive.ops.jobs.inspect import Event
from redrive.ops.pipelines import known_pipeline
from redrive.store.protocol import Store
from redrive.store.statements.operations import Operation

COLUMNS: Final = ("at", "job", "pipeline", "stage", "attempt", "outcome", "code", "sentence")
OPERATION_COLUMNS: Final = ("at", "actor", "verb", "subject", "letters", "reason")
CHANGE: Final = "before -> after"
CHANGE_FROM: Final = 120
"""The least width of a terminal that shows what was before and after."""
CHANGE_MAX: Final = 80
STATES: Final = ("queued", "processing", "complete", "failed", "cancelled", "skipped")
LIMITED_COLUMNS: Final = ("pipeline", "stage", "jobs", "limit", "why", "until")
HELD_COLUMNS: Final = ("pipeline", "stage", "jobs", "breaker", "phase", "since", "next_probe_at")


def events(
    *,
    job: Annotated[int | None, typer.Option("--job", metavar="ID", help="Of this job.")] = None,
    pipeline: OfPipeline = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue until interrupted.")] = False,
    operations: Annotated[
        bool, typer.Option("--operations", help="What operators did, instead of what jobs and breakers did.")
    ] = False,
    letter: Annotated[
        int | None, typer.Option("--letter", metavar="ID", help="With --operations: on this dead letter.")
    ] = None,
    before: Annotated[
        int | None, typer.Option("--before", metavar="ID", help="With --operations: older than this one.")
    ] = None,
    limit: Limit = 50,
    database_url: Database = None,
    output: Output = "table",
) -> None:
    """Show the latest attempts with outcome and reason, and changes of breakers with their cause, oldest first."""
    _check_options(
        {"--pipeline": pipeline, "--follow": "yes" if follow else None}
        if operations
        else {"--letter": letter, "--before": before},
        rule="cannot be combined with --operations" if operations else "needs --operations",
        fix="Leave it out." if operations else "Add --operations, or leave it out.",
    )
    with open_database(database_url) as rd:
        if operations:
            _print_operations(rd, output, limit, job=job, letter=letter, before=before)
            return
        reader = EventReader(rd.store, job=job, pipeline=pipeline)
        latest = reader.latest(limit)
        if not latest and pipeline is not None:
            _check_pipeline(rd.store, pipeline, may_come=follow)
        if not follow:
            rows = latest if output == "json" else [_row_of(event) for event in latest]
            print_rows(rows, COLUMNS, output, empty="no events")
            return
        with suppress(KeyboardInterrupt):
            for event in chain(latest, reader.follow()):
                _print_event(event, output)


def stats(
    *,
    by: Annotated[
        Literal["all", "pipeline", "stage"], typer.Option("--by", help="Count separately by this.")
    ] = "all",
    database_url: Database = None,
    output: Output = "table",
) -> None:
    """Count jobs by state, and show what is held, since when, and by which breaker, and what waits for a limit."""
    with open_database(database_url) as rd:
        counted = inspect.counts(rd.store)
        queued = {lane: found.get("queued", 0) for lane, found in counted.items()}
        held, limited = breakers.held_work(rd.store, queued), limits.limited_work(rd.store, queued)
    names = {"all": (), "pipeline": ("pipeline",), "stage": ("pipeline", "stage")}[by]
    totals: defaultdict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for lane, found in counted.items():
        totals[lane[: len(names)]].update(found)
    if by == "all":
        total = totals[()]
        counts = {state: total[state] for state in STATES if total[state]}
        facts: dict[str, object] = {**counts, "total": total.total()}
        waiting = {name: rows for name, rows in (("held", held), ("limited", limited)) if rows}
        print_facts({**facts, **waiting} if output == "json" else facts, output)
        if output == "table":
            print_table(held, HELD_COLUMNS)
            print_table(limited, LIMITED_COLUMNS)
        return
    rows = [
        {
            **dict(zip(names, lane, strict=True)),
            **{state: found[state] for state in STATES},
            "total": found.total(),
        }
        for lane, found in sorted(totals.items())
    ]
    print_rows(rows, (*names, *STATES, "total"), output, empty="no jobs")


def _check_pipeline(store: Store, pipeline: str, *, may_come: bool) -> None:
    """Refuse an unknown pipeline; one that may come, because somebody waits for its events, is only reported."""
    try:
        known_pipeline(store, pipeline)
    except UnknownNameError as error:
        if not may_come:
            raise
        print_message(str(error))


def _check_options(given: Mapping[str, object], *, rule: str, fix: str) -> None:
    for option, value in given.items():
        if value is not None:
            raise ConfigurationError(field=option, value=value, rule=rule, fix=fix)


def _print_operations(
    rd: Redrive, output: Format, limit: int, *, job: int | None, letter: int | None, before: int | None
) -> None:
    """Print the latest operations: all, or those on one job or one dead letter, also as part of a group or a replay."""
    done = rd.events.operations(job=job, letter=letter, before=before, limit=limit + 1)
    page = done[-limit:]
    has_room = console().width >= CHANGE_FROM and any(_change_of(each) for each in page)
    columns = (*OPERATION_COLUMNS, CHANGE) if has_room else OPERATION_COLUMNS
    rows = page if output == "json" else [{**asdict(each), CHANGE: _change_of(each)} for each in page]
    print_rows(rows, columns, output, empty="no operations")
    if output == "table" and len(done) > limit:
        print_message(f"earlier: --before {page[0].id}")


def _change_of(done: Operation) -> str | None:
    """Return what was before and after, shortened; None where nothing is stored about it."""
    change = done.change or {}
    before, after = (change.get(side) for side in ("before", "after"))
    if not isinstance(before, dict) or not isinstance(after, dict):
        return shortened(_plan_of(change), CHANGE_MAX) if "plan" in change else None
    was, became = cast("dict[str, object]", before), cast("dict[str, object]", after)
    # The log has all facts of a single letter; only those that changed are printed.
    same = {name: was[name] for name in became if name in was} or was.get("states", {})
    return shortened(f"{_facts_of(same)} -> {_facts_of(became)}", CHANGE_MAX)


def _plan_of(change: Mapping[str, object]) -> str:
    """Return how a replay was started: its filter and its plan."""
    which, plan = (cast("dict[str, object]", change.get(side) or {}) for side in ("filter", "plan"))
    canary, rate = cast("list[int]", plan.get("canary") or []), plan.get("rate")
    plan_facts = {
        "canary": ",".join(map(str, canary)) or None,
        "rate": None if rate is None else f"{rate:g}/s",
        "from_start": "yes" if plan.get("from_start") else None,
    }
    return _facts_of({**which, **plan_facts})


def _facts_of(facts: object) -> str:
    named = {name: each for name, each in cast("dict[str, object]", facts).items() if each is not None}
    # A state needs no name.
    parts = [
        cell(each).plain if name in {"state", "status"} else f"{name.replace('_', ' ')}: {cell(each).plain}"
        for name, each in named.items()
    ]
    return ", ".join(parts) or "nothing"


def _row_of(event: Event | BreakerEvent) -> dict[str, object]:
    if isinstance(event, Event):
        return asdict(event)
    return {**asdict(event), "stage": f"breaker {event.breaker}", "outcome": event.after}


def _print_event(event: Event | BreakerEvent, output: Format) -> None:
    if output == "json":
        print_json_line(event)
        return
    if isinstance(event, BreakerEvent):
        line = cell(f"{event.at:%H:%M:%S}  breaker {event.breaker}  ").append_text(cell(event.after))
        line.append_text(cell(f"  {event.sentence}"))
    else:
        line = cell(f"{event.at:%H:%M:%S}  job {event.job}  {event.pipeline}.{event.stage}  ")
        line.append(f"attempt {event.attempt}  ").append_text(cell(event.outcome))
        line.append_text(cell(f"  {event.code or ''} {event.sentence or event.reason or ''}".rstrip()))
    console().print(line, soft_wrap=True)
