# SPDX-License-Identifier: Apache-2.0
"""`redrive dlq edit|edits`: change the value a replay of one letter or of many starts with, list edits, restore the original.

The raw value of a job is shown only with `--show-values`; everything else printed here is redacted.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from redrive.cli.commands.dlq import app
from redrive.cli.input.action import Action, confirmed_action
from redrive.cli.input.files import edit_text, read_source
from redrive.cli.input.letters import LetterChoice, LetterId, letter_choice
from redrive.cli.input.options import Database, Output, open_database
from redrive.cli.input.targets import import_function, import_pipeline
from redrive.cli.output.errors import FAILED
from redrive.cli.output.tables import console, print_json, print_message
from redrive.client.connection import Redrive
from redrive.core.units import plural, utc_text
from redrive.ops.letters.bulk_edit import BulkEdit, edit_many
from redrive.ops.letters.details import edit_history
from redrive.ops.letters.edit import Change, commit, read_letter_value, value_for_edit
from redrive.ops.letters.edit import draft as draft_edit
from redrive.store.records import Part


@app.command()
@letter_choice
@confirmed_action
def edit(
    choice: LetterChoice,
    *,
    part: Annotated[
        Part,
        typer.Option("--part", help="The failed stage's input, or the whole job's payload."),
    ] = "input",
    value: Annotated[
        str | None,
        typer.Option("--input", metavar="FILE", help="The new value as JSON; - for standard input."),
    ] = None,
    patch: Annotated[
        str | None,
        typer.Option("--patch", metavar="FILE", help="A JSON Patch (RFC 6902); - for standard input."),
    ] = None,
    function: Annotated[
        str | None,
        typer.Option(
            "--with",
            metavar="MODULE:FUNCTION",
            help="A function that takes the value and returns the new one.",
        ),
    ] = None,
    original: Annotated[bool, typer.Option("--original", help="Restore the value before all edits.")] = False,
    types: Annotated[
        str | None,
        typer.Option(
            "--target", metavar="MODULE:PIPELINE", help="Check the value against this code's types."
        ),
    ] = None,
    show_values: Annotated[
        bool, typer.Option("--show-values", help="Open the editor with the raw value, not redacted; logged.")
    ] = False,
    editor: Annotated[
        str, typer.Option("--editor", envvar=["VISUAL", "EDITOR"], metavar="COMMAND", help="The editor.")
    ] = "vi",
    action: Action,
) -> None:
    """Change the value a replay starts with: from a file, by a patch or a function, or in $EDITOR. The original is kept.

    Many letters take a patch, a function or --original; the counts and some of the diffs are shown first. See `dlq edits`.
    """
    change: Change = {"part": part, "original": original}
    change["pipeline"] = None if types is None else import_pipeline(types)
    change["function"] = None if function is None else import_function(function, "--with")
    with action.database() as rd:
        choice.filter(rd.store)
        change["value"] = None if value is None else read_source(value, "--input")
        change["patch"] = None if patch is None else read_source(patch, "--patch")
        if choice.letter is None:
            _edit_many(rd, choice, change, action)
            return
        if not (value or patch or function or original):
            change["value"] = _from_editor(rd, choice.letter, part, editor, action if show_values else None)
        _edit_one(rd, choice.letter, change, action)


def _from_editor(rd: Redrive, letter: int, part: Part, editor: str, shown_to: Action | None) -> bytes:
    """Return what the user made of a value in their editor; raw only for whoever asked, and that is logged."""
    text = value_for_edit(rd.store, letter, part)
    if shown_to is not None:
        shown_to.confirm(f"Show the {part} of letter {letter} with its secrets?")
        text = msgspec.json.format(read_letter_value(rd.store, letter, part, shown_to.by), indent=2).decode()
    return edit_text(text, editor).encode()


def _edit_one(rd: Redrive, letter: int, change: Change, action: Action) -> None:
    draft = draft_edit(rd.store, letter, **change)
    _print_diff(draft.diff, is_table=action.output == "table")
    if draft.unknown_fields:
        print_message(f"unknown fields, which the stage will ignore: {', '.join(draft.unknown_fields)}")
    action.confirm(f"Use this as the {draft.part} of a replay of letter {letter}?")
    done = commit(rd.store, draft, action.by)
    facts = {"letter": letter, "part": draft.part, "edit": done.id}
    facts["is_checked"] = change.get("pipeline") is not None
    # The table leaves them out: they were printed before the question.
    action.print(facts if action.output == "table" else {**facts, "unknown_fields": done.unknown_fields})


def _edit_many(rd: Redrive, choice: LetterChoice, change: Change, action: Action) -> None:
    frozen = choice.freeze(rd.store)
    found = edit_many(rd.store, frozen, None, **change)
    for letter, diff in found.sample.items():
        _print_diff(f"letter {letter}:\n{diff}", is_table=action.output == "table")
    _print_rest(found)
    if found.changed:
        letters = plural(frozen.count, "dead letter")
        action.confirm(f"Edit the {change.get('part')} of {found.changed:,} of {letters}?")
        found = edit_many(rd.store, frozen, action.by, **change)
    left = {str(reason): letters for reason, letters in found.left.items()}
    facts = {"subject": str(frozen.subject), "count": frozen.count, "changed": found.changed}
    action.print(
        {**facts, "unchanged": found.unchanged, "left": left, "unknown_fields": found.unknown_fields}
    )
    if not found.changed:
        print_message("nothing was changed")
        raise typer.Exit(FAILED)


def _print_rest(found: BulkEdit) -> None:
    """Print what is not in the sample: how many change, are unchanged and are left alone, and why."""
    print_message(f"{found.changed:,} will change, {found.unchanged:,} are unchanged")
    for reason, letters in found.left.items():
        print_message(f"{letters:,} will be left alone: {reason.text(letters)}")
    if found.unknown_fields:
        print_message(f"unknown fields, which the stage will ignore: {', '.join(found.unknown_fields)}")


@app.command()
def edits(letter_id: LetterId, *, database_url: Database = None, output: Output = "table") -> None:
    """List the edits of a letter with who, when and what changed, redacted. `dlq edit --original` restores the original."""
    with open_database(database_url) as rd:
        history = edit_history(rd.store, letter_id)
    if output == "json":
        print_json(history)
        return
    if not history.edits:
        print_message("this letter has no edits")
    for part, value in history.originals.items():
        console().print(f"the {part} before the first edit:\n{value}", soft_wrap=True)
    for number, each in enumerate(history.edits, 1):
        where = f"edit {number:,} of {len(history.edits):,}: {each.part}"
        console().print(f"{where}, by {each.actor} at {utc_text(each.at)}", soft_wrap=True)
        _print_diff(each.diff or "(its values were erased)", is_table=True)


def _print_diff(diff: str, *, is_table: bool) -> None:
    if not is_table:
        print_message(diff)
        return
    for line in diff.split("\n"):
        style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
        console().print(line, style=style, soft_wrap=True)
