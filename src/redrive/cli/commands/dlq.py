# SPDX-License-Identifier: Apache-2.0
"""`redrive dlq`: list dead letters, group them by cause, show one completely, check what a replay would do.

Nothing is changed here; commands that change letters are in modules of their own, which add them to this `app`.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Final

import msgspec
import typer

from redrive.cli.input.letters import NO_MATCH, LetterChoice, LetterId, letter_choice, letter_filter
from redrive.cli.input.options import (
    Database,
    FromStart,
    Limit,
    Output,
    OutputOrPicture,
    Targets,
    open_database,
)
from redrive.cli.input.targets import import_pipelines
from redrive.cli.output.errors import FAILED
from redrive.cli.output.tables import (
    console,
    print_attempts,
    print_facts,
    print_json,
    print_message,
    print_operations,
    print_rows,
    print_table,
    relative_time,
    shortened,
)
from redrive.core.units import plural
from redrive.ops.letters.details import LetterDetails, letter_details
from redrive.ops.letters.groups import LetterGroup, list_groups
from redrive.ops.letters.pages import list_letters
from redrive.ops.replay.validation import Validation
from redrive.ops.replay.validation import validate as validate_letters
from redrive.ops.reports import charts

app = typer.Typer(help="Inspect, triage, edit and move dead letters.", no_args_is_help=True)

MESSAGE_MAX: Final = 60
LIST_COLUMNS: Final = "id job stage code state assignee age message".split()
GROUP_COLUMNS: Final = "group count stage code class age sample trend message".split()
GROUP_DIGITS: Final = 8
"""Digits of a fingerprint that are printed; enough for --group."""
_PRINTED_BELOW: Final = frozenset({"sanitized_context", "last_stack", "message", "exception"})
"""Facts that `show` prints below its table."""


@app.command("list")
@letter_filter
def list_(
    choice: LetterChoice,
    *,
    before: Annotated[
        str | None, typer.Option("--before", metavar="CURSOR", help="Show the page after this cursor.")
    ] = None,
    limit: Limit = 50,
    database_url: Database = None,
    output: Output = "table",
) -> None:
    """List dead letters, newest first."""
    with open_database(database_url) as rd:
        which = choice.filter(rd.store, may_be_all=True)
        page = list_letters(rd.store, which, before=before, limit=limit)
    if output == "json":
        print_json(page)
        return
    rows = [
        {
            **asdict(letter),
            "stage": f"{letter.pipeline}.{letter.stage}",
            "state": f"{letter.state} (escalated)" if letter.is_escalated else letter.state,
            "age": letter.last_failure_at,
            "message": shortened(letter.message, MESSAGE_MAX),
        }
        for letter in page.letters
    ]
    print_rows(rows, LIST_COLUMNS, output, empty=NO_MATCH + (" so far" if page.next_cursor else ""))
    if page.next_cursor is not None:
        print_message(f"more: --before {page.next_cursor}")


@app.command("groups")
@letter_filter
def groups(
    choice: LetterChoice,
    *,
    limit: Limit = 50,
    database_url: Database = None,
    output: OutputOrPicture = "table",
) -> None:
    """Group dead letters by cause, the group with most pending letters first. Counts are of the letters that match."""
    with open_database(database_url) as rd:
        page = list_groups(rd.store, choice.filter(rd.store, may_be_all=True), limit=limit)
    found = page.groups
    if output == "json":
        print_json([{**asdict(each), "letters": each.letters} for each in found])
    elif output == "svg":
        rows = [
            (
                f"{each.fingerprint[:11]} {each.code}",
                each.trend.hours,
                f"{each.pending:,} {each.trend.word}",
            )
            for each in found
        ]
        typer.echo(charts.trends("Dead letters of the last 24 hours, by group", rows))
    else:
        print_rows([_group_row(each) for each in found], GROUP_COLUMNS, output, empty=NO_MATCH)
    if len(found) < page.total:
        print_message(
            f"{len(found):,} of {plural(page.total, 'group')}; --limit {page.total} shows all of them"
        )


@app.command()
def show(letter_id: LetterId, *, database_url: Database = None, output: Output = "table") -> None:
    """Show one dead letter: its facts, its stack with your own frames first, its attempts, and what operators did."""
    with open_database(database_url) as rd:
        details = letter_details(rd.store, letter_id)
    if output == "table":
        _print_letter(details)
        return
    print_json(
        {
            **asdict(details.letter),
            "frames": details.stack,
            "suggested_diagnosis": details.suggested_diagnosis,
            "hint": details.hint,
            "job_facts": details.facts,
            "attempts": details.attempts,
            "edits": details.edits,
            "operations": details.operations,
        }
    )


@app.command()
@letter_choice
def validate(
    choice: LetterChoice,
    *,
    target: Targets = None,
    from_start: FromStart = False,
    database_url: Database = None,
    output: Output = "table",
) -> None:
    """Check what a replay would do, letter by letter. Changes nothing; exit code 1 when a letter cannot be replayed."""
    code = import_pipelines(target)
    with open_database(database_url) as rd:
        found = validate_letters(rd.store, choice.filter(rd.store), pipelines=code, from_start=from_start)
    if output == "json":
        print_json({**asdict(found), "is_fine": found.is_fine})
    else:
        _print_validation(found)
    if not found.is_fine or not found.letters:
        raise typer.Exit(FAILED)


def _print_letter(details: LetterDetails) -> None:
    letter = details.letter
    facts = {
        name: value
        for name, value in asdict(letter).items()
        if value is not None and name not in _PRINTED_BELOW
    }
    if letter.diagnosis is None:
        facts["suggested_diagnosis"] = details.suggested_diagnosis
    if details.facts is not None:
        facts["job_status"] = details.facts.status
    print_facts({**facts, "hint": details.hint}, "table")
    out = console()
    out.print(f"{letter.exception}: {letter.message}", soft_wrap=True)
    stack = details.stack
    for frames, name in ((stack.own, "your code"), (stack.library, "libraries")):
        if frames:
            out.print(f"{plural(len(frames), 'frame')} of {name}, innermost last:")
            out.print("\n".join(frames), soft_wrap=True)
    # The message of a single exception is printed above already.
    if len(stack.messages) > 1:
        out.print("\n".join(stack.messages), soft_wrap=True)
    if letter.sanitized_context:
        context = msgspec.json.encode(letter.sanitized_context).decode()
        out.print(f"sanitized context: {context}", soft_wrap=True)
    print_attempts(details.attempts)
    print_table(details.edits, ("at", "actor", "part"))
    print_operations(details.operations)


def _print_validation(found: Validation) -> None:
    facts: dict[str, object] = {"letters": found.letters, "able": found.able}
    facts |= {f"obstacle: {kind}": count for kind, count in found.obstacles.items()}
    facts |= {f"notice: {kind}": count for kind, count in found.notices.items()}
    print_facts(facts, "table")
    print_table(found.findings, ("letter", "job", "kind", "text"))
    if found.unlisted:
        print_message(
            f"{plural(found.unlisted, 'more letter')} not listed; use a narrower filter to see them"
        )
    for pipeline in found.unchecked:
        print_message(f"values of {pipeline} were not checked: add --target MODULE:{pipeline}")
    if not found.letters:
        print_message(f"{NO_MATCH} that could be replayed")
    elif found.is_fine:
        print_message(f"all of them can be replayed{'; see the notices' if found.notices else ''}")


def _group_row(group: LetterGroup) -> dict[str, object]:
    first, last = (relative_time(each).removesuffix(" ago") for each in (group.first_at, group.last_at))
    return {
        "group": group.fingerprint.rpartition(":")[2][:GROUP_DIGITS],
        "count": group.pending,
        "stage": [f"{pipeline}.{stage}" for pipeline in group.pipelines for stage in group.stages],
        "code": group.code,
        "class": group.exception.rpartition(".")[2],
        "age": first if first == last else f"{last} to {first}",
        "sample": group.sample,
        "trend": group.trend.word,
        "message": shortened(group.message, MESSAGE_MAX),
    }
