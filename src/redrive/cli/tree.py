# SPDX-License-Identifier: Apache-2.0
"""The commands below `redrive`: what its help and completion say about them, and where they are.

A command's module is imported when the command is used, so that `redrive --version`, `redrive --help` and the completion of a
command's name do not load the engine. The texts are those of the commands themselves; a test compares them.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

WORK: Final = "Run work"
LOOK: Final = "Inspect"
BACK: Final = "Recover failed jobs"
KEEP: Final = "Maintain the database"


class Entry(NamedTuple):
    """One command, or group of commands, of the first level."""

    panel: str
    place: str
    """`module:name` of a function or a `Typer`."""
    help: str
    added_by: tuple[str, ...] = ()
    """Modules that add their commands to the group when they are imported."""


TREE: Final = {
    "submit": Entry(WORK, "redrive.cli.commands.submit:submit", "Submit jobs to a pipeline."),
    "worker": Entry(
        WORK,
        "redrive.cli.commands.worker:worker",
        "Run the jobs of some pipelines until stopped by a signal.",
    ),
    "events": Entry(
        LOOK,
        "redrive.cli.commands.events:events",
        "Show the latest attempts with outcome and reason, and changes of breakers with their cause, oldest first.",
    ),
    "stats": Entry(
        LOOK,
        "redrive.cli.commands.events:stats",
        "Count jobs by state, and show what is held, since when, and by which breaker, and what waits for a limit.",
    ),
    "doctor": Entry(
        KEEP,
        "redrive.cli.commands.upkeep:doctor",
        "Check the database, its schema, clock, disk, workers, leases and breakers, and advise what to do.",
    ),
    "backup": Entry(
        KEEP,
        "redrive.cli.commands.upkeep:backup",
        "Copy the database into a new file while workers keep running, and check the copy.",
    ),
    "prune": Entry(
        KEEP,
        "redrive.cli.commands.upkeep:prune",
        "Delete jobs that ended long ago, a thousand per transaction; failed ones only with --failed.",
    ),
    "migrate": Entry(
        KEEP,
        "redrive.cli.commands.upkeep:migrate",
        "Migrate the database to the schema of this redrive, or create a new one.",
    ),
    "transfer": Entry(
        KEEP,
        "redrive.cli.commands.upkeep:transfer",
        "Move a stopped installation from a file to a PostgreSQL server, and compare all counts.",
    ),
    "demo": Entry(
        WORK,
        "redrive.cli.demo.command:demo",
        "Run jobs against a faulty upstream, kill a worker, account for every job, and replay some that failed.",
    ),
    "run": Entry(
        WORK, "redrive.cli.commands.run:app", "Run many items through a pipeline and account for each."
    ),
    "schedule": Entry(
        WORK, "redrive.cli.commands.schedule:app", "Submit jobs, or prune, repeatedly by a cron expression."
    ),
    "job": Entry(LOOK, "redrive.cli.commands.job:app", "Inspect jobs; cancel, retry and erase them."),
    "dlq": Entry(
        BACK,
        "redrive.cli.commands.dlq:app",
        "Inspect, triage, edit and move dead letters.",
        added_by=(
            "redrive.cli.commands.dlq_edit",
            "redrive.cli.commands.dlq_transfer",
            "redrive.cli.commands.dlq_triage",
        ),
    ),
    "replay": Entry(
        BACK,
        "redrive.cli.commands.replay:app",
        "Replay dead letters; follow, pause, cancel and close replays.",
    ),
    "pipeline": Entry(LOOK, "redrive.cli.commands.pipeline:app", "List pipelines; pause and resume them."),
    "breaker": Entry(LOOK, "redrive.cli.commands.breaker:app", "List breakers; open, close or isolate them."),
    "limit": Entry(LOOK, "redrive.cli.commands.limit:app", "List limits; set, pause or resume them."),
    "report": Entry(
        LOOK, "redrive.cli.commands.report:app", "Report retries, errors, stages and the account of jobs."
    ),
    "lab": Entry(LOOK, "redrive.cli.commands.lab:app", "Choose a retry policy by evidence."),
}


class LazyGroup(TyperGroup):
    """The root: lists commands by their entries, and loads the one that is used."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, entry in TREE.items():
            self.add_command(TyperCommand(name, help=entry.help, rich_help_panel=entry.panel))

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - the signature is the base class's.
        """Write the commands by what they are for. As plain text: Rich alone would take longer than all the rest."""
        for panel in dict.fromkeys(entry.panel for entry in TREE.values()):
            with formatter.section(panel):
                formatter.write_dl(
                    [(name, entry.help) for name, entry in TREE.items() if entry.panel == panel]
                )

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the named command, loaded, and the arguments after its name."""
        name, listed, rest = super().resolve_command(ctx, args)
        return name, listed if name is None else load(name), rest


@cache
def load(name: str) -> Any:
    """Import a command and return it as Typer builds it."""
    entry = TREE[name]
    module, _, attribute = entry.place.partition(":")
    found = getattr(import_module(module), attribute)
    for other in entry.added_by:
        import_module(other)
    # In a tree of its own: as the root of one, a group of a single command would be that command, and have options for completion.
    tree = typer.Typer()
    if isinstance(found, typer.Typer):
        tree.add_typer(found, name=name, rich_help_panel=entry.panel)
    else:
        tree.command(name, rich_help_panel=entry.panel)(found)
    return get_group(tree).commands[name]
