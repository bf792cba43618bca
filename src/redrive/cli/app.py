# SPDX-License-Identifier: Apache-2.0
"""The root of the command line: its own options, and how an error ends. The commands below it are in `cli.commands`.

An error of redrive's own ends as a message with a hint, never as a stack trace; `output.errors` has the exit codes.
"""

from __future__ import annotations

from typing import Annotated

import typer

from redrive.cli.tree import LazyGroup
from redrive.errors import RedriveError

app = typer.Typer(
    name="redrive",
    cls=LazyGroup,
    rich_markup_mode=None,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it with the flag's value.
    if wanted:
        from importlib.metadata import version

        typer.echo(f"redrive {version('redrive')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    *,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Run jobs through stages and account for every failure."""
    if context.invoked_subcommand is None:
        # As the groups below do: `no_args_is_help` writes plain help to stderr.
        typer.echo(context.get_help())
        raise typer.Exit(2)


def main() -> None:
    """Run the command line."""
    try:
        app()
    except RedriveError as error:
        from redrive.cli.output.errors import print_error

        raise SystemExit(print_error(error)) from None
