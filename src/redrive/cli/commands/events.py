# SPDX-License-Identifier: Apache-2.0
"""`redrive events` and `redrive stats`: what has happened, as it happens if wanted, and how many jobs are in which state.

`stats` reads counters and is cheap however many jobs there are; `doctor --deep` compares them with a recount.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated, Final, Literal, cast

import typer

from redrive.cli.input.options import Database, Format, Limit, OfPipeline, Output, existing
from redrive.cli.input.targets import say_if_unknown
from redrive.cli.output.tables import answer_facts, answer_line, answer_rows, console, say, text_of
from redrive.client.connection import Redrive
from redrive.engine.runtime import CURRENT
from redrive.errors import ConfigurationError
from redrive.ops import audit
from redrive.ops.audit import Operation
from redrive.ops.jobs import inspect
from redrive.ops.jobs.facts import get_job
from redrive.ops.jobs.inspect import Event
from redrive.ops.letters.details import letter_details
from redrive.store.protocol import Store

LOOK_SECONDS: Final = 0.2
PAGE: Final = 500
COLUMNS: Final = ("at", "job", "pipeline", "stage", "attempt", "outcome", "code", "sentence")
OPERATION_COLUMNS: Final = ("at", "actor", "verb", "subject", "letters", "reason")
CHANGE: Final = "before -> after"
CHANGE_FROM: Final = 120
"""Columns of a terminal from which on there is room for what was before and after."""
CHANGE_MAX: Final = 80
STATES: Final = ("queued", "processing", "complete", "failed", "cancelled")


def events(
    *,
    job: Annotated[int | None, typer.Option("--job", metavar="ID", help="Of this job.")] = None,
    pipeline: OfPipeline = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until interrupted.")] = False,
    operations: Annotated[
        bool, typer.Option("--operations", help="What people did, instead of what attempts came to.")
    ] = False,
    letter: Annotated[
        int | None, typer.Option("--letter", metavar="ID", help="With --operations: about this dead letter.")
    ] = None,
    before: Annotated[
        int | None, typer.Option("--before", metavar="ID", help="With --operations: earlier than this one.")
    ] = None,
    limit: Limit = 50,
    database_url: Database = None,
    output: Output = "table",
) -> None:
    """Show the latest attempts with their outcome and the reason, oldest first."""
    _check_options(
        {"--pipeline": pipeline, "--follow": "yes" if follow else None}
        if operations
        else {"--letter": letter, "--before": before},
        rule="does not go with --operations" if operations else "is about operations",
        fix="Leave it out." if operations else "Add --operations, or leave it out.",
    )
    with existing(database_url) as rd:
        if operations:
            _tell_operations(rd.store, output, limit, job=job, letter=letter, before=before)
            return
        if job is not None:
            get_job(rd.store, job)
        # Where to go on is asked first: an event between the two questions is then shown twice rather than never.
        last = inspect.last_event(rd.store)
        latest = inspect.latest_events(rd.store, job=job, pipeline=pipeline, limit=limit)
        if not latest:
            say_if_unknown(rd.store, pipeline)
        if not follow:
            answer_rows(latest, COLUMNS, output, empty="nothing has happened yet")
            return
        _show([event for event in latest if event.seq <= last], output)
        with suppress(KeyboardInterrupt):
            _follow(rd, last, output, job=job, pipeline=pipeline)


def stats(
    *,
    by: Annotated[
        Literal["all", "pipeline", "stage"], typer.Option("--by", help="What to count apart.")
    ] = "all",
    database_url: Database = None,
    output: Output = "table",
) -> None:
    """Count jobs by state."""
    with existing(database_url) as rd:
        counted = inspect.counts(rd.store)
    if by == "all":
        totals = _summed(list(counted.values()))
        answer_facts({**totals, "total": sum(totals.values())}, output)
        return
    names = [(pipeline, stage if by == "stage" else None) for pipeline, stage in counted]
    rows: list[dict[str, object]] = []
    for pipeline, stage in dict.fromkeys(sorted(names, key=str)):
        these = [found for lane, found in counted.items() if lane[0] == pipeline and stage in {None, lane[1]}]
        totals = _summed(these)
        shown: dict[str, object] = (
            {"pipeline": pipeline} if stage is None else {"pipeline": pipeline, "stage": stage}
        )
        rows.append(
            {**shown, **{state: totals.get(state, 0) for state in STATES}, "total": sum(totals.values())}
        )
    columns = (*(("pipeline", "stage") if by == "stage" else ("pipeline",)), *STATES, "total")
    answer_rows(rows, columns, output, empty="there is no job yet")


def _check_options(given: Mapping[str, object], *, rule: str, fix: str) -> None:
    """Refuse options that mean nothing beside the others."""
    for option, value in given.items():
        if value is not None:
            raise ConfigurationError(field=option, value=value, rule=rule, fix=fix)


def _tell_operations(
    store: Store, output: Format, limit: int, *, job: int | None, letter: int | None, before: int | None
) -> None:
    """Show what people did last: at all, or about one job or one dead letter, also by group and in a replay of many."""
    if job is None and letter is None:
        done: Sequence[Operation] = audit.operations(store, limit + 1, before=before)
    else:
        found = list(letter_details(store, letter).operations) if letter is not None else []
        if job is not None:
            of_job = inspect.story_of(store, job).operations
            found = list(of_job) if letter is None else [each for each in found if each in of_job]
        done = [each for each in found if before is None or each.id < before][-limit - 1 :]
    page = done[-limit:]
    _show_operations(page, output)
    if output == "table" and len(done) > limit:
        say(f"earlier: --before {page[0].id}")


def _show_operations(done: Sequence[Operation], output: Format) -> None:
    """Show what people did; for people with what it changed, where there is room."""
    nothing = "nobody did anything yet"
    if output == "json":
        answer_rows(done, OPERATION_COLUMNS, output, empty=nothing)
        return
    rows = [{**asdict(each), CHANGE: _change_of(each)} for each in done]
    has_room = console().width >= CHANGE_FROM and any(row[CHANGE] for row in rows)
    answer_rows(rows, (*OPERATION_COLUMNS, *([CHANGE] if has_room else [])), output, empty=nothing)


def _change_of(done: Operation) -> str | None:
    """Return what was before and after, in a few words; None where nothing is known of it."""
    change = done.change or {}
    before, after = (change.get(side) for side in ("before", "after"))
    if not isinstance(before, dict) or not isinstance(after, dict):
        return _cut(_plan_of(change)) if "plan" in change else None
    was, became = cast("dict[str, object]", before), cast("dict[str, object]", after)
    # One letter is on record with all that was known of it; only what has changed is told here.
    same = {name: was[name] for name in became if name in was} or was.get("states", {})
    return _cut(f"{_facts_of(same)} -> {_facts_of(became)}")


def _plan_of(change: Mapping[str, object]) -> str:
    """Tell how a replay began: over which letters, and by which plan."""
    which, plan = (cast("dict[str, object]", change.get(side) or {}) for side in ("filter", "plan"))
    canary, rate = cast("list[int]", plan.get("canary") or []), plan.get("rate")
    said = {
        "canary": ",".join(map(str, canary)) or None,
        "rate": None if rate is None else f"{rate:g}/s",
        "from_start": "yes" if plan.get("from_start") else None,
    }
    return _facts_of({**which, **said})


def _cut(told: str) -> str:
    return told if len(told) <= CHANGE_MAX else f"{told[: CHANGE_MAX - 1]}…"


def _facts_of(facts: object) -> str:
    named = {name: each for name, each in cast("dict[str, object]", facts).items() if each is not None}
    # A state speaks for itself.
    said = [
        text_of(each).plain
        if name in {"state", "status"}
        else f"{name.replace('_', ' ')}: {text_of(each).plain}"
        for name, each in named.items()
    ]
    return ", ".join(said) or "nothing"


def _summed(counted: Sequence[dict[str, int]]) -> dict[str, int]:
    totals = {state: sum(found.get(state, 0) for found in counted) for state in STATES}
    return {state: count for state, count in totals.items() if count}


def _follow(rd: Redrive, last: int, output: Format, *, job: int | None, pipeline: str | None) -> None:
    while True:
        end = inspect.last_event(rd.store)
        news = inspect.events_after(rd.store, last, job=job, pipeline=pipeline, limit=PAGE)
        _show(news, output)
        if len(news) < PAGE:
            # All up to here was looked at, also what the filter left out.
            last = max(end, news[-1].seq if news else 0)
            CURRENT.get().clock.sleep(LOOK_SECONDS)
        else:
            last = news[-1].seq


def _show(news: Sequence[Event], output: Format) -> None:
    for event in news:
        if output == "json":
            answer_line(event)
            continue
        line = text_of(f"{event.at:%H:%M:%S}  job {event.job}  {event.pipeline}.{event.stage}  ")
        line.append(f"attempt {event.attempt}  ").append_text(text_of(event.outcome))
        line.append_text(text_of(f"  {event.code or ''} {event.sentence or event.reason or ''}".rstrip()))
        console().print(line, soft_wrap=True)
