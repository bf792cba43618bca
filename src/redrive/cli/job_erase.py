# SPDX-License-Identifier: Apache-2.0
"""`redrive job erase`: wipe the values of a job that has ended, and keep the record."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from redrive.cli.answers import answer_facts, say
from redrive.cli.options import Actor, Database, Output, Reason, Yes, by, confirm, existing
from redrive.ops import erasing

JobId = Annotated[int, typer.Argument(metavar="ID", help="The job's id.")]


def erase(
    job_id: JobId,
    *,
    reason: Reason = None,
    actor: Actor = None,
    yes: Yes = False,
    database_url: Database = None,
    output: Output = "table",
) -> None:
    """Wipe payload, inputs, result and edits of a job that has ended, for good; the record stays."""
    with existing(database_url) as rd:
        status = erasing.check_erasable(rd.store, job_id)
        confirm(
            f"Erase all values of job {job_id}, now {status}, for good? It can never be replayed.",
            is_sure=yes,
        )
        erased = erasing.erase(rd.store, job_id, by(actor, reason))
    answer_facts(asdict(erased), output)
    if not erased.is_new:
        say(f"the values of job {job_id} had been erased before")
