# SPDX-License-Identifier: Apache-2.0
"""What commands read: files or standard input, JSON values line by line, and a value from the user's editor.

A file is checked completely before anything is stored, so a wrong line leaves nothing half done. Standard input cannot be read
twice: what came before a wrong line stays.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from redrive.errors import ConfigurationError, SerializationError

STANDARD_INPUT: Final = "-"


def open_source(source: str, option: str) -> AbstractContextManager[BinaryIO]:
    """Open a file to read, or standard input, which stays open; refuse what cannot be read."""
    if source == STANDARD_INPUT:
        return nullcontext(sys.stdin.buffer)
    try:
        return Path(source).open("rb")
    except OSError as error:
        raise ConfigurationError(
            field=option, value=source, rule="cannot be read", fix=f"{error.strerror}."
        ) from error


def read_source(source: str, option: str) -> bytes:
    """Return all of a file, or of standard input."""
    with open_source(source, option) as file:
        return file.read()


def name_of(source: str) -> str:
    """Return what messages call a source."""
    return "standard input" if source == STANDARD_INPUT else source


def decode_json(text: str | bytes, where: str) -> object:
    """Return a JSON value; refuse anything else, with its place."""
    try:
        value: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        word = _quoted(text)
        problem = "It is nested too deep" if isinstance(error, RecursionError) else error
        raise ConfigurationError(
            field=where,
            # What was meant to be JSON is a value of a job, and may be anything.
            value=text if word else f"<{len(text):,} characters>",
            rule="must be JSON",
            fix=f"{problem}.{word}",
        ) from None
    return value


def _quoted(text: str | bytes) -> str:
    """Return how to quote a plain word or an address as JSON; an empty text for what was meant to be JSON."""
    if not isinstance(text, str) or not text or text.strip()[:1] in {*"{[\"'-0123456789"}:
        return ""
    return f" A text needs quotes of its own in a shell: '{msgspec.json.encode(text).decode()}'."


def values_in(
    source: str, option: str, check: Callable[[object], object], *, hint: str | None = None
) -> Iterator[object]:
    """Yield the value of every line that is not empty; `check` raises SerializationError for one that does not fit.

    A wrong line is named by its number; `hint` is the advice for one that does not fit.
    """
    name = name_of(source)
    with open_source(source, option) as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            value = decode_json(line, f"{name}, line {number}")
            try:
                check(value)
            except SerializationError as error:
                named = SerializationError(
                    where=f"{source}, line {number}: {error.where}", kind=error.kind, problem=error.problem
                )
                named.hint = hint or named.hint
                raise named from error
            yield value


def check_all(source: str, values: Callable[[], Iterator[object]]) -> None:
    """Read all values of a file once, before anything is stored; what can be read only once is not checked ahead."""
    is_read_once = source == STANDARD_INPUT or (Path(source).exists() and not Path(source).is_file())
    if not is_read_once:
        for _ in values():
            pass


def edit_text(text: str, editor: str) -> str:
    """Return what the user made of a text in their editor; refuse an editor that does not start or fails."""
    # A private folder, and not only a private file: what the editor puts beside the file (swap files, backups) is private too.
    with tempfile.TemporaryDirectory(prefix="redrive-") as folder:
        path = Path(folder) / "value.json"
        path.touch(0o600, exist_ok=False)
        path.write_text(text, encoding="utf-8")
        try:
            command = [*shlex.split(editor), str(path)]
            subprocess.run(command, check=True)  # noqa: S603 - the user chooses their editor.
            return path.read_text(encoding="utf-8")
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            raise ConfigurationError(
                field="--editor", value=editor, rule="failed", fix=f"{error}; nothing was changed."
            ) from error
