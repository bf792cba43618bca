# SPDX-License-Identifier: Apache-2.0
"""How `redrive replay` shows a replay: while somebody watches it, as a table for people, and with everything for programs.

Only looks; nothing is changed here. What is on the way is told on stderr, so that the answer alone is on stdout.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from msgspec.structs import asdict as asdict_of
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from redrive.cli.input.options import Format
from redrive.cli.output.errors import DONE, FAILED, HELD
from redrive.cli.output.tables import answer_facts, answer_json, console, is_interactive, say, table_of
from redrive.engine.clock import instant
from redrive.engine.runtime import CURRENT
from redrive.ops.checkup.findings import age
from redrive.ops.replay.progress import REASONS_MAX, ReplayReport, report_of
from redrive.store.protocol import Store

LOOK_SECONDS: Final = 0.5
NAMED_MAX: Final = 20
"""Ids of a selection that are shown to people."""
_NAMES: Final = {"seconds_left": "time_left"}
"""What facts are called where people read them."""


def watched(store: Store, replay: int, output: Format) -> ReplayReport:
    """Look again and again until it has ended or needs somebody; a bar for who watches, a line per change for logs."""
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
            told, left = progress_line(report), _left(report)
            progress.update(task, total=report.letters, completed=ended, description=f"{told}{left}")
            # The estimate alone is no news.
            if is_hidden and output == "table" and told != last:
                say(f"{told}{left}")
            last = told
            if report.ended_at is not None or report.status in {"paused", "stopped"}:
                return report
            CURRENT.get().clock.sleep(LOOK_SECONDS)


def progress_line(report: ReplayReport) -> str:
    """Return how far a replay is, in one line."""
    again = report.failed_again_same + report.failed_again_other
    told = (
        f"replay {report.id} {report.status}: {report.recovered:,} recovered, {again:,} failed again, "
        f"{report.replaying:,} in progress, {report.waiting:,} waiting"
    )
    told += f", {report.skipped:,} skipped" if report.skipped else ""
    return told + (f"; it waits for {report.waits_for}" if report.waits_for else "")


def _left(report: ReplayReport) -> str:
    return "" if report.seconds_left is None else f"; about {age(report.seconds_left)} left"


def exit_of(report: ReplayReport) -> int:
    """Return the exit code of who watched a replay: done, not all came back, or it stands still."""
    if report.ended_at is None:
        return HELD
    failed = report.failed_again_same + report.failed_again_other + report.skipped
    return FAILED if failed or report.status == "cancelled" else DONE


def facts_of(report: ReplayReport) -> dict[str, object]:
    """Return a report as programs read it, with what was left out by name."""
    facts: dict[str, object] = asdict(report)
    del facts["first_skipped"]
    facts["skips"] = [
        {
            "reason": reason,
            "letters": letters,
            "first": [letter for letter, _ in report.first_skipped.get(reason, ())],
        }
        for reason, letters in report.skips
    ]
    facts["skipped_letters"] = [
        {"letter": letter, "reason": reason} for letter, reason in report.skipped_letters
    ]
    return facts


def answer_report(report: ReplayReport, output: Format) -> None:
    """Show how a replay stands, and what to do next."""
    if output == "json":
        answer_json(facts_of(report))
        return
    lists = {"failures", "skips", "first_skipped", "skipped_letters"}
    told = _for_people(report)
    # What is nothing is left out for people; programs get it all.
    shown = {
        _NAMES.get(name, name): told.get(name, value)
        for name, value in asdict(report).items()
        if name not in lists and (value or name == "recovered")
    }
    answer_facts(shown, output)
    if report.failures:
        rows = [asdict(each) for each in report.failures]
        console().print(table_of(rows, ("code", "group", "letters", "escalated", "sample")))
    _tell_skips(report)
    if report.left_out:
        is_let_go = report.status in {"cancelling", "cancelled"}
        why = "let go when it was cancelled" if is_let_go else "changed, retried or pruned before their turn"
        say(f"{report.left_out:,} left out: {why}; redrive events --operations tells who did what")
    if report.status == "stopped":
        say(
            f"it stopped itself; look at redrive dlq show {_sample(report)}, then redrive replay resume or cancel {report.id}"
        )
    elif report.ended_at is not None and report.closed_at is None:
        say(f'close it with: redrive replay close {report.id} --note "..."')


def _for_people(report: ReplayReport) -> dict[str, object]:
    """Return what people read in other words than programs."""
    chosen = {name: value for name, value in asdict_of(report.filter).items() if value is not None}
    for name in ("since", "until"):
        if name in chosen:
            chosen[name] = instant(chosen[name])
    if report.filter.ids is not None and len(report.filter.ids) > NAMED_MAX:
        chosen["ids"] = f"{len(report.filter.ids):,} named"
    return {
        "seconds_left": None if report.seconds_left is None else f"about {age(report.seconds_left)}",
        "rate": None if report.rate is None else f"{report.rate:g} per second",
        "filter": chosen,
    }


def _tell_skips(report: ReplayReport) -> None:
    """Show why letters were left out, and which: the first few for each reason."""
    if not report.skips:
        return
    rows: list[dict[str, object]] = []
    is_all = True
    for reason, letters in report.skips[:REASONS_MAX]:
        first = report.first_skipped.get(reason, ())
        # What is told of one letter alone stands behind the reason: "(job 12)".
        named = [f"{letter}{full.removeprefix(reason)}" for letter, full in first]
        more = letters - len(first)
        is_all &= not more
        told = ", ".join([*named, *([f"and {more:,} more"] if more else [])])
        rows.append({"skipped": letters, "because": reason, "letters": told})
    console().print(table_of(rows, ("skipped", "because", "letters")))
    if unshown := len(report.skips) - len(rows):
        say(f"and {unshown:,} more reason{'' if unshown == 1 else 's'}")
    if not is_all or unshown:
        say(f"more of them by name: redrive replay status {report.id} -o json")


def _sample(report: ReplayReport) -> str:
    return str(report.failures[0].sample) if report.failures else "ID"
