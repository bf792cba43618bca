# SPDX-License-Identifier: Apache-2.0
"""`redrive dlq`: look at dead letters, page by page, by their cause, or one with its whole story.

Only looking is here; what changes letters stands in modules of its own, which add their commands to this `app`.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Final, Literal

import msgspec
import typer

from redrive.cli.input.letter_options import (
    InState,
    LetterId,
    OfCategory,
    OfCode,
    OfGroup,
    OfKey,
    OfOwner,
    OfStage,
    Since,
    Until,
    grouped,
)
from redrive.cli.input.options import Database, Limit, OfPipeline, Output, existing
from redrive.cli.output.tables import answer_facts, answer_json, answer_rows, console, distance, say, table_of
from redrive.ops.letters.details import LetterDetails, letter_details
from redrive.ops.letters.freeze import check_filter
from redrive.ops.letters.groups import LetterGroup, list_groups
from redrive.ops.letters.letter import LetterLine
from redrive.ops.letters.pages import list_letters
from redrive.ops.reports import charts

app = typer.Typer(help="Look at dead letters, judge them, mend them.", no_args_is_help=True)

MESSAGE_MAX: Final = 60
LIST_COLUMNS: Final = "id job pipeline stage code state assignee last_failure_at message".split()
"""What is shown of a letter; who looks after it only where somebody looks after one."""
GROUP_COLUMNS: Final = {
    150: "group pending letters first_seen last_seen trend pipelines stages code suggested sample message".split(),
    110: "group pending first_seen last_seen trend pipelines stages code sample message".split(),
    0: "group pending first_seen last_seen trend code message".split(),
}
"""What is shown of a group on a terminal of at least so many columns."""
WIDE_FROM: Final = max(GROUP_COLUMNS)
NARROW_TO: Final = 100
"""Below so many columns, every word counts."""
NARROW_MESSAGE_MAX: Final = 30
GROUP_DIGITS: Final = 8
"""So much of a fingerprint is shown, and is enough for --group."""
_ELSEWHERE: Final = frozenset({"context", "stack", "message", "error_class"})
"""What `show` tells below its table."""


@app.command("list")
def list_(
    *,
    pipeline: OfPipeline = None,
    stage: OfStage = None,
    code: OfCode = None,
    category: OfCategory = None,
    group: OfGroup = None,
    state: InState = None,
    owner: OfOwner = None,
    key: OfKey = None,
    since: Since = None,
    until: Until = None,
    before: Annotated[
        str | None, typer.Option("--before", metavar="CURSOR", help="The next page: as the last one said.")
    ] = None,
    limit: Limit = 50,
    database_url: Database = None,
    output: Output = "table",
) -> None:
    """List dead letters, newest first."""
    with existing(database_url) as rd:
        which = grouped(
            rd.store,
            pipeline=pipeline,
            stage=stage,
            code=code,
            category=category,
            group=group,
            state=state,
            since=since,
            until=until,
        )
        which = msgspec.structs.replace(which, owner=owner, key=key)
        check_filter(rd.store, which)
        page = list_letters(rd.store, which, before=before, limit=limit)
    if output == "json":
        answer_json(page)
        return
    nothing = "no dead letter is like that"
    if page.next_cursor is not None:
        nothing += " among those looked at"
    is_assigned = any(letter.assignee is not None for letter in page.letters)
    columns = [each for each in LIST_COLUMNS if is_assigned or each != "assignee"]
    answer_rows([_row_of(letter) for letter in page.letters], columns, output, empty=nothing)
    if page.next_cursor is not None:
        say(f"more: --before {page.next_cursor}")


@app.command("groups")
def groups(
    *,
    pipeline: OfPipeline = None,
    stage: OfStage = None,
    code: OfCode = None,
    category: OfCategory = None,
    group: OfGroup = None,
    state: InState = None,
    owner: OfOwner = None,
    key: OfKey = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 50,
    database_url: Database = None,
    output: Annotated[
        Literal["table", "json", "svg"], typer.Option("-o", "--output", help="How to show the answer.")
    ] = "table",
) -> None:
    """Show dead letters by their cause, the most pending first. Counts are of the letters that the options mean."""
    with existing(database_url) as rd:
        which = grouped(
            rd.store,
            pipeline=pipeline,
            stage=stage,
            code=code,
            category=category,
            group=group,
            state=state,
            since=since,
            until=until,
        )
        which = msgspec.structs.replace(which, owner=owner, key=key)
        check_filter(rd.store, which)
        found = list_groups(rd.store, which, limit=limit)
    if output == "json":
        answer_json([{**asdict(each), "letters": each.letters} for each in found])
    elif output == "svg":
        rows = [(f"{each.fingerprint[:11]} {each.code}", each.trend.hours, _remark(each)) for each in found]
        typer.echo(charts.trends("Dead letters of the last 24 hours, by group", rows))
    else:
        width = console().width
        shown = [_group_row(each, width) for each in found]
        columns = next(columns for least, columns in GROUP_COLUMNS.items() if width >= least)
        answer_rows(shown, columns, output, empty="no dead letter is like that")


@app.command()
def show(letter_id: LetterId, *, database_url: Database = None, output: Output = "table") -> None:
    """Show one dead letter: what it is, its stack with your own frames first, every attempt, what people did about it."""
    with existing(database_url) as rd:
        story = letter_details(rd.store, letter_id)
    if output == "json":
        told = asdict(story.letter)
        answer_json(
            {
                **{name: value for name, value in told.items() if name not in {"stack", "context"}},
                "last_stack": told["stack"],
                "sanitized_context": told["context"],
                "frames": story.stack,
                "suggested_diagnosis": story.suggested_diagnosis,
                "hint": story.hint,
                "job_facts": story.facts,
                "attempts": story.attempts,
                "edits": story.edits,
                "operations": story.operations,
            }
        )
    else:
        _tell(story)


def _tell(story: LetterDetails) -> None:
    letter = story.letter
    facts = {name: value for name, value in asdict(letter).items() if value is not None}
    job = {} if story.facts is None else {"job_status": story.facts.status}
    shown = {name: value for name, value in facts.items() if name not in _ELSEWHERE}
    if letter.diagnosis is None:
        shown["suggested_diagnosis"] = story.suggested_diagnosis
    answer_facts({**shown, **job, "hint": story.hint}, "table")
    out = console()
    out.print(f"{letter.error_class}: {letter.message}", soft_wrap=True)
    _tell_stack(story)
    if letter.context:
        out.print(f"context: {msgspec.json.encode(letter.context).decode()}", soft_wrap=True)
    attempts = [{**each, "duration": f"{each['duration']:.3g} s"} for each in story.attempts]
    columns = ("dispatch", "stage", "round", "attempt", "outcome", "code", "duration", "sentence")
    if attempts:
        out.print(table_of(attempts, columns))
    if story.edits:
        out.print(table_of(map(asdict, story.edits), ("at", "actor", "part")))
    if story.operations:
        out.print(table_of(map(asdict, story.operations), ("at", "actor", "verb", "subject", "reason")))


def _tell_stack(story: LetterDetails) -> None:
    out, stack = console(), story.stack
    for frames, name in ((stack.own, "your code"), (stack.library, "libraries")):
        if frames:
            out.print(f"{len(frames)} frame{'' if len(frames) == 1 else 's'} of {name}, the innermost last:")
            out.print("\n".join(frames), soft_wrap=True)
    # What the only exception said stands above already.
    if len(stack.said) > 1:
        out.print("\n".join(stack.said), soft_wrap=True)


def _row_of(letter: LetterLine) -> dict[str, object]:
    state = f"{letter.state} (escalated)" if letter.is_escalated else letter.state
    return {**asdict(letter), "state": state, "message": _cut(letter.message)}


def _group_row(group: LetterGroup, width: int) -> dict[str, object]:
    is_wide, is_narrow = width >= WIDE_FROM, width < NARROW_TO
    trend = f"{charts.sparkline(group.trend.hours)} {group.trend.word}" if is_wide else group.trend.word
    name = group.fingerprint if is_wide else group.fingerprint.rpartition(":")[2][:GROUP_DIGITS]
    first, last = distance(group.first_at), distance(group.last_at)
    if is_narrow:
        first, last = first.removesuffix(" ago"), last.removesuffix(" ago")
    shown = {"group": name, "letters": group.letters, "trend": trend, "first_seen": first, "last_seen": last}
    message = _cut(group.message, NARROW_MESSAGE_MAX if is_narrow else MESSAGE_MAX)
    # `diagnosis` is what somebody found; this is only what the code suggests.
    return {**asdict(group), **shown, "message": message, "suggested": group.diagnosis}


def _remark(group: LetterGroup) -> str:
    return f"{group.pending:,} {group.trend.word}"


def _cut(message: str, length_max: int = MESSAGE_MAX) -> str:
    line = message.partition("\n")[0]
    return line if len(line) <= length_max else f"{line[: length_max - 1]}…"
