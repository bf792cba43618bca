# SPDX-License-Identifier: Apache-2.0
"""The demo's shell: prints a command as a user would type it, runs exactly that, and prints its output.

Commands run in this process, through the same entry point as `redrive` itself.
"""

from __future__ import annotations

import io
import shlex
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import Final

from rich.console import Console
from rich.text import Text
from typer.main import get_command

from redrive.cli.app import app
from redrive.cli.output.errors import DONE, print_error
from redrive.engine.runtime import CURRENT
from redrive.errors import RedriveError

POLL_SECONDS: Final = 0.1
TIMEOUT_SECONDS: Final = 60.0


class DemoError(Exception):
    """The demo did not go as its script expects."""

    def __init__(self, *, problem: str) -> None:
        super().__init__(problem)


def wait_until(is_done: Callable[[], bool], what: str) -> None:
    """Poll until something is done.

    Raises:
        DemoError: it is not done in time.
    """
    clock = CURRENT.get().clock
    deadline = clock.monotonic() + TIMEOUT_SECONDS
    while not is_done():
        if clock.monotonic() > deadline:
            raise DemoError(problem=f"{what} has not ended after {TIMEOUT_SECONDS:g} s")
        clock.sleep(POLL_SECONDS)


class _Output(io.StringIO):
    """Collects what a command prints, in colour when the demo runs on a terminal."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


class Shell:
    """Runs commands on one database."""

    def __init__(self, console: Console, database: str) -> None:
        self._console = console
        self._database = database

    def export_database(self) -> None:
        """Print the setting that names the database, as one would type it first."""
        self._print_command(f"export REDRIVE_DATABASE_URL={shlex.quote(self._database)}")

    def run(self, *words: str, expect: int = DONE, lines_max: int | None = None) -> None:
        """Run `redrive` with these words and print its output, or the first lines of it.

        Raises:
            DemoError: its exit code is not the expected one.
        """
        line = f"redrive {shlex.join(words)}"
        self._print_command(line)
        output = _Output(is_terminal=self._console.is_terminal)
        with redirect_stdout(output), redirect_stderr(output):
            code = self._exit_code(words)
        self._print_output(output.getvalue(), lines_max if code == expect else None)
        if code != expect:
            raise DemoError(problem=f"{line} ended with exit code {code} instead of {expect}")

    def _exit_code(self, words: tuple[str, ...]) -> object:
        try:
            get_command(app).main([*words, "--database-url", self._database], prog_name="redrive")
        except SystemExit as ended:
            return ended.code or DONE
        except RedriveError as error:
            return print_error(error)
        return DONE

    def _print_command(self, line: str) -> None:
        self._console.print(Text(f"$ {line}", style="bold magenta"), soft_wrap=True)

    def _print_output(self, text: str, lines_max: int | None) -> None:
        lines = text.rstrip("\n").split("\n")
        printed = lines[:lines_max]
        for line in printed:
            self._console.print(Text.from_ansi(line), soft_wrap=True)
        if len(printed) < len(lines):
            more = f"... and {len(lines) - len(printed)} more lines"
            self._console.print(Text(more, "dim"), soft_wrap=True)
        self._console.print()
