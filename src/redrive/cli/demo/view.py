# SPDX-License-Identifier: Apache-2.0
"""What the demo prints while its jobs run: a live display on a terminal, plain lines anywhere else.

Reads nothing itself; `progress` does.
"""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from redrive.cli.demo.progress import STAGES, Progress

LINE_SECONDS: Final = 2.0
"""Between two plain lines."""
BAR_WIDTH: Final = 44
STATUSES: Final = ("queued", "processing", "complete", "failed")
_STYLES: Final = {"retry": "yellow", "hold": "cyan", "dead": "red"}
_WORDS: Final = {"retry": "retried", "hold": "held", "dead": "dead letter"}


class View:
    """Prints announcements, lines, and how far the jobs are."""

    def __init__(self, console: Console, *, plain: bool) -> None:
        self._console = console
        self._live = None if plain else Live(console=console, auto_refresh=False, transient=False)
        self._printed_at: float | None = None

    def live(self) -> AbstractContextManager[object]:
        """Keep the display on the terminal until the block ends."""
        return nullcontext() if self._live is None else self._live

    def announce(self, sentence: str, style: str = "bold") -> None:
        """Print a sentence that stays on the screen, above the display."""
        self._console.print(Text(f"* {sentence}", style=style), soft_wrap=True)

    def line(self, line: str) -> None:
        """Print a plain line."""
        self._console.print(line, soft_wrap=True, highlight=False, markup=False)

    def show(self, progress: Progress) -> None:
        """Show how far the jobs are."""
        if self._live is not None:
            self._live.update(display(progress), refresh=True)
        elif self._printed_at is None or progress.elapsed - self._printed_at >= LINE_SECONDS:
            self._printed_at = progress.elapsed
            self.line(line_of(progress))


def line_of(progress: Progress) -> str:
    """Return one plain line about how far the jobs are."""
    line = (
        f"{progress.elapsed:5.1f} s  {progress.ended} of {progress.total} ended, {progress.jobs('processing')} processing, "
        f"{progress.rate:.0f} stages/s, {progress.outcomes['retry']} retries, {progress.outcomes['hold']} holds, "
        f"{progress.dead.total()} dead letters"
    )
    return line + (f", breaker llm {progress.phase}: {progress.held} jobs held" if progress.held else "")


def display(progress: Progress) -> RenderableType:
    """Return the live display."""
    return Group(_bar(progress), _stages(progress), _codes(progress), _recent(progress))


def _bar(progress: Progress) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    bar = ProgressBar(total=max(1, progress.total), completed=progress.ended, width=BAR_WIDTH)
    counts = f"{progress.ended:,} of {progress.total:,} jobs  {progress.rate:,.0f} stages/s  {progress.elapsed:.0f} s"
    grid.add_row(bar, counts)
    return grid


def _stages(progress: Progress) -> RenderableType:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("stage")
    for status in STATUSES:
        table.add_column(status, justify="right")
    table.add_column("breaker")
    for stage in STAGES:
        counts = (progress.jobs(status, stage=stage) for status in STATUSES)
        breaker = _breaker(progress) if stage == "llm" else Text("")
        table.add_row(stage, *(f"{count:,}" for count in counts), breaker)
    return table


def _breaker(progress: Progress) -> Text:
    if progress.phase == "closed":
        return Text("closed", style="green")
    phase = progress.phase.replace("_", "-")
    return Text(f"{phase}: {progress.held:,} jobs held, no attempts used", style="cyan")


def _codes(progress: Progress) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    grid.add_row("attempts", _counted(progress.outcomes))
    grid.add_row("retries", _counted(progress.retried))
    grid.add_row("dead letters", _counted(progress.dead))
    return grid


def _counted(counts: Counter[str]) -> str:
    return "  ".join(f"{name} {count:,}" for name, count in counts.most_common()) or "none"


def _recent(progress: Progress) -> RenderableType:
    lines = [
        Text(
            f"  job {event.job} {event.stage} {_WORDS[event.outcome]} {event.code}: {event.sentence}",
            _STYLES[event.outcome],
            no_wrap=True,
            overflow="ellipsis",
        )
        for event in progress.recent
    ]
    return Group(*lines)
