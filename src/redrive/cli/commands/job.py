# SPDX-License-Identifier: Apache-2.0
"""`redrive job`: list jobs, show or explain one, cancel, retry or erase one.

Texts are redacted when they are stored, not here.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Final, Literal

import msgspec
import typer

from redrive.cli.input.action import Action, confirmed_action, immediate_action
from redrive.cli.input.options import Database, FromStart, Limit, OfPipeline, Output, Targets, open_database
from redrive.cli.input.targets import import_pipelines
from redrive.cli.output import tables
from redrive.cli.output.errors import FAILED
from redrive.engine.replay.filter import LetterFilter
from redrive.ops.jobs import inspect
from redrive.ops.jobs.cancel import cancel_job
from redrive.ops.jobs.erase import check_erasable
from redrive.ops.jobs.erase import erase as erase_values
from redrive.ops.jobs.explain import explain as explain_job
from redrive.ops.jobs.facts import get_job
from redrive.ops.jobs.inspect import JobDetails, JobFilter
from redrive.ops.jobs.retry import RetryOptions, check_retry, retry_job
from redrive.ops.jobs.timeline import timeline as timeline_of
from redrive.ops.jobs.values import read_value
from redrive.ops.letters.filter import check_filter
from redrive.store.statements.jobs import JobLine

app = typer.Typer(help="Inspect jobs; cancel, retry and erase them.", no_args_is_help=True)

Status = Literal["queued", "processing", "complete", "failed", "cancelled", "skipped"]
COLUMNS: Final = ("id", "stage", "status", "attempt", "code", "key", "age", "due")
JobId = Annotated[int, typer.Argument(metavar="ID", help="The job's id.")]


@app.command("list")
def list_(
    *,
    status: Annotated[Status | None, typer.Option("--status", "-s", help="In this state.")] = None,
    pipeline: OfPipeline = None,
    stage: Annotated[str | None, typer.Option("--stage", help="In this stage.")] = None,
    run: Annotated[int | None, typer.Option("--run", help="Of this run.")] = None,
    owner: Annotated[str | None, typer.Option("--owner", help="Of this owner.")] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="KEY", help="With this key.")] = None,
    before: Annotated[
        int | None, typer.Option("--before", metavar="ID", help="Older than this job: the next page.")
    ] = None,
    limit: Limit = 50,
    database_url: Database = None,
    output: Output = "table",
) -> None:
    """List jobs, newest first."""
    which = JobFilter(status=status, pipeline=pipeline, stage=stage, run=run, owner=owner, key=key)
    with open_database(database_url) as rd:
        found = inspect.list_jobs(rd.store, which, before=before, limit=limit)
        if not found:
            check_filter(rd.store, LetterFilter(pipeline=pipeline, stage=stage, run=run))
    rows = found if output == "json" else [_row_of(each) for each in found]
    tables.print_rows(rows, COLUMNS, output, empty="no jobs match")
    if output == "table" and len(found) == limit:
        tables.print_message(f"more: --before {found[-1].id}")


@app.command()
@immediate_action
def show(
    job_id: JobId,
    *,
    payload: Annotated[
        bool, typer.Option("--payload", help="Its payload, too; who read it is recorded in the operator log.")
    ] = False,
    action: Action,
) -> None:
    """Show one job: its facts, every attempt with its decision, its dead letter."""
    with action.database() as rd:
        value = msgspec.Raw(read_value(rd.store, job_id, "payload", action.by)) if payload else None
        details = inspect.job_details(rd.store, job_id)
    if action.output == "table":
        _print_job(details)
        if value is not None:
            tables.console().print(f"payload: {bytes(value).decode()}", soft_wrap=True)
        return
    live = [letter for letter in details.letters if letter.is_live]
    tables.print_json(
        {
            **asdict(details.facts),
            "origin": details.origin,
            "attempts": details.attempts,
            "dead_letter": live[-1] if live else None,
            "past_letters": [
                {"id": letter.id, "round": letter.round, "state": letter.state, "outcome": letter.outcome}
                for letter in details.letters
                if not letter.is_live
            ],
            "operations": details.operations,
            **({} if value is None else {"payload": value}),
        }
    )


@app.command()
@immediate_action
def result(job_id: JobId, *, action: Action) -> None:
    """Print the result of a complete job as JSON; who read it is recorded in the operator log."""
    with action.database() as rd:
        value = read_value(rd.store, job_id, "result", action.by)
    tables.print_json(msgspec.Raw(value))


@app.command()
def explain(job_id: JobId, *, database_url: Database = None, output: Output = "table") -> None:
    """Explain one job: what happened, what was decided and why, what to do next."""
    with open_database(database_url) as rd:
        explanation = explain_job(rd.store, job_id)
    if output == "json":
        tables.print_json(explanation)
        return
    for sentence in explanation.sentences:
        tables.console().print(sentence, soft_wrap=True)


@app.command()
def timeline(job_id: JobId, *, database_url: Database = None, output: Output = "table") -> None:
    """List what happened to a job and what operators did, in order."""
    with open_database(database_url) as rd:
        entries = timeline_of(rd.store, job_id)
    if output == "json":
        tables.print_json(entries)
        return
    rows = [
        {**asdict(entry), "duration": None if entry.duration is None else f"{entry.duration:.3g} s"}
        for entry in entries
    ]
    columns = ("at", "what", "stage", "round", "attempt", "code", "duration", "detail", "actor")
    tables.print_rows(rows, columns, output, empty="nothing has happened yet")


@app.command()
@confirmed_action
def cancel(job_id: JobId, *, action: Action) -> None:
    """Cancel a job: a queued one at once; a running one is asked to stop."""
    with action.database() as rd:
        before = get_job(rd.store, job_id)
        if before.status in {"queued", "processing"}:
            action.confirm(f"Cancel job {job_id} of {before.pipeline}, now {before.status}?")
        facts = cancel_job(rd.store, job_id, action.by)
    action.print({"id": job_id, "status": facts.status, "is_cancel_asked": facts.is_cancel_asked})
    if facts.status != "cancelled" and not facts.is_cancel_asked:
        tables.print_message(f"error: job {job_id} is already {facts.status}")
        raise typer.Exit(FAILED)


@app.command()
@confirmed_action
def retry(
    job_id: JobId,
    *,
    from_start: FromStart = False,
    as_owner: Annotated[
        bool,
        typer.Option("--as-owner", help="Act as the job's owner, who may need no evidence."),
    ] = False,
    target: Targets = None,
    action: Action,
) -> None:
    """Retry a failed job from the stage that failed, under the same rules as a replay."""
    how: RetryOptions = {
        "from_start": from_start,
        "owner": action.by.name if as_owner else None,
        "pipelines": import_pipelines(target),
    }
    with action.database() as rd:
        facts = check_retry(rd.store, job_id, **how)
        where = "its first stage" if from_start else f"the stage {facts.stage}"
        action.confirm(f"Retry job {job_id} of {facts.pipeline} from {where}?")
        now = retry_job(rd.store, job_id, action.by, **how)
    action.print({"id": job_id, "status": now.status, "stage": now.stage, "round": now.round})


@app.command()
@confirmed_action
def erase(job_id: JobId, *, action: Action) -> None:
    """Erase payload, inputs, result and edits of a job that has ended, permanently; its record stays."""
    with action.database() as rd:
        status = check_erasable(rd.store, job_id)
        action.confirm(
            f"Permanently erase all values of job {job_id}, now {status}? It can never be replayed."
        )
        erased = erase_values(rd.store, job_id, action.by)
    action.print(asdict(erased))
    if not erased.is_new:
        tables.print_message(f"the values of job {job_id} were already erased")


def _row_of(job: JobLine) -> dict[str, object]:
    """Return the columns of a job in a table; the time it is due only if it waits for that."""
    return {
        "id": job.id,
        "stage": f"{job.pipeline}.{job.stage}",
        "status": job.status if job.waiting is None else f"{job.status}, {job.waiting}",
        "attempt": job.attempt,
        "code": job.error_code,
        "key": job.key,
        "age": job.created_at,
        "due": job.run_at if job.status == "queued" and job.run_at > job.created_at else None,
    }


def _print_job(details: JobDetails) -> None:
    tables.print_facts(
        {name: value for name, value in asdict(details.facts).items() if value is not None}, "table"
    )
    out = tables.console()
    if details.origin is not None:
        origin = details.origin
        out.print(
            f"imported from installation {origin.installation}, where it was letter {origin.letter} of job {origin.job}"
            + ("; its attempts there:" if origin.attempts else ""),
            soft_wrap=True,
        )
        tables.print_attempts(origin.attempts)
    tables.print_attempts(details.attempts)
    for letter in details.letters:
        if not letter.is_live:
            out.print(
                f"past dead letter {letter.id} of round {letter.round}: {letter.state} ({letter.outcome})"
            )
            continue
        state = f"{letter.state}, escalated" if letter.is_escalated else letter.state
        out.print(f"dead letter {letter.id} ({state}), group {letter.group}")
        out.print(f"{letter.code} ({letter.category}): {letter.message}", soft_wrap=True)
        out.print(letter.last_stack.rstrip(), soft_wrap=True)
    tables.print_operations(details.operations)
