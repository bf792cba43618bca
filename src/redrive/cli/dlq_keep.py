# SPDX-License-Identifier: Apache-2.0
"""`redrive dlq edit|export|import`: mend the value a job will be replayed with, and carry letters from one installation to another.

The raw value of a job is shown only with `--show-values`; everything else here is redacted. A file that is there is never replaced.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Annotated, BinaryIO, Literal

import typer

from redrive.cli.acting import Act, acting
from redrive.cli.answers import answer_facts, answer_json, console, say
from redrive.cli.dlq import app
from redrive.cli.editor import edited
from redrive.cli.items import STANDARD_INPUT
from redrive.cli.letter_options import LetterId
from redrive.cli.options import Database, Output, confirm, existing
from redrive.cli.refusals import FAILED
from redrive.cli.selections import Choice, choosing
from redrive.cli.targets import pipeline_named
from redrive.errors import ConfigurationError
from redrive.ops import mending
from redrive.ops.exporting import export as exported
from redrive.ops.importing import import_letters
from redrive.ops.mending import Draft, View

Source = Annotated[str, typer.Argument(metavar="FILE", help="The export; - for standard input.")]


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
    """Change the value a replay starts with: from a file, by a patch, or in $EDITOR. The original is kept."""
    pipeline = None if types is None else pipeline_named(types)
    with act.database() as rd:
        given = None if value is None else _read(value, "--input")
        patched = None if patch is None else _read(patch, "--patch")
        if given is None and patched is None:
            view = mending.value_for_edit(rd.store, letter_id, part)
            given = _typed(view, f"{part} of letter {letter_id}", editor, show_values=show_values)
        made = mending.draft(rd.store, letter_id, part=part, value=given, patch=patched, pipeline=pipeline)
        _show_diff(made, is_people=act.output == "table")
        act.confirm(f"Replay letter {letter_id} with this {part}?")
        done = mending.commit(rd.store, made, act.by)
    act.answer({"letter": letter_id, "part": part, "edit": done.id, "is_checked": types is not None})


@app.command()
@choosing
def export(
    choice: Choice,
    *,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FILE", help="Into a new file, for its owner alone.")
    ] = None,
    with_values: Annotated[
        bool, typer.Option("--with-values", help="With the values of jobs, where their pipeline allows it.")
    ] = False,
    database_url: Database = None,
    output: Output = "table",
) -> None:
    """Write dead letters as redacted JSON lines; without an id or a filter, all of them."""
    with existing(database_url) as rd:
        lines = exported(rd.store, choice.means(rd.store, may_be_all=True), with_values=with_values)
        if to is None:
            for line in lines:
                typer.echo(line, nl=False)
            return
        with _new_file(to) as file:
            written = sum(1 for line in lines if file.write(line))
    answer_facts({"file": str(to), "letters": written, "is_with_values": with_values}, output)


@app.command("import")
@acting
def import_(source: Source, *, act: Act) -> None:
    """Take in another installation's export: failed jobs and open letters, each once. Wrong lines are refused by number."""
    if source == STANDARD_INPUT and not act.is_sure:
        raise ConfigurationError(
            field="FILE",
            value=source,
            rule="leaves nowhere to answer a question",
            fix="Look at the export first, then add --yes; or name a file.",
        )
    with act.database() as rd, _opened(source) as file, _twice(file, is_needed=not act.is_sure) as lines:
        if not act.is_sure:
            count = sum(1 for line in lines if line.strip())
            lines.seek(0)
            act.confirm(f"Take in the dead letters of {source} ({count:,} line{'' if count == 1 else 's'})?")
        imported = import_letters(rd.store, lines, act.by)
    if act.output == "json":
        answer_json(asdict(imported))
    else:
        act.answer({"made": imported.made, "known": imported.known, "refused": len(imported.refused)})
        for number, why in imported.refused:
            say(f"line {number}: {why}")
    if imported.refused:
        raise typer.Exit(FAILED)


def _typed(view: View, what: str, editor: str, *, show_values: bool) -> bytes:
    """Let somebody change a value in an editor: the redacted view, unless the value itself was asked for, twice."""
    if show_values:
        confirm(f"Show the {what} as it is, secrets included?", is_sure=False, instead="")
    return edited(view.raw.decode() if show_values else view.redacted, editor).encode()


def _show_diff(made: Draft, *, is_people: bool) -> None:
    if not is_people:
        say(made.diff)
        return
    for line in made.diff.split("\n"):
        style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
        console().print(line, style=style, soft_wrap=True)


def _read(source: str, option: str) -> bytes:
    with _opened(source, option) as file:
        return file.read()


@contextmanager
def _opened(source: str, option: str = "FILE") -> Generator[BinaryIO]:
    """Open a file to read, or standard input; what cannot be read is refused."""
    if source == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    try:
        file = Path(source).open("rb")  # noqa: SIM115 - closed below; only opening it is guarded.
    except OSError as error:
        raise ConfigurationError(
            field=option, value=source, rule="cannot be read", fix=f"{error.strerror}."
        ) from error
    with file:
        yield file


@contextmanager
def _twice(file: BinaryIO, *, is_needed: bool) -> Generator[IO[bytes]]:
    """Return a file that can be read twice: the file itself, or, of a pipe, a copy that goes with this command."""
    if not is_needed or file.seekable():
        yield file
        return
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(file, copy)
        copy.seek(0)
        yield copy


@contextmanager
def _new_file(path: Path) -> Generator[BinaryIO]:
    """Open a new file that belongs to its owner alone; one that is there is left alone."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise ConfigurationError(
            field="--to", value=str(path), rule="must be a new file", fix=f"{error.strerror}."
        ) from error
    with os.fdopen(descriptor, "wb") as file:
        yield file
