# SPDX-License-Identifier: Apache-2.0
"""What the commands do: read the mail there is, work until all is done, and send dead letters back."""

from __future__ import annotations

import functools
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from apps.collabiq.codes import CLASSES
from apps.collabiq.files import DlqFiles, files_of
from apps.collabiq.pipeline import NAME, Clients, MailRef, fetch, open_clients, pipeline_of
from apps.collabiq.records import DLQEntry
from apps.collabiq.retry_config import GMAIL_RETRY_CONFIG, breaker_for
from apps.collabiq.settings import Settings
from redrive import ConfigurationError, Redrive, RedriveError, connect, guard, redact
from redrive.errors import LetterNotFoundError

WAITING: Final = ("open", "triaged", "ready")
"""States of a dead letter that can be replayed."""


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
        pipeline = pipeline_of(settings, rd, clients)
        ids = list(dict.fromkeys(_ids(settings, clients)))
        waiting = [each for each in ids if rd.dead_letters.list(pipeline=NAME, key=each, limit=1).letters]
        jobs = [rd.submit(pipeline, MailRef(each), key=each) for each in ids if each not in set(waiting)]
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
        known = {entry.dlq_id: entry for entry in dlq.entries()}
        jobs = [_job_of(rd, known.get(each), each) for each in chosen if _is_new(dlq, each)]
        for job in jobs:
            rd.replays.retry(job, actor=actor, reason="collabiq dlq replay")
        dlq.refresh(rd)
        _work(settings, rd, clients)
        dlq.refresh(rd)
        return [entry for entry in dlq.entries() if entry.dlq_id in chosen]


def replayable(settings: Settings, operation: str | None = None) -> list[str]:
    """Return the ids of the dead letters that wait for a replay, of one operation or of all."""
    with opened(settings) as (rd, dlq):
        done = dlq.processed_ids()
        return [
            entry.dlq_id
            for entry in dlq.entries()
            if entry.dlq_id not in done
            and operation in {None, entry.operation_type}
            and _state_of(rd, entry) in WAITING
        ]


def _work(settings: Settings, rd: Redrive, clients: Clients) -> None:
    rd.work(
        [pipeline_of(settings, rd, clients)],
        concurrency=settings.concurrency,
        lease=settings.lease,
        until_idle=True,
    )


def _ids(settings: Settings, clients: Clients) -> list[str]:
    """List the mail there is, under the policy and a breaker of the service it comes from."""
    log, _ = files_of(settings)
    listing = guard(
        retry=GMAIL_RETRY_CONFIG.to_policy(),
        breaker=breaker_for("gmail"),
        codes=CLASSES,
        name="list_mail",
        on_dead=functools.partial(log.gave_up, fetch.name),
    )
    try:
        return listing(lambda: list(clients.source.ids()))()
    except Exception as error:
        # Whatever a client library raises; the guard has tried again and written it down.
        raise ListingError(redact(str(error))) from error


def _is_new(dlq: DlqFiles, dlq_id: str) -> bool:
    """Refuse what was replayed with success, even if the database were another one."""
    if dlq_id in dlq.processed_ids():
        raise _refused(dlq_id, "was replayed before", "collabiq dlq show tells when; its page is written.")
    return True


def _job_of(rd: Redrive, entry: DLQEntry | None, dlq_id: str) -> int:
    if entry is None:
        raise _refused(dlq_id, "is no dead letter here", "collabiq dlq list shows them.")
    job, state = entry.error_details.get("job_id"), _state_of(rd, entry)
    if not isinstance(job, int) or state is None:
        raise _refused(
            dlq_id, "is not about a mail in this database", "Set the key it names; the next run reads it."
        )
    if state not in WAITING:
        raise _refused(
            dlq_id, f"is {state}", "collabiq dlq list shows what waits; a replay that failed has a new entry."
        )
    return job


def _state_of(rd: Redrive, entry: DLQEntry) -> str | None:
    """Return the state of the letter behind an entry; None when there is none."""
    letter = entry.error_details.get("letter_id")
    try:
        return rd.dead_letters.show(letter).letter.state if isinstance(letter, int) else None
    except LetterNotFoundError:
        return None


def _refused(dlq_id: str, rule: str, fix: str) -> ConfigurationError:
    return ConfigurationError(field="dead letter", value=dlq_id, rule=rule, fix=fix)
