# SPDX-License-Identifier: Apache-2.0
"""The options of every command that changes something: who and why, confirmation, database, output format.

A command names one parameter `action`; `confirmed_action` gives it the options that make one, and `immediate_action` does so for
what can be undone and needs no confirmation. `option_group` replaces a parameter by a group of options.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Annotated

import typer

from redrive.cli.input.options import Database, Output, open_database
from redrive.cli.output.tables import print_facts, print_message
from redrive.cli.output.terminal import escaped
from redrive.client.connection import Redrive
from redrive.ops.audit import Actor, present_user

Command = Callable[..., None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What was typed about a change, whatever it is."""

    reason: Annotated[
        str | None, typer.Option("--reason", help="The reason, for the operator log.", metavar="TEXT")
    ] = None
    actor: Annotated[
        str | None,
        typer.Option("--actor", help="The name in the operator log; default: the user.", metavar="NAME"),
    ] = None
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False
    database_url: Database = None
    output: Output = "table"

    @property
    def by(self) -> Actor:
        """Who acts, and why; without a name, the user."""
        user = present_user()
        return Actor(self.actor or user, self.reason, user)

    def database(self) -> Redrive:
        """Open the database, which must exist."""
        return open_database(self.database_url)

    def confirm(self, question: str) -> None:
        """Ask for confirmation, unless --yes was given; a no, or no terminal to answer on, ends the command with exit code 1."""
        if self.yes:
            return
        try:
            is_confirmed = typer.confirm(escaped(question), err=True)
        except typer.Abort:
            if not sys.stdin.isatty():
                print_message("\nnot a terminal: use --yes to confirm")
            raise
        if not is_confirmed:
            raise typer.Abort

    def print(self, facts: Mapping[str, object]) -> None:
        """Print the result."""
        print_facts(facts, self.output)


def option_group(
    name: str, make: Callable[..., object], *, without: Collection[str] = (), is_last: bool = False
) -> Callable[[Command], Command]:
    """Return a decorator that replaces a command's parameter by the options of `make`, before its own options or after."""
    parameters = inspect.signature(make, eval_str=True).parameters
    made = {each: parameter for each, parameter in parameters.items() if each not in without}

    def decorate(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True).parameters.values()

        @wraps(command)
        def run(**given: object) -> None:
            typed = {each: given.pop(each) for each in made}
            command(**{name: make(**typed)}, **given)

        rest = [each for each in own if each.name != name]
        parameters = [*rest, *made.values()] if is_last else [*made.values(), *rest]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        # Typer reads this; without it, it would see the signature of the command itself.
        vars(run)["__signature__"] = inspect.Signature(parameters)
        return run

    return decorate


confirmed_action = option_group("action", Action, is_last=True)
"""Adds the options of an action that asks first."""
immediate_action = option_group("action", Action, without={"yes"}, is_last=True)
"""Adds the options of an action that does not ask."""
