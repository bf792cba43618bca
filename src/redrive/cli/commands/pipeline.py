# SPDX-License-Identifier: Apache-2.0
"""`redrive pipeline`: the pipelines a database knows, with what waits and who works on them; pause one, resume it.

A pipeline is known here by its name; its code is not imported.
"""

from __future__ import annotations

import typer

from redrive.cli.input.act import Act, acting_at_once
from redrive.cli.input.options import Database, Output, PipelineName, existing
from redrive.cli.output.tables import answer_rows, say
from redrive.ops import pipelines as pausing
from redrive.ops.pipelines import PipelineFacts

app = typer.Typer(help="Look at pipelines, pause and resume them.", no_args_is_help=True)


@app.command("list")
def list_(*, database_url: Database = None, output: Output = "table") -> None:
    """List pipelines, with what waits in each and how many workers serve it."""
    with existing(database_url) as rd:
        found = [_row_of(each) for each in pausing.pipelines(rd.store)]
    columns = ("name", "stages", "queued", "processing", "workers", "paused_at")
    answer_rows(found, columns, output, empty="there is no pipeline yet")


@app.command()
@acting_at_once
def pause(name: PipelineName, *, act: Act) -> None:
    """Claim nothing more of a pipeline; what runs ends its stage."""
    with act.database() as rd:
        if not pausing.pause(rd.store, name, act.by):
            say(f"{name} was paused already")
    act.answer({"pipeline": name, "is_paused": True})


@app.command()
@acting_at_once
def resume(name: PipelineName, *, act: Act) -> None:
    """Let a paused pipeline go on."""
    with act.database() as rd:
        if not pausing.resume(rd.store, name, act.by):
            say(f"{name} was not paused")
    act.answer({"pipeline": name, "is_paused": False})


def _row_of(pipeline: PipelineFacts) -> dict[str, object]:
    return {
        "name": pipeline.name,
        "stages": [lane.stage for lane in pipeline.lanes],
        "queued": pipeline.queued,
        "processing": pipeline.processing,
        "workers": pipeline.workers,
        "paused_at": pipeline.paused_at,
    }
