# SPDX-License-Identifier: Apache-2.0
"""`redrive dlq edit|edits`: mend the value a job will be replayed with, look at what was edited, and go back.

The raw value of a job is shown only with `--show-values`; everything else here is redacted.
"""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from redrive.cli.commands.dlq import app
from redrive.cli.input.act import Act, acting
from redrive.cli.input.editor import edited
from redrive.cli.input.files import read_from
from redrive.cli.input.letter_options import LetterId
from redrive.cli.input.options import Database, Output, confirm, existing
from redrive.cli.input.targets import pipeline_named
from redrive.cli.output.tables import answer_json, console, say
from redrive.ops.letters import edit as mending
from redrive.ops.letters.edit import Change, View
from redrive.ops.letters.edit_history import edit_history


@app.command()
@acting
def edit(
    letter_id: LetterId,
    *,
    part: Annotated[
        Literal["payload", "input"],
        typer.Option("--part", help="The failed stage's input, or the whole job's payload."),
    ] = "input",
    value: Annotated[
        str | None,
        typer.Option("--input", metavar="FILE", help="The whole new value, as JSON; - to read it."),
    ] = None,
    patch: Annotated[
        str | None, typer.Option("--patch", metavar="FILE", help="A JSON Patch (RFC 6902); - to read it.")
    ] = None,
    original: Annotated[
        bool, typer.Option("--original", help="Go back to the value before all edits.")
    ] = False,
    types: Annotated[
        str | None,
        typer.Option("--target", metavar="MODULE:PIPELINE", help="Check it against the types of this code."),
    ] = None,
    show_values: Annotated[
        bool, typer.Option("--show-values", help="Let the editor have the value as it is, not redacted.")
    ] = False,
    editor: Annotated[
        str, typer.Option("--editor", envvar=["VISUAL", "EDITOR"], metavar="COMMAND", help="Your editor.")
    ] = "vi",
    act: Act,
) -> None:
    """Change the value a replay starts with: from a file, by a patch, or in $EDITOR. The original is kept: see `dlq edits`."""
    pipeline = None if types is None else pipeline_named(types)
    with act.database() as rd:
        given = None if value is None else read_from(value, "--input")
        patched = None if patch is None else read_from(patch, "--patch")
        if given is None and patched is None and not original:
            view = mending.value_for_edit(rd.store, letter_id, part)
            given = _typed(view, f"{part} of letter {letter_id}", editor, show_values=show_values)
        change: Change = {"part": part, "value": given, "patch": patched, "original": original}
        change["pipeline"] = pipeline
        made = mending.draft(rd.store, letter_id, **change)
        _show_diff(made.diff, is_people=act.output == "table")
        if named := ", ".join(made.unknown_fields):
            it = "it" if len(made.unknown_fields) == 1 else "them"
            say(f"its type does not know {named}: the stage will not see {it}")
        act.confirm(f"Keep this as the {part} a replay of letter {letter_id} starts with?")
        done = mending.commit(rd.store, made, act.by)
    facts = {"letter": letter_id, "part": part, "edit": done.id, "is_checked": types is not None}
    # People were told before they were asked.
    act.answer(facts if act.output == "table" else {**facts, "unknown_fields": done.unknown_fields})


@app.command()
def edits(letter_id: LetterId, *, database_url: Database = None, output: Output = "table") -> None:
    """Show what was edited of a letter, by whom and when, and what it was before; redacted. `dlq edit --original` goes back."""
    with existing(database_url) as rd:
        history = edit_history(rd.store, letter_id)
    if output == "json":
        answer_json(history)
        return
    if not history.edits:
        say("nothing of this letter was edited")
    for part, value in history.originals.items():
        console().print(f"the {part} before the first edit:\n{value}", soft_wrap=True)
    for number, each in enumerate(history.edits, 1):
        where = f"edit {number:,} of {len(history.edits):,}: {each.part}"
        console().print(f"{where}, by {each.actor} at {each.at:%Y-%m-%d %H:%M:%S} UTC", soft_wrap=True)
        _show_diff(each.diff or "(its values were erased)", is_people=True)


def _typed(view: View, what: str, editor: str, *, show_values: bool) -> bytes:
    """Let somebody change a value in an editor: the redacted view, unless the value itself was asked for, twice."""
    if show_values:
        confirm(f"Show the {what} as it is, secrets included?", is_sure=False, instead="")
    return edited(view.raw.decode() if show_values else view.redacted, editor).encode()


def _show_diff(diff: str, *, is_people: bool) -> None:
    if not is_people:
        say(diff)
        return
    for line in diff.split("\n"):
        style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
        console().print(line, style=style, soft_wrap=True)
