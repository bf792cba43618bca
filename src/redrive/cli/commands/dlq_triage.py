# SPDX-License-Identifier: Apache-2.0
"""`redrive dlq triage|remediate|discard|restore|assign|note`: decisions about dead letters, one or many.

Each prints how many letters it will change, and which not and why, then asks. None of them runs a job again: `redrive replay` does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer

from redrive.cli.commands.dlq import app
from redrive.cli.input.action import Action, confirmed_action, option_group
from redrive.cli.input.letters import LetterChoice, confirm_change, letter_choice, print_changed
from redrive.core.diagnosis import Diagnosis
from redrive.ops.audit import Actor
from redrive.ops.letters import triage as acts
from redrive.ops.letters.freeze import FrozenSet
from redrive.ops.letters.preview import Verb, preview
from redrive.ops.letters.triage import ActResult
from redrive.store.protocol import Store

Decision = Callable[[Store, FrozenSet, Actor], ActResult]
UNSAFE = "confirm with --safe that running the jobs again is idempotent or harmless"
_DIAGNOSIS = typer.Option("--diagnosis", "-d", help="The cause; redrive dlq show suggests one.")


@app.command()
@letter_choice
@confirmed_action
def triage(choice: LetterChoice, *, diagnosis: Annotated[Diagnosis, _DIAGNOSIS], action: Action) -> None:
    """Record the cause of dead letters: transient, data, auth_config or code_defect."""
    _apply(choice, "triage", "Triage", action, partial(acts.triage, diagnosis=diagnosis))


@app.command()
@letter_choice
@confirmed_action
def remediate(
    choice: LetterChoice,
    *,
    evidence: Annotated[
        str, typer.Option("--evidence", "-e", metavar="TEXT", help="How the cause was fixed.")
    ],
    safe: Annotated[
        bool, typer.Option("--safe", help="Confirm that running the jobs again is idempotent or harmless.")
    ] = False,
    diagnosis: Annotated[Diagnosis | None, _DIAGNOSIS] = None,
    action: Action,
) -> None:
    """Record how the cause was fixed and that a replay is safe; the letters are then ready. Open letters also need --diagnosis."""
    if not safe:
        raise typer.BadParameter(UNSAFE)
    acts.check_remedy(evidence, is_safe=safe)
    verb: Verb = "remediate" if diagnosis is None else "triage"
    decision = partial(acts.remediate, evidence=evidence, is_safe=safe, diagnosis=diagnosis)
    _apply(choice, verb, "Record this evidence for", action, decision)


@app.command()
@letter_choice
@confirmed_action
def discard(choice: LetterChoice, *, action: Action) -> None:
    """Discard dead letters: nothing will be done about them. `restore` undoes it."""
    _apply(choice, "discard", "Discard", action, acts.discard)


@app.command()
@letter_choice
@confirmed_action
def restore(choice: LetterChoice, *, action: Action) -> None:
    """Reopen discarded dead letters."""
    _apply(choice, "restore", "Restore", action, acts.restore)


@app.command()
@letter_choice
@confirmed_action
def assign(
    choice: LetterChoice,
    *,
    to: Annotated[str | None, typer.Option("--to", metavar="NAME", help="The new assignee.")] = None,
    nobody: Annotated[bool, typer.Option("--nobody", help="Remove the assignee.")] = False,
    action: Action,
) -> None:
    """Assign dead letters to a person."""
    if (to is None) != nobody:
        raise typer.BadParameter("give either --to NAME or --nobody")  # noqa: EM101 - typer prints it.
    _apply(choice, "assign", f"Assign to {to or 'nobody'}:", action, partial(acts.assign, assignee=to))


@app.command()
@letter_choice
# The note is its own reason.
@option_group("action", Action, without={"reason"}, is_last=True)
def note(
    choice: LetterChoice,
    *,
    text: Annotated[str, typer.Option("--text", "-t", metavar="TEXT", help="The note.")],
    action: Action,
) -> None:
    """Add a note to dead letters."""
    _apply(choice, "note", "Add a note to", action, partial(acts.note, text=text))


def _apply(choice: LetterChoice, verb: Verb, question: str, action: Action, decision: Decision) -> None:
    with action.database() as rd:
        letters = confirm_change(preview(rd.store, choice.freeze(rd.store), verb), question, action)
        result = decision(rd.store, letters, action.by)
    print_changed(letters, result, action.output)
