# SPDX-License-Identifier: Apache-2.0
"""What the commands do: read the mail there is, work until all is done, and send dead letters back."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

from apps.collabiq.codes import CLASSES
from apps.collabiq.files import WAITING, DlqFiles, files_of, state_of
from apps.collabiq.pipeline import NAME, Clients, MailRef, open_clients, pipeline_of
from apps.collabiq.records import DLQEntry
from apps.collabiq.retry_config import GMAIL_RETRY_CONFIG, breaker_for
from apps.collabiq.settings import Settings
from apps.collabiq.sources import Source
from redrive import ConfigurationError, Redrive, RedriveError, connect, guard, redact


class ListingError(RedriveError):
    """The source could not say which mail there is."""

    code = "collabiq-listing"

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"the mail could not be listed: {problem}", hint="data/logs tells more; run it again later."
        )


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
        new = [job for job in jobs if not job.is_twin]
        _work(settings, rd, clients)
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


def replay(settings: Settings, chosen: Sequence[str], *, actor: str) -> list[DLQEntry]:
    """Send dead letters back to the stage that failed, work until all is done, and return what became of them.

    Raises:
        ConfigurationError: one of them cannot be replayed; then none is.
    """
    with opened(settings) as (rd, dlq), open_clients(settings) as clients:
        known, done = {each.dlq_id: each for each in dlq.entries()}, dlq.processed_ids()
        for job in [_job_of(rd, known.get(each), each, is_done=each in done) for each in chosen]:
            rd.replays.retry(job, actor=actor, reason="collabiq dlq replay")
        dlq.refresh(rd)
        _work(settings, rd, clients)
        dlq.refresh(rd)
        return [entry for entry in dlq.entries() if entry.dlq_id in chosen]


def replayable(settings: Settings, operation: str | None = None) -> list[str]:
    """Return the ids of the dead letters that wait for a replay, of one operation or of all."""
    with opened(settings) as (rd, dlq):
        done = dlq.processed_ids()
        wanted = [each for each in dlq.entries() if operation in {None, each.operation_type}]
        return [
            each.dlq_id for each in wanted if each.dlq_id not in done and state_of(rd, each)[0] in WAITING
        ]


def _work(settings: Settings, rd: Redrive, clients: Clients) -> None:
    rd.work(
        [pipeline_of(settings, clients)],
        concurrency=settings.concurrency,
        lease=settings.lease,
        until_idle=True,
    )


@functools.cache
def listing_of(settings: Settings) -> Callable[[Source], list[str]]:
    """Return what lists the mail there is, under the policy and a breaker of the service it comes from."""
    log, _ = files_of(settings)
    return guard(
        lambda source: list(source.ids()),
        retry=GMAIL_RETRY_CONFIG.to_policy(),
        breaker=breaker_for("gmail"),
        codes=CLASSES,
        name="list_mail",
        on_dead=functools.partial(log.gave_up, "gmail_fetch"),
        fallback=_not_listed,
    )


def _not_listed(error: Exception) -> NoReturn:
    raise ListingError(redact(str(error))) from error


def _job_of(rd: Redrive, entry: DLQEntry | None, dlq_id: str, *, is_done: bool) -> int:
    """Return the job behind an entry; what was replayed with success is refused, even if the database were another one."""
    state = None if entry is None else state_of(rd, entry)[0]
    if is_done:
        rule, fix = "was replayed before", "collabiq dlq show tells when; its page is written."
    elif entry is None:
        rule, fix = "is no dead letter here", "collabiq dlq list shows them."
    elif state is None:
        rule, fix = "is not about a mail in this database", "Set the key it names; the next run reads it."
    elif state not in WAITING:
        rule, fix = (
            f"is {state}",
            "collabiq dlq list shows what waits; a replay that failed has a new entry.",
        )
    else:
        return int(str(entry.error_details["job_id"]))
    raise ConfigurationError(field="dead letter", value=dlq_id, rule=rule, fix=fix)
