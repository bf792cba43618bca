# SPDX-License-Identifier: Apache-2.0
"""What every command that changes something takes: who acts and why, whether they are sure, on which database, and how to answer.

A command names one parameter `act`, and `acting` gives it the options that make one; so does `acting_at_once` for what can be taken
back, and so is not asked about. `taking` is how a group of options takes the place of a parameter.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import wraps

from redrive.cli.input.options import ActorName, Database, Format, Output, Reason, Yes, by, confirm, existing
from redrive.cli.output.tables import answer_facts
from redrive.client.connection import Redrive
from redrive.ops.audit import Actor

Command = Callable[..., None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """What was typed about an act, whatever it is."""

    by: Actor
    is_sure: bool
    database_url: str | None
    output: Format

    def database(self) -> AbstractContextManager[Redrive]:
        """Open the database it is about, which has to be there."""
        return existing(self.database_url)

    def confirm(self, question: str) -> None:
        """Ask before something that cannot be taken back; a no ends the command with exit code 1."""
        confirm(question, is_sure=self.is_sure)

    def answer(self, facts: Mapping[str, object]) -> None:
        """Show what it came to."""
        answer_facts(facts, self.output)


def taking(name: str, make: Callable[..., object], *, is_last: bool = False) -> Callable[[Command], Command]:
    """Return a decorator that lets the options of `make` take the place of a command's parameter, in front of its own or after."""
    made = inspect.signature(make, eval_str=True).parameters

    def decorate(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True).parameters.values()

        @wraps(command)
        def run(**given: object) -> None:
            typed = {each: given.pop(each) for each in made}
            command(**{name: make(**typed)}, **given)

        rest = [each for each in own if each.name != name]
        parameters = [*rest, *made.values()] if is_last else [*made.values(), *rest]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        # Where typer looks; without it, it would see the signature of the command itself.
        vars(run)["__signature__"] = inspect.Signature(parameters)
        return run

    return decorate


def _asked(
    *,
    reason: Reason = None,
    actor: ActorName = None,
    yes: Yes = False,
    database_url: Database = None,
    output: Output = "table",
) -> Act:
    return Act(by=by(actor, reason), is_sure=yes, database_url=database_url, output=output)


def _at_once(
    *,
    reason: Reason = None,
    actor: ActorName = None,
    database_url: Database = None,
    output: Output = "table",
) -> Act:
    return Act(by=by(actor, reason), is_sure=True, database_url=database_url, output=output)


acting = taking("act", _asked, is_last=True)
"""Gives a command what an act takes that is asked about first."""
acting_at_once = taking("act", _at_once, is_last=True)
"""Gives a command what an act takes that is not."""
