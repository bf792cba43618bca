# SPDX-License-Identifier: Apache-2.0
"""How the demo shows its jobs while they run: a live picture on a terminal, plain lines anywhere else.

Only shows; what there is to show is read by `demo_watch`.
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

from redrive.cli.demo.watch import STAGES, Watch
from redrive.core.breaker_state import Phase

LINE_SECONDS: Final = 2.0
"""Between two plain lines."""
BAR_WIDTH: Final = 44
STATUSES: Final = ("queued", "processing", "complete", "failed")
_STYLES: Final = {"retry": "yellow", "hold": "cyan", "dead": "red"}
_WORDS: Final = {"retry": "retried", "hold": "held", "dead": "dead letter"}


class View:
    """What is shown while jobs run."""

    def __init__(self, console: Console, *, plain: bool) -> None:
        self._console = console
        self._live = None if plain else Live(console=console, auto_refresh=False, transient=False)
        self._shown_at: float | None = None

    def showing(self) -> AbstractContextManager[object]:
        """Show from here to the end of the block."""
        return nullcontext() if self._live is None else self._live

    def tell(self, sentence: str, style: str = "bold") -> None:
        """Announce something; it stays on the screen, above the picture."""
        self._console.print(Text(f"* {sentence}", style=style), soft_wrap=True)

    def say(self, line: str) -> None:
        """Show a plain line."""
        self._console.print(line, soft_wrap=True, highlight=False, markup=False)

    def show(self, watch: Watch) -> None:
        """Show how the jobs stand."""
        if self._live is not None:
            self._live.update(picture(watch), refresh=True)
        elif self._shown_at is None or watch.elapsed - self._shown_at >= LINE_SECONDS:
            self._shown_at = watch.elapsed
            self.say(line_of(watch))


def line_of(watch: Watch) -> str:
    """Return one plain line about how the jobs stand."""
    said = (
        f"{watch.elapsed:5.1f} s  {watch.ended} of {watch.total} ended, {watch.jobs('processing')} processing, "
        f"{watch.rate:.0f} stages/s, {watch.outcomes['retry']} retries, {watch.outcomes['hold']} holds, "
        f"{watch.dead.total()} dead letters"
    )
    return said + (f", breaker llm {watch.phase}: {watch.held} jobs held" if watch.held else "")


def picture(watch: Watch) -> RenderableType:
    """Return the live picture."""
    return Group(_progress(watch), _lanes(watch), _codes(watch), _recent(watch))


def _progress(watch: Watch) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    bar = ProgressBar(total=max(1, watch.total), completed=watch.ended, width=BAR_WIDTH)
    left = f"{watch.ended:,} of {watch.total:,} jobs  {watch.rate:,.0f} stages/s  {watch.elapsed:.0f} s"
    grid.add_row(bar, left)
    return grid


def _lanes(watch: Watch) -> RenderableType:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("stage")
    for status in STATUSES:
        table.add_column(status, justify="right")
    table.add_column("breaker")
    for stage in STAGES:
        counts = (watch.jobs(status, stage=stage) for status in STATUSES)
        breaker = _breaker(watch) if stage == "llm" else Text("")
        table.add_row(stage, *(f"{count:,}" for count in counts), breaker)
    return table


def _breaker(watch: Watch) -> Text:
    if watch.phase is Phase.CLOSED:
        return Text("closed", style="green")
    return Text(f"{watch.phase.replace('_', '-')}: {watch.held:,} jobs held, no attempt burned", style="cyan")


def _codes(watch: Watch) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    grid.add_row("attempts", _counted(watch.outcomes))
    grid.add_row("retries", _counted(watch.retried))
    grid.add_row("dead letters", _counted(watch.dead))
    return grid


def _counted(counts: Counter[str]) -> str:
    return "  ".join(f"{name} {count:,}" for name, count in counts.most_common()) or "none"


def _recent(watch: Watch) -> RenderableType:
    lines = [
        Text(
            f"  job {one.job} {one.stage} {_WORDS[one.outcome]} {one.code}: {one.sentence}",
            _STYLES[one.outcome],
        )
        for one in watch.recent
    ]
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    return Group(*lines)
