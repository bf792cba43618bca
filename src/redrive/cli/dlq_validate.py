# SPDX-License-Identifier: Apache-2.0
"""`redrive dlq validate`: a dry run of a replay; and `redrive job retry`, the way back of one job.

`redrive job erase` is added here as well.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from redrive.cli.answers import answer_facts, answer_json, console, say, table_of
from redrive.cli.dlq import app
from redrive.cli.job import JobId
from redrive.cli.job import app as job_app
from redrive.cli.job_erase import erase
from redrive.cli.options import Actor, Database, Output, Reason, Yes, by, confirm, existing
from redrive.cli.refusals import FAILED
from redrive.cli.selections import Choice, choosing
from redrive.cli.targets import pipelines_named
from redrive.engine.releasing import by_name
from redrive.ops import inspect
from redrive.ops.retrying import retry_job
from redrive.ops.validating import Validation
from redrive.ops.validating import validate as validate_letters

Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        metavar="MODULE:PIPELINE",
        help="The pipeline's code, to decode values against; may be repeated.",
    ),
]
FromStart = Annotated[
    bool, typer.Option("--from-start", help="Begin at the first stage, although later ones were done.")
]


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


job_app.command()(erase)


@job_app.command()
def retry(
    job_id: JobId,
    *,
    from_start: FromStart = False,
    target: Targets = None,
    reason: Reason = None,
    actor: Actor = None,
    yes: Yes = False,
    database_url: Database = None,
    output: Output = "table",
) -> None:
    """Send a failed job back to the stage that failed, under the same rules as a replay."""
    code = by_name(pipelines_named(target or []))
    with existing(database_url) as rd:
        facts = inspect.known_job(rd.store, job_id).facts
        if facts.status == "failed":
            where = "its first stage" if from_start else f"the stage {facts.stage}"
            confirm(f"Send job {job_id} of {facts.pipeline} back to {where}?", is_sure=yes)
        job = retry_job(rd.store, job_id, by(actor, reason), from_start=from_start, pipelines=code)
        now = job.facts
    answer_facts({"id": job_id, "status": now.status, "stage": now.stage, "round": now.round}, output)


def _tell(found: Validation) -> None:
    facts: dict[str, object] = {"letters": found.letters, "able": found.able}
    facts |= {f"obstacle: {kind}": letters for kind, letters in found.obstacles.items()}
    facts |= {f"notice: {kind}": letters for kind, letters in found.notices.items()}
    answer_facts(facts, "table")
    if found.remarks:
        console().print(table_of([asdict(each) for each in found.remarks], ("letter", "job", "kind", "told")))
    for pipeline in found.unchecked:
        say(f"the code of {pipeline} was not given, so no value was decoded: --target MODULE:{pipeline}")
    if not found.letters:
        say("no dead letter that could be replayed is like that")
    elif found.is_fine:
        say("nothing is in the way of a replay")
