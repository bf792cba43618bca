# SPDX-License-Identifier: Apache-2.0
"""The tree of commands below `redrive`.

A command's module is imported when the command is used, so that `redrive --version`, `redrive --help` and the completion of a
command's name do not load the engine.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from redrive.cli.commands import TREE


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
    module = import_module(f"redrive.cli.commands.{entry.module}")
    for other in entry.added_by:
        import_module(f"redrive.cli.commands.{other}")
    # In a tree of its own: as the root of one, a group of a single command would be that command, and have options for completion.
    tree = typer.Typer()
    if hasattr(module, "app"):
        tree.add_typer(module.app, name=name, rich_help_panel=entry.panel)
    else:
        tree.command(name, rich_help_panel=entry.panel)(getattr(module, name))
    return get_group(tree).commands[name]
