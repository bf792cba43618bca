# SPDX-License-Identifier: Apache-2.0
"""`redrive dlq triage|remediate|discard|restore|assign|note`: what people decide about dead letters, one or many.

Each tells exactly how many letters it will change, which stay and why, and asks. None of them runs anything again: that is
`redrive replay`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from redrive.cli.commands.dlq import app
from redrive.cli.input.act import Act, acting
from redrive.cli.input.letters import Choice, agreed, answer_judged, choosing, chosen
from redrive.cli.input.options import ActorName, Database, Output, Yes, by
from redrive.core.diagnosis import Diagnosis
from redrive.ops.audit import Actor
from redrive.ops.letters import triage as judging
from redrive.ops.letters.freeze import FrozenSet
from redrive.ops.letters.preview import Verb, preview
from redrive.ops.letters.triage import ActResult
from redrive.store.protocol import Store

Judgement = Callable[[Store, FrozenSet, Actor], ActResult]
UNSAFE = "confirm with --safe that running the work again is idempotent, or harmless; check first what a second run would do"
_DIAGNOSIS = typer.Option("--diagnosis", "-d", help="What is wrong; dlq show suggests one.")


@app.command()
@choosing
@acting
def triage(choice: Choice, *, diagnosis: Annotated[Diagnosis, _DIAGNOSIS], act: Act) -> None:
    """Record what is wrong with dead letters: transient, data, auth_config or code_defect."""
    _judge(
        choice,
        "triage",
        "Triage",
        act,
        lambda store, which, who: judging.triage(store, which, who, diagnosis=diagnosis),
    )


@app.command()
@choosing
@acting
def remediate(
    choice: Choice,
    *,
    evidence: Annotated[
        str, typer.Option("--evidence", "-e", metavar="TEXT", help="What was done about the cause.")
    ],
    safe: Annotated[
        bool, typer.Option("--safe", help="I confirm: running this work again is idempotent, or harmless.")
    ] = False,
    diagnosis: Annotated[Diagnosis | None, _DIAGNOSIS] = None,
    act: Act,
) -> None:
    """Record evidence of the fix, and that a replay is safe: then the letters are ready. Open ones need --diagnosis as well."""
    if not safe:
        raise typer.BadParameter(UNSAFE)
    judging.check_remedy(evidence, is_safe=safe)
    _judge(
        choice,
        "remediate" if diagnosis is None else "triage",
        "Record this evidence for",
        act,
        lambda store, which, who: judging.remediate(
            store, which, who, evidence=evidence, is_safe=safe, diagnosis=diagnosis
        ),
    )


@app.command()
@choosing
@acting
def discard(choice: Choice, *, act: Act) -> None:
    """Decide that nothing is to be done about dead letters; restore takes it back."""
    _judge(choice, "discard", "Discard", act, judging.discard)


@app.command()
@choosing
@acting
def restore(choice: Choice, *, act: Act) -> None:
    """Open discarded letters again."""
    _judge(choice, "restore", "Restore", act, judging.restore)


@app.command()
@choosing
@acting
def assign(
    choice: Choice,
    *,
    to: Annotated[str | None, typer.Option("--to", metavar="NAME", help="Who looks after them.")] = None,
    nobody: Annotated[bool, typer.Option("--nobody", help="Nobody does any more.")] = False,
    act: Act,
) -> None:
    """Say who looks after dead letters."""
    if (to is None) != nobody:
        raise typer.BadParameter("give either --to NAME or --nobody")  # noqa: EM101 - typer shows it.
    _judge(
        choice,
        "assign",
        f"Assign to {to or 'nobody'}:",
        act,
        lambda store, which, who: judging.assign(store, which, who, assignee=to),
    )


@app.command()
@choosing
def note(
    choice: Choice,
    *,
    text: Annotated[str, typer.Option("--text", "-t", metavar="TEXT", help="What to write down.")],
    actor: ActorName = None,
    yes: Yes = False,
    database_url: Database = None,
    output: Output = "table",
) -> None:
    """Write something down about dead letters, for whoever looks at them next."""
    # The note is its own reason, so that there is no option for one.
    act = Act(by=by(actor, None), is_sure=yes, database_url=database_url, output=output)
    _judge(
        choice,
        "note",
        "Note on",
        act,
        lambda store, which, who: judging.note(store, which, who, text=text),
    )


def _judge(choice: Choice, verb: Verb, asked: str, act: Act, judgement: Judgement) -> None:
    """Count, tell, ask, act and answer."""
    with act.database() as rd:
        told = preview(rd.store, chosen(rd.store, choice), verb)
        frozen = agreed(told, asked, is_sure=act.is_sure, output=act.output)
        judged = judgement(rd.store, frozen, act.by)
    answer_judged(frozen, judged, act.output)
