# SPDX-License-Identifier: Apache-2.0
"""`redrive pipeline`: list pipelines with their queues and workers; pause and resume one.

A pipeline is known here by its name; its code is not imported.
"""

from __future__ import annotations

import typer

from redrive.cli.input.action import Action, immediate_action
from redrive.cli.input.options import Database, Output, PipelineName, open_database
from redrive.cli.output.tables import print_message, print_rows
from redrive.ops import pipelines

app = typer.Typer(help="List pipelines; pause and resume them.", no_args_is_help=True)


@app.command("list")
def list_(*, database_url: Database = None, output: Output = "table") -> None:
    """List pipelines with their queued jobs and their workers."""
    with open_database(database_url) as rd:
        found = [
            {
                "name": pipeline.name,
                "stages": [lane.stage for lane in pipeline.lanes],
                "queued": pipeline.queued,
                "processing": pipeline.processing,
                "workers": pipeline.workers,
                "paused_at": pipeline.paused_at,
            }
            for pipeline in pipelines.pipelines(rd.store)
        ]
    columns = ("name", "stages", "queued", "processing", "workers", "paused_at")
    print_rows(found, columns, output, empty="no pipelines")


@app.command()
@immediate_action
def pause(name: PipelineName, *, action: Action) -> None:
    """Pause a pipeline: no more of its jobs are claimed; running stages end."""
    with action.database() as rd:
        if not pipelines.pause(rd.store, name, action.by):
            print_message(f"{name} was already paused")
    action.print({"pipeline": name, "is_paused": True})


@app.command()
@immediate_action
def resume(name: PipelineName, *, action: Action) -> None:
    """Resume a paused pipeline."""
    with action.database() as rd:
        if not pipelines.resume(rd.store, name, action.by):
            print_message(f"{name} was not paused")
    action.print({"pipeline": name, "is_paused": False})
