# SPDX-License-Identifier: Apache-2.0
"""`redrive dlq validate`: a dry run of a replay, letter by letter and summed up. Changes nothing."""

from __future__ import annotations

from dataclasses import asdict

import typer

from redrive.cli.commands.dlq import app
from redrive.cli.input.letters import Choice, choosing
from redrive.cli.input.options import Database, FromStart, Output, Targets, existing
from redrive.cli.input.targets import pipelines_named
from redrive.cli.output.errors import FAILED
from redrive.cli.output.tables import answer_facts, answer_json, console, say, table_of
from redrive.engine.replay.release import by_name
from redrive.ops.replay.validation import Validation
from redrive.ops.replay.validation import validate as validate_letters


@app.command()
@choosing
def validate(
    choice: Choice,
    *,
    target: Targets = None,
    from_start: FromStart = False,
    database_url: Database = None,
    output: Output = "table",
) -> None:
    """Say what a replay would meet, letter by letter and summed up. Changes nothing; exit code 1 when something is in the way."""
    code = by_name(pipelines_named(target or []))
    with existing(database_url) as rd:
        found = validate_letters(rd.store, choice.means(rd.store), pipelines=code, from_start=from_start)
    if output == "json":
        answer_json({**asdict(found), "is_fine": found.is_fine})
    else:
        _tell(found)
    if not found.is_fine or not found.letters:
        raise typer.Exit(FAILED)


def _tell(found: Validation) -> None:
    facts: dict[str, object] = {"letters": found.letters, "able": found.able}
    facts |= {f"obstacle: {kind}": letters for kind, letters in found.obstacles.items()}
    facts |= {f"notice: {kind}": letters for kind, letters in found.notices.items()}
    answer_facts(facts, "table")
    if found.remarks:
        console().print(table_of([asdict(each) for each in found.remarks], ("letter", "job", "kind", "told")))
    if found.untold:
        say(f"{found.untold:,} more letters are counted and not listed here; choose fewer to see them all")
    for pipeline in found.unchecked:
        say(f"the code of {pipeline} was not given, so no value was decoded: --target MODULE:{pipeline}")
    if not found.letters:
        say("no dead letter that could be replayed is like that")
    elif found.is_fine:
        say(f"nothing is in the way of a replay{'; see the notices' if found.notices else ''}")
