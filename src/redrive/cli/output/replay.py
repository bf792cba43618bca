# SPDX-License-Identifier: Apache-2.0
"""How `redrive replay` prints a replay: its progress, a table for people, and everything for programs.

Changes nothing. Progress goes to stderr, so that stdout has the result alone.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from msgspec.structs import asdict as asdict_of
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from redrive.cli.input.options import Format
from redrive.cli.output.errors import DONE, FAILED, HELD
from redrive.cli.output.tables import (
    console,
    is_interactive,
    print_facts,
    print_json,
    print_message,
    print_table,
)
from redrive.core.units import format_duration, instant
from redrive.engine.replay.release import reason_text
from redrive.engine.runtime import CURRENT
from redrive.ops.replay.progress import ReplayReport, report_of
from redrive.store.protocol import Store

POLL_SECONDS: Final = 0.5
IDS_MAX: Final = 20
"""Ids of a filter that are printed for people."""


def follow(store: Store, replay: int, output: Format) -> ReplayReport:
    """Poll until a replay has ended, is paused or stopped; print a bar on a terminal, or a line per change elsewhere."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
    )
    is_hidden = output != "table" or not is_interactive()
    with Progress(*columns, console=console(), transient=True, disable=is_hidden) as progress:
        task = progress.add_task(f"replay {replay}", total=None)
        last: str | None = None
        while True:
            report = report_of(store, replay)
            ended = report.letters - report.waiting - report.replaying
            line = progress_line(report)
            left = (
                "" if report.seconds_left is None else f"; about {format_duration(report.seconds_left)} left"
            )
            progress.update(task, total=report.letters, completed=ended, description=f"{line}{left}")
            # A new estimate alone is not printed.
            if is_hidden and output == "table" and line != last:
                print_message(f"{line}{left}")
            last = line
            if report.ended_at is not None or report.status in {"paused", "stopped"}:
                return report
            CURRENT.get().clock.sleep(POLL_SECONDS)


def progress_line(report: ReplayReport) -> str:
    """Return how far a replay is, in one line."""
    again = report.failed_again_same + report.failed_again_other
    line = (
        f"replay {report.id} {report.status}: {report.recovered:,} recovered, {again:,} failed again, "
        f"{report.replaying:,} in progress, {report.waiting:,} waiting"
    )
    line += f", {report.skipped:,} skipped" if report.skipped else ""
    return line + (f"; it waits for {report.waits_for}" if report.waits_for else "")


def exit_code(report: ReplayReport) -> int:
    """Return the exit code of a followed replay: all recovered, not all of them, or paused or stopped."""
    if report.ended_at is None:
        return HELD
    failed = report.failed_again_same + report.failed_again_other + report.skipped
    return FAILED if failed or report.status == "cancelled" else DONE


def facts_of(report: ReplayReport) -> dict[str, object]:
    """Return a report as programs read it, with the ids of skipped letters."""
    facts: dict[str, object] = asdict(report)
    del facts["first_skipped"]
    facts["skips"] = [
        {
            "kind": kind,
            "reason": reason_text(kind),
            "letters": letters,
            "first": [letter for letter, _ in report.first_skipped[kind]],
        }
        for kind, letters in report.skips
    ]
    facts["skipped_letters"] = [
        {"letter": letter, **asdict_of(obstacle), "reason": obstacle.text}
        for letter, obstacle in report.skipped_letters
    ]
    return facts


def print_report(report: ReplayReport, output: Format) -> None:
    """Print the state of a replay, and what to do next."""
    if output == "json":
        print_json(facts_of(report))
        return
    elsewhere = {"failures", "skips", "first_skipped", "skipped_letters", "seconds_left"}
    # Empty facts are left out for people; programs get all of them.
    facts = {
        name: value
        for name, value in asdict(report).items()
        if name not in elsewhere and (value or name == "recovered")
    }
    print_facts({**facts, **_for_people(report)}, output)
    print_table(report.failures, ("code", "group", "letters", "escalated", "sample"))
    _print_skips(report)
    if report.left_out:
        is_cancelled = report.status in {"cancelling", "cancelled"}
        why = (
            "released when the replay was cancelled"
            if is_cancelled
            else "changed, retried or pruned before their turn"
        )
        print_message(f"{report.left_out:,} left out: {why}; see redrive events --operations")
    if report.status == "stopped":
        sample = report.failures[0].sample if report.failures else "ID"
        print_message(
            f"it stopped itself: see redrive dlq show {sample}, then redrive replay resume {report.id} or cancel {report.id}"
        )
    elif report.ended_at is not None and report.closed_at is None:
        print_message(f'to close it: redrive replay close {report.id} --note "..."')


def _for_people(report: ReplayReport) -> dict[str, object]:
    """Return the facts that people read in another form than programs."""
    which = {name: value for name, value in asdict_of(report.filter).items() if value is not None}
    for name in ("since", "until"):
        if name in which:
            which[name] = instant(which[name])
    if report.filter.ids is not None and len(report.filter.ids) > IDS_MAX:
        which["ids"] = f"{len(report.filter.ids):,} ids"
    facts: dict[str, object] = {"filter": which}
    if report.rate is not None:
        facts["rate"] = f"{report.rate:g} per second"
    if report.seconds_left is not None:
        facts["time_left"] = f"about {format_duration(report.seconds_left)}"
    return facts


def _print_skips(report: ReplayReport) -> None:
    """Print why letters were skipped, with the first few of each kind."""
    rows: list[dict[str, object]] = []
    is_all = True
    for kind, letters in report.skips:
        first = report.first_skipped[kind]
        named = [f"{letter} ({why.note})" if why.note else str(letter) for letter, why in first]
        more = letters - len(first)
        is_all &= not more
        listed = ", ".join([*named, *([f"and {more:,} more"] if more else [])])
        rows.append({"skipped": letters, "reason": reason_text(kind), "letters": listed})
    print_table(rows, ("skipped", "reason", "letters"))
    if not is_all:
        print_message(f"all of them: redrive replay status {report.id} -o json")
