# SPDX-License-Identifier: Apache-2.0
"""`redrive dlq export|import`: carry letters from one installation to another.

Everything is redacted, unless values are asked for by name. A file that is there is never replaced.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Annotated, BinaryIO

import typer

from redrive.cli.commands.dlq import app
from redrive.cli.input.act import Act, acting, acting_at_once
from redrive.cli.input.files import opened
from redrive.cli.input.items import STANDARD_INPUT
from redrive.cli.input.letters import Choice, choosing
from redrive.cli.output.errors import FAILED
from redrive.cli.output.tables import answer_json, say
from redrive.errors import ConfigurationError
from redrive.ops.letters.exports import export as exported
from redrive.ops.letters.imports import import_letters

Source = Annotated[str, typer.Argument(metavar="FILE", help="The export; - for standard input.")]


@app.command()
@choosing
@acting_at_once
def export(
    choice: Choice,
    *,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FILE", help="Into a new file, for its owner alone.")
    ] = None,
    with_values: Annotated[
        bool, typer.Option("--with-values", help="With the values of jobs, where their pipeline allows it.")
    ] = False,
    act: Act,
) -> None:
    """Write dead letters as redacted JSON lines; without an id or a filter, all of them. With values it is on record."""
    with act.database() as rd:
        which = choice.means(rd.store, may_be_all=True)
        lines = exported(rd.store, which, act.by, with_values=with_values)
        if to is None:
            for line in lines:
                typer.echo(line, nl=False)
            return
        with _new_file(to) as file:
            written = sum(1 for line in lines if file.write(line))
    act.answer({"file": str(to), "letters": written, "is_with_values": with_values})


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
    with act.database() as rd, opened(source) as file, _twice(file, is_needed=not act.is_sure) as lines:
        if not act.is_sure:
            count = sum(1 for line in lines if line.strip())
            lines.seek(0)
            act.confirm(f"Take in the dead letters of {source} ({count:,} line{'' if count == 1 else 's'})?")
        imported = import_letters(rd.store, lines, act.by)
    if act.output == "json":
        answer_json(asdict(imported))
    else:
        over = sum(imported.over.values())
        facts = {"made": imported.made, "known": imported.known, "over": over}
        act.answer({**facts, "refused": len(imported.refused)})
        for state, letters in imported.over.items():
            say(f"{letters:,} left out: {state} where they come from, so there is nothing to replay")
        for number, why in imported.refused:
            say(f"line {number}: {why}")
    if not imported.lines:
        say(f"error: there is no line in {'standard input' if source == STANDARD_INPUT else source}")
    if imported.refused or not imported.lines:
        raise typer.Exit(FAILED)


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
