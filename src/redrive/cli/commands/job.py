# SPDX-License-Identifier: Apache-2.0
"""`redrive job`: list jobs page by page, tell the whole story of one, cancel, retry or erase one.

Texts shown were redacted when they were stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Literal

import typer

from redrive.cli.commands.job_erase import erase
from redrive.cli.commands.job_explain import explain, timeline
from redrive.cli.input.act import Act, acting
from redrive.cli.input.options import Database, FromStart, Limit, OfPipeline, Output, Targets, existing
from redrive.cli.input.targets import pipelines_named, say_if_unknown
from redrive.cli.output.tables import answer_facts, answer_json, answer_rows, console, say, table_of
from redrive.engine.replay.release import by_name
from redrive.ops.jobs import inspect
from redrive.ops.jobs.facts import get_job
from redrive.ops.jobs.inspect import JobFilter, JobStory
from redrive.ops.jobs.retry import How, check_retry, retry_job

app = typer.Typer(help="Look at jobs; cancel, retry and erase them.", no_args_is_help=True)

Status = Literal["queued", "processing", "complete", "failed", "cancelled"]
JobId = Annotated[int, typer.Argument(metavar="ID", help="The job's id.")]


@app.command("list")
def list_(
    *,
    status: Annotated[Status | None, typer.Option("--status", "-s", help="In this state.")] = None,
    pipeline: OfPipeline = None,
    stage: Annotated[str | None, typer.Option("--stage", help="In this stage.")] = None,
    run: Annotated[int | None, typer.Option("--run", help="Of this run.")] = None,
    owner: Annotated[str | None, typer.Option("--owner", help="Of this owner.")] = None,
    before: Annotated[
        int | None, typer.Option("--before", metavar="ID", help="Older than this one: the next page.")
    ] = None,
    limit: Limit = 50,
    database_url: Database = None,
    output: Output = "table",
) -> None:
    """List jobs, newest first."""
    which = JobFilter(status=status, pipeline=pipeline, stage=stage, run=run, owner=owner)
    with existing(database_url) as rd:
        found = inspect.list_jobs(rd.store, which, before=before, limit=limit)
        if not found:
            say_if_unknown(rd.store, pipeline)
    columns = ("id", "pipeline", "stage", "status", "attempt", "waiting", "error_code", "run_at")
    answer_rows(found, columns, output, empty="no job is like that")
    if output == "table" and len(found) == limit:
        say(f"more: --before {found[-1].id}")


@app.command()
def show(job_id: JobId, *, database_url: Database = None, output: Output = "table") -> None:
    """Show one job: what it is, every attempt with its decision, its dead letter."""
    with existing(database_url) as rd:
        story = inspect.story_of(rd.store, job_id)
    if output == "json":
        live = [letter for letter in story.letters if letter.is_live]
        answer_json(
            {
                **asdict(story.facts),
                "origin": story.origin,
                "attempts": story.attempts,
                "dead_letter": live[-1] if live else None,
                "past_letters": [
                    {"id": letter.id, "round": letter.round, "state": letter.state, "verdict": letter.verdict}
                    for letter in story.letters
                    if not letter.is_live
                ],
                "operations": story.operations,
            }
        )
    else:
        _tell(story)


@app.command()
@acting
def cancel(job_id: JobId, *, act: Act) -> None:
    """Cancel a job: at once while it is queued; one that runs is told."""
    with act.database() as rd:
        before = get_job(rd.store, job_id)
        if before.status in {"queued", "processing"}:
            act.confirm(f"Cancel job {job_id} of {before.pipeline}, now {before.status}?")
        status = rd.cancel(job_id, reason=act.by.reason, actor=act.by.name)
        facts = get_job(rd.store, job_id)
    act.answer({"id": job_id, "status": status, "is_cancel_asked": facts.is_cancel_asked})
    if status != "cancelled" and not facts.is_cancel_asked:
        say(f"error: job {job_id} has ended as {status}; there is nothing to cancel")
        raise typer.Exit(1)


app.command()(explain)
app.command()(timeline)
app.command()(erase)


@app.command()
@acting
def retry(
    job_id: JobId,
    *,
    from_start: FromStart = False,
    as_owner: Annotated[
        bool,
        typer.Option("--as-owner", help="The actor is the job's owner, who may need no evidence."),
    ] = False,
    target: Targets = None,
    act: Act,
) -> None:
    """Send a failed job back to the stage that failed, under the same rules as a replay."""
    how: How = {
        "from_start": from_start,
        "owner": act.by.name if as_owner else None,
        "pipelines": by_name(pipelines_named(target or [])),
    }
    with act.database() as rd:
        facts = check_retry(rd.store, job_id, **how)
        where = "its first stage" if from_start else f"the stage {facts.stage}"
        act.confirm(f"Send job {job_id} of {facts.pipeline} back to {where}?")
        now = retry_job(rd.store, job_id, act.by, **how)
    act.answer({"id": job_id, "status": now.status, "stage": now.stage, "round": now.round})


def _tell(story: JobStory) -> None:
    facts = {name: value for name, value in asdict(story.facts).items() if value is not None}
    answer_facts(facts, "table")
    if story.origin is not None:
        origin = story.origin
        there = f"letter {origin.letter} of job {origin.job} there" + (
            "; its attempts there:" if origin.attempts else ""
        )
        console().print(f"imported from installation {origin.installation}: {there}", soft_wrap=True)
        _tell_attempts(origin.attempts)
    _tell_attempts(story.attempts)
    for letter in story.letters:
        if not letter.is_live:
            console().print(
                f"dead letter {letter.id} of round {letter.round} is past: {letter.state} ({letter.verdict})"
            )
            continue
        state = f"{letter.state}, escalated" if letter.is_escalated else letter.state
        console().print(f"dead letter {letter.id} ({state}), group {letter.group}")
        console().print(f"{letter.code} ({letter.category}): {letter.message}", soft_wrap=True)
        console().print(letter.stack.rstrip(), soft_wrap=True)
    if story.operations:
        console().print(
            table_of(
                [asdict(each) for each in story.operations], ("at", "actor", "verb", "subject", "reason")
            )
        )


def _tell_attempts(attempts: Sequence[dict[str, object]]) -> None:
    columns = ("dispatch", "stage", "round", "attempt", "outcome", "code", "duration", "sentence")
    rows = [
        {**attempt, "duration": f"{attempt['duration']:.3g} s", "sentence": _why(attempt)}
        for attempt in attempts
    ]
    if rows:
        console().print(table_of(rows, columns))


def _why(attempt: dict[str, object]) -> object:
    return attempt["sentence"] or attempt["message"] or attempt["reason"]
