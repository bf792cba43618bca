# SPDX-License-Identifier: Apache-2.0
"""What the commands do: read the mail there is, work until all is done, and send dead letters back."""

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
    """What became of the mail: `listed = new + known + waiting`."""

    listed: int
    new: int
    known: int
    """Read before, and done or under way."""
    waiting: int
    """Read before, and among the dead letters."""
    done: int
    failed: int


@contextmanager
def opened(settings: Settings) -> Generator[tuple[Redrive, DlqFiles]]:
    """Open the database and the files beside it, and bring the files up to date."""
    settings.root.mkdir(parents=True, exist_ok=True, mode=0o700)
    _, dlq = files_of(settings)
    with connect(settings.root / "collabiq.db") as rd:
        dlq.refresh(rd)
        yield rd, dlq


def run(settings: Settings) -> Account:
    """Submit a job for each mail that was not read before, and work until nothing is left to do."""
    with opened(settings) as (rd, dlq), open_clients(settings) as clients:
        pipeline = pipeline_of(settings, clients)
        ids = list(dict.fromkeys(listing_of(settings)(clients.source)))
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
    """Send dead letters back to the stage that failed, work until all is done, and return what became of them.

    `chosen` None means all that wait, of one operation or of every one.

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
def listing_of(settings: Settings) -> Callable[[Source], list[str]]:
    """Return what lists the mail there is, under the policy and a breaker of the service it comes from."""
    log, _ = files_of(settings)
    return guard(
        lambda source: list(source.ids()),
        retry=GMAIL_RETRY_CONFIG.to_policy(),
        breaker=breaker_for("gmail"),
        name="list_mail",
        on_dead=functools.partial(log.gave_up, "gmail_fetch"),
        fallback=_not_listed,
    )


def _not_listed(error: Exception) -> NoReturn:
    problem = f"the mail could not be listed: {redact(str(error))}"
    raise RedriveError(problem, hint="data/logs tells more; run it again later.") from error


def _refusal(rd: Redrive, entry: DLQEntry | None, *, is_done: bool) -> tuple[str, str] | None:
    """Return why an entry cannot be replayed, and what to do; what was replayed with success cannot, even with another database."""
    if is_done:
        return "was replayed before", "collabiq dlq show tells when; its page is written."
    if entry is None:
        return "is no dead letter here", "collabiq dlq list shows them."
    state, *_ = state_of(rd, entry)
    if state is None:
        return "is not about a mail in this database", "Set the key it names; the next run reads it."
    if state not in WAITING:
        return f"is {state}", "collabiq dlq list shows what waits; a replay that failed has a new entry."
    return None
