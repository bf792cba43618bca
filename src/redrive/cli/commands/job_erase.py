# SPDX-License-Identifier: Apache-2.0
"""`redrive job erase`: wipe the values of a job that has ended, and keep the record."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from redrive.cli.input.act import Act, acting
from redrive.cli.output.tables import say
from redrive.ops.jobs import erase as erasing

JobId = Annotated[int, typer.Argument(metavar="ID", help="The job's id.")]


@acting
def erase(job_id: JobId, *, act: Act) -> None:
    """Wipe payload, inputs, result and edits of a job that has ended, for good; the record stays."""
    with act.database() as rd:
        status = erasing.check_erasable(rd.store, job_id)
        act.confirm(f"Erase all values of job {job_id}, now {status}, for good? It can never be replayed.")
        erased = erasing.erase(rd.store, job_id, act.by)
    act.answer(asdict(erased))
    if not erased.is_new:
        say(f"the values of job {job_id} had been erased before")
