# SPDX-License-Identifier: Apache-2.0
"""`redrive job explain` and `redrive job timeline`: why a job is where it is, and how it came there."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from redrive.cli.input.options import Database, Output, existing
from redrive.cli.output.tables import answer_json, answer_rows, console
from redrive.ops.jobs import explain as explaining

JobId = Annotated[int, typer.Argument(metavar="ID", help="The job's id.")]


def explain(job_id: JobId, *, database_url: Database = None, output: Output = "table") -> None:
    """Explain a job in plain words: what happened, what was decided and why, what to do next."""
    with existing(database_url) as rd:
        told = explaining.explain(rd.store, job_id)
    if output == "json":
        answer_json(told)
        return
    for sentence in told.sentences:
        console().print(sentence, soft_wrap=True)


def timeline(job_id: JobId, *, database_url: Database = None, output: Output = "table") -> None:
    """Show what happened to a job and what people did about it, in order."""
    with existing(database_url) as rd:
        moments = explaining.timeline(rd.store, job_id)
    if output == "json":
        answer_json(moments)
        return
    rows = [
        {**asdict(moment), "duration": None if moment.duration is None else f"{moment.duration:.3g} s"}
        for moment in moments
    ]
    columns = ("at", "what", "stage", "round", "attempt", "code", "duration", "told", "actor")
    answer_rows(rows, columns, output, empty="nothing has happened yet")
