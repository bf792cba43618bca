# SPDX-License-Identifier: Apache-2.0
"""The work of the commands: read all mail, run the jobs to their end, and replay dead letters."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

from apps.collabiq.files import WAITING, DlqFiles, files_of, state_of
from apps.collabiq.pipeline import NAME, MailRef, open_clients, pipeline_of
from apps.collabiq.records import DLQEntry
from apps.collabiq.retry_config import GMAIL_RETRY_CONFIG, breaker_for
from apps.collabiq.settings import Settings
from apps.collabiq.sources import Source
from redrive import ConfigurationError, Pipeline, Redrive, RedriveError, connect, guard, redact


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Counts of the mail: `listed = new + known + waiting`."""

    listed: int
    new: int
    known: int
    """Read before, and done or in progress."""
    waiting: int
    """Read before, and among the dead letters."""
    done: int
    failed: int


@contextmanager
def opened(settings: Settings) -> Generator[tuple[Redrive, DlqFiles]]:
    """Open the database and the files beside it, and update the files."""
    settings.root.mkdir(parents=True, exist_ok=True, mode=0o700)
    _, dlq = files_of(settings)
    with connect(settings.root / "collabiq.db") as rd:
        dlq.refresh(rd)
        yield rd, dlq


def run(settings: Settings) -> Account:
    """Submit a job for each new mail, and work until no job is left."""
    with opened(settings) as (rd, dlq), open_clients(settings) as clients:
        pipeline = pipeline_of(settings, clients)
        ids = list(dict.fromkeys(guarded_listing(settings)(clients.source)))
        waiting = {each for each in ids if rd.dead_letters.list(pipeline=NAME, key=each, limit=1).letters}
        jobs = [rd.submit(pipeline, MailRef(each), key=each) for each in ids if each not in waiting]
        new = [job for job in jobs if not job.is_duplicate]
        _work(settings, rd, pipeline)
        dlq.refresh(rd)
        ended = [job.status for job in new]
        return Account(
            listed=len(ids),
            new=len(new),
            known=len(jobs) - len(new),
            waiting=len(waiting),
            done=ended.count("complete"),
            failed=ended.count("failed"),
        )


def replay(
    settings: Settings, chosen: Sequence[str] | None, *, operation: str | None = None, actor: str
) -> list[DLQEntry]:
    """Replay dead letters from the stage that failed, work until all are done, and return their entries.

    `chosen` None means all that can be replayed, of one operation or of all.

    Raises:
        ConfigurationError: one of them cannot be replayed; then none is.
    """
    with opened(settings) as (rd, dlq), open_clients(settings) as clients:
        known, done = {each.dlq_id: each for each in dlq.entries()}, dlq.processed_ids()
        wanted = known if chosen is None else chosen
        refusals = {each: _refusal(rd, known.get(each), is_done=each in done) for each in wanted}
        if chosen is None:
            waiting = [known[each] for each, refusal in refusals.items() if refusal is None]
            chosen = [each.dlq_id for each in waiting if operation in {None, each.operation_type}]
        for each in chosen:
            if refusal := refusals[each]:
                raise ConfigurationError(field="dead letter", value=each, rule=refusal[0], fix=refusal[1])
        for each in chosen:
            job = int(str(known[each].error_details["job_id"]))
            rd.replays.retry(job, actor=actor, reason="collabiq dlq replay")
        dlq.refresh(rd)
        _work(settings, rd, pipeline_of(settings, clients))
        dlq.refresh(rd)
        return [entry for entry in dlq.entries() if entry.dlq_id in chosen]


def _work(settings: Settings, rd: Redrive, pipeline: Pipeline) -> None:
    rd.work([pipeline], concurrency=settings.concurrency, lease=settings.lease, until_idle=True)


@functools.cache
def guarded_listing(settings: Settings) -> Callable[[Source], list[str]]:
    """Return the guarded function that lists all mail, with the policy and breaker of its service."""
    log, _ = files_of(settings)
    return guard(
        lambda source: list(source.ids()),
        retry=GMAIL_RETRY_CONFIG.to_policy(),
        breaker=breaker_for("gmail"),
        name="list_mail",
        on_dead=functools.partial(log.given_up, "gmail_fetch"),
        fallback=_not_listed,
    )


def _not_listed(error: Exception) -> NoReturn:
    problem = f"the mail could not be listed: {redact(str(error))}"
    raise RedriveError(problem, hint="See data/logs; run it again later.") from error


def _refusal(rd: Redrive, entry: DLQEntry | None, *, is_done: bool) -> tuple[str, str] | None:
    """Return why an entry cannot be replayed, and what to do; a successful replay counts even with another database."""
    if is_done:
        return "was replayed before", "collabiq dlq show has the time; its page is written."
    if entry is None:
        return "is not a known dead letter", "collabiq dlq list shows them."
    state, *_ = state_of(rd, entry)
    if state is None:
        return "is not about a mail in this database", "Set the key it names; the next run reads it."
    if state not in WAITING:
        return f"is {state}", "collabiq dlq list shows what can be replayed; a failed replay has a new entry."
    return None
