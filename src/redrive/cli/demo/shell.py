# SPDX-License-Identifier: Apache-2.0
"""The demo's prompt: shows a command as a user would type it, runs exactly that in a process of its own, and shows its answer.

A command that ends otherwise than the scene expects takes the demo off its script; what it said is shown all the same.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import IO, Final

from rich.console import Console
from rich.text import Text

from redrive.engine.runtime import CURRENT

WIDTH: Final = 160
"""Characters in a line where no terminal says how many there are."""
LOOK_SECONDS: Final = 0.1
ENV: Final = "/usr/bin/env"
PATIENCE_SECONDS: Final = 60.0
"""So long a command may take."""


class OffScriptError(Exception):
    """Something went otherwise than the demo says it does."""

    def __init__(self, *, problem: str) -> None:
        super().__init__(problem)


class Shell:
    """Where commands are typed; all of them are about one database."""

    def __init__(self, console: Console, database: str) -> None:
        self._console = console
        self._database = database

    def enter(self) -> None:
        """Say once where the jobs are, as one would in a shell."""
        self._prompt(f"export REDRIVE_DATABASE_URL={shlex.quote(self._database)}")

    def run(
        self,
        *words: str,
        expect: int = 0,
        lines_max: int | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> None:
        """Run `redrive` with these words and show its answer, or the beginning of it; `meanwhile` is called until it ends.

        Raises:
            OffScriptError: its exit code is not the expected one, or it does not end.
        """
        line = f"redrive {shlex.join(words)}"
        self._prompt(line)
        with tempfile.TemporaryFile() as answer:
            code = self._wait_for(self._start(words, answer), line, meanwhile)
            answer.seek(0)
            text = answer.read().decode(errors="replace")
        self._answer(text, lines_max if code == expect else None)
        if code != expect:
            raise OffScriptError(problem=f"{line} ended with exit code {code} instead of {expect}")

    def _start(self, words: tuple[str, ...], answer: IO[bytes]) -> subprocess.Popen[bytes]:
        console = self._console
        width = console.width if console.is_terminal else max(console.width, WIDTH)
        colours = "FORCE_COLOR=1" if console.is_terminal and not console.no_color else "NO_COLOR=1"
        settings = (f"REDRIVE_DATABASE_URL={self._database}", f"COLUMNS={width}", colours)
        # Settings are added by `env`: what the environment holds is none of our business. Unbuffered, so that lines for both
        # outputs keep their order.
        return subprocess.Popen(  # noqa: S603 - our own command, with our own arguments.
            [ENV, *settings, sys.executable, "-u", "-m", "redrive.cli", *words],
            stdin=subprocess.DEVNULL,
            stdout=answer,
            stderr=answer,
        )

    def _wait_for(
        self, command: subprocess.Popen[bytes], line: str, meanwhile: Callable[[], None] | None
    ) -> int:
        clock = CURRENT.get().clock
        until = clock.monotonic() + PATIENCE_SECONDS
        try:
            while (code := command.poll()) is None:
                if clock.monotonic() > until:
                    raise OffScriptError(problem=f"{line} has not ended after {PATIENCE_SECONDS:g} s")
                if meanwhile is not None:
                    meanwhile()
                clock.sleep(LOOK_SECONDS)
        finally:
            if command.poll() is None:
                command.kill()
                command.wait()
        if meanwhile is not None:
            meanwhile()
        return code

    def _prompt(self, line: str) -> None:
        self._console.print(Text(f"$ {line}", style="bold magenta"), soft_wrap=True)

    def _answer(self, text: str, lines_max: int | None) -> None:
        lines = text.rstrip("\n").split("\n")
        shown = lines if lines_max is None else lines[:lines_max]
        for line in shown:
            self._console.print(Text.from_ansi(line), soft_wrap=True)
        if len(shown) < len(lines):
            self._console.print(Text(f"... and {len(lines) - len(shown)} more lines", "dim"), soft_wrap=True)
        self._console.print()
