# SPDX-License-Identifier: Apache-2.0
"""The demo's shell: prints a command as a user would type it, runs exactly that in its own process, and prints its output."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Final

from rich.console import Console
from rich.text import Text

from redrive.engine.runtime import CURRENT

WIDTH: Final = 160
"""Characters per line where there is no terminal."""
POLL_SECONDS: Final = 0.1
TIMEOUT_SECONDS: Final = 60.0
ENV: Final = "/usr/bin/env"


class DemoError(Exception):
    """The demo did not go as its script expects."""

    def __init__(self, *, problem: str) -> None:
        super().__init__(problem)


def wait_until(
    is_done: Callable[[], bool], what: str, *, meanwhile: Callable[[], None] | None = None
) -> None:
    """Poll until something is done, and call `meanwhile` at each poll.

    Raises:
        DemoError: it is not done in time.
    """
    clock = CURRENT.get().clock
    deadline = clock.monotonic() + TIMEOUT_SECONDS
    while not is_done():
        if clock.monotonic() > deadline:
            raise DemoError(problem=f"{what} has not ended after {TIMEOUT_SECONDS:g} s")
        if meanwhile is not None:
            meanwhile()
        clock.sleep(POLL_SECONDS)


class Shell:
    """Runs commands on one database."""

    def __init__(self, console: Console, database: str) -> None:
        self._console = console
        self._database = database

    def export_database(self) -> None:
        """Print the setting that names the database, as one would type it first."""
        self._print_command(f"export REDRIVE_DATABASE_URL={shlex.quote(self._database)}")

    def run(
        self,
        *words: str,
        expect: int = 0,
        lines_max: int | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> None:
        """Run `redrive` with these words and print its output, or the first lines of it.

        Raises:
            DemoError: its exit code is not the expected one, or it does not end.
        """
        line = f"redrive {shlex.join(words)}"
        self._print_command(line)
        with tempfile.TemporaryFile() as output:
            # Settings are added by `env`, to leave this process's own environment alone. Unbuffered, so that lines for stdout and
            # stderr keep their order.
            process = subprocess.Popen(  # noqa: S603 - our own command, with our own arguments.
                [ENV, *self._settings(), sys.executable, "-u", "-m", "redrive.cli", *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
            try:
                wait_until(lambda: process.poll() is not None, line, meanwhile=meanwhile)
            finally:
                process.kill()
                code = process.wait()
            output.seek(0)
            text = output.read().decode(errors="replace")
        if meanwhile is not None:
            meanwhile()
        self._print_output(text, lines_max if code == expect else None)
        if code != expect:
            raise DemoError(problem=f"{line} ended with exit code {code} instead of {expect}")

    def _settings(self) -> tuple[str, ...]:
        console = self._console
        width = console.width if console.is_terminal else max(console.width, WIDTH)
        colours = "FORCE_COLOR=1" if console.is_terminal and not console.no_color else "NO_COLOR=1"
        return f"REDRIVE_DATABASE_URL={self._database}", f"COLUMNS={width}", colours

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
