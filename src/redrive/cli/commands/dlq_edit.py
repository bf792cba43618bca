# SPDX-License-Identifier: Apache-2.0
"""`redrive dlq edit|edits`: change the value a replay starts with, list earlier edits, restore the original.

The raw value of a job is shown only with `--show-values`; everything else printed here is redacted.
"""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from redrive.cli.commands.dlq import app
from redrive.cli.input.action import Action, confirmed_action
from redrive.cli.input.files import edit_text, read_source
from redrive.cli.input.letters import LetterId
from redrive.cli.input.options import Database, Output, open_database
from redrive.cli.input.targets import import_pipeline
from redrive.cli.output.tables import console, print_json, print_message
from redrive.ops.letters.edit import Change, commit, value_for_edit
from redrive.ops.letters.edit import draft as draft_edit
from redrive.ops.letters.edit_history import edit_history


@app.command()
@confirmed_action
def edit(
    letter_id: LetterId,
    *,
    part: Annotated[
        Literal["payload", "input"],
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
    original: Annotated[bool, typer.Option("--original", help="Restore the value before all edits.")] = False,
    types: Annotated[
        str | None,
        typer.Option(
            "--target", metavar="MODULE:PIPELINE", help="Check the value against this code's types."
        ),
    ] = None,
    show_values: Annotated[
        bool, typer.Option("--show-values", help="Open the editor with the raw value, not redacted.")
    ] = False,
    editor: Annotated[
        str, typer.Option("--editor", envvar=["VISUAL", "EDITOR"], metavar="COMMAND", help="The editor.")
    ] = "vi",
    action: Action,
) -> None:
    """Change the value a replay starts with: from a file, by a patch, or in $EDITOR. The original is kept; see `dlq edits`."""
    pipeline = None if types is None else import_pipeline(types)
    with action.database() as rd:
        given = None if value is None else read_source(value, "--input")
        patched = None if patch is None else read_source(patch, "--patch")
        if given is None and patched is None and not original:
            view = value_for_edit(rd.store, letter_id, part)
            if show_values:
                action.confirm(f"Show the {part} of letter {letter_id} with its secrets?")
            given = edit_text(view.raw.decode() if show_values else view.redacted, editor).encode()
        change: Change = {"part": part, "value": given, "patch": patched, "original": original}
        change["pipeline"] = pipeline
        draft = draft_edit(rd.store, letter_id, **change)
        _print_diff(draft.diff, is_table=action.output == "table")
        if draft.unknown_fields:
            print_message(f"unknown fields, which the stage will ignore: {', '.join(draft.unknown_fields)}")
        action.confirm(f"Use this as the {part} of a replay of letter {letter_id}?")
        done = commit(rd.store, draft, action.by)
    facts = {"letter": letter_id, "part": part, "edit": done.id, "is_checked": types is not None}
    # The table leaves them out: they were printed before the question.
    action.print(facts if action.output == "table" else {**facts, "unknown_fields": done.unknown_fields})


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
        console().print(f"{where}, by {each.actor} at {each.at:%Y-%m-%d %H:%M:%S} UTC", soft_wrap=True)
        _print_diff(each.diff or "(its values were erased)", is_table=True)


def _print_diff(diff: str, *, is_table: bool) -> None:
    if not is_table:
        print_message(diff)
        return
    for line in diff.split("\n"):
        style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
        console().print(line, style=style, soft_wrap=True)
