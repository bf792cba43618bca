# SPDX-License-Identifier: Apache-2.0
"""`redrive dlq export|import`: move dead letters from one installation to another.

Everything is redacted, unless values are requested with `--with-values`. An existing file is never replaced.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Annotated, BinaryIO, Final

import typer

from redrive.cli.commands.dlq import app
from redrive.cli.input.action import Action, confirmed_action, immediate_action
from redrive.cli.input.files import STANDARD_INPUT, name_of, open_source
from redrive.cli.input.letters import LetterChoice, letter_choice
from redrive.cli.output.errors import FAILED
from redrive.cli.output.tables import print_json, print_message
from redrive.cli.output.terminal import escaped_json
from redrive.core.units import plural
from redrive.engine.runtime import CURRENT
from redrive.errors import ConfigurationError
from redrive.ops.letters.exports import export as export_letters
from redrive.ops.letters.freeze import freeze
from redrive.ops.letters.imports import import_letters

REPORT_SECONDS: Final = 3.0
Source = Annotated[str, typer.Argument(metavar="FILE", help="The export; - for standard input.")]


@app.command()
@letter_choice
@immediate_action
def export(
    choice: LetterChoice,
    *,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FILE", help="A new file, readable by its owner only.")
    ] = None,
    with_values: Annotated[
        bool,
        typer.Option("--with-values", help="Include the values of jobs, where their pipeline allows it."),
    ] = False,
    action: Action,
) -> None:
    """Export dead letters as redacted JSON lines; without an id or a filter, all of them. An export with values is logged."""
    with action.database() as rd:
        which = choice.filter(rd.store, may_be_all=True)
        lines = reported(
            export_letters(rd.store, which, action.by, with_values=with_values), freeze(rd.store, which).count
        )
        if to is None:
            # For a program it is left as it is; a terminal would obey what is in it.
            is_shown = sys.stdout.isatty()
            for line in lines:
                typer.echo(escaped_json(line.decode()) if is_shown else line, nl=False)
            return
        with _new_file(to) as file:
            written = sum(1 for line in lines if file.write(line))
    action.print({"file": str(to), "letters": written, "is_with_values": with_values})


@app.command("import")
@confirmed_action
def import_(source: Source, *, action: Action) -> None:
    """Import another installation's export as failed jobs with open letters, each once. Wrong lines are reported by number."""
    if source == STANDARD_INPUT and not action.yes:
        raise ConfigurationError(
            field="FILE",
            value=source,
            rule="cannot be standard input when a confirmation is needed",
            fix="Check the export first, then add --yes; or name a file.",
        )
    with (
        action.database() as rd,
        open_source(source, "FILE") as file,
        _rereadable(file, is_needed=not action.yes) as lines,
    ):
        if not action.yes:
            count = sum(1 for line in lines if line.strip())
            lines.seek(0)
            action.confirm(f"Import the dead letters of {source} ({plural(count, 'line')})?")
        imported = import_letters(rd.store, lines, action.by)
    if action.output == "json":
        print_json(asdict(imported))
    else:
        facts = {"made": imported.made, "known": imported.known, "over": sum(imported.over.values())}
        action.print({**facts, "refused": len(imported.refused)})
        for state, letters in imported.over.items():
            print_message(f"{letters:,} not imported: {state} in the other installation, nothing to replay")
        for number, why in imported.refused:
            print_message(f"line {number}: {why}")
    if not imported.lines:
        print_message(f"error: {name_of(source)} is empty")
    if imported.refused or not imported.lines:
        raise typer.Exit(FAILED)


def reported(lines: Iterable[bytes], total: int) -> Iterator[bytes]:
    """Yield the lines of an export, and print how far it is on stderr every few seconds."""
    clock = CURRENT.get().clock
    last = clock.wall()
    for done, line in enumerate(lines, 1):
        yield line
        if clock.wall() - last >= REPORT_SECONDS:
            last = clock.wall()
            print_message(f"{done:,} of {plural(total, 'letter')} exported")


@contextmanager
def _rereadable(file: BinaryIO, *, is_needed: bool) -> Generator[IO[bytes]]:
    """Return a file that can be read twice: the file itself, or a temporary copy of a pipe."""
    if not is_needed or file.seekable():
        yield file
        return
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(file, copy)
        copy.seek(0)
        yield copy


def _new_file(path: Path) -> BinaryIO:
    """Create a file that only its owner can read; refuse to replace one."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise ConfigurationError(
            field="--to", value=str(path), rule="must be a new file", fix=f"{error.strerror}."
        ) from error
    return os.fdopen(descriptor, "wb")
