# SPDX-License-Identifier: Apache-2.0
"""The work of the commands: read all mail, run the jobs to their end, and replay dead letters."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NoReturn

from apps.collabiq.files import PAST, DlqFiles, files_of, letter_lines
from apps.collabiq.pipeline import MailRef, open_clients, pipeline_of
from apps.collabiq.records import DLQEntry, DLQStatus
from apps.collabiq.retry_config import GMAIL_RETRY_CONFIG
from apps.collabiq.secrets import OPERATION
from apps.collabiq.service_calls import ServiceCall
from apps.collabiq.settings import PREFIX, Settings
from apps.collabiq.sources import Source
from redrive import ConfigurationError, Pipeline, Redrive, RedriveError, connect, redact


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Counts of the mail: `listed = new + known + waiting`."""

    listed: int
    new: int
    known: int
    """Read before, and done, in progress, or closed by hand."""
    waiting: int
    """Read before, and among the dead letters."""
    done: int
    failed: int
    """Of the new ones, those that became dead letters."""


CLOSED: Final = "discarded"
"""The state of a dead letter that was closed by hand."""


@contextmanager
def opened(settings: Settings) -> Generator[tuple[Redrive, DlqFiles]]:
    """Open the database and the files beside it."""
    try:
        settings.root.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ConfigurationError(
            field=f"{PREFIX}FOLDER",
            value=settings.folder,
            rule=f"cannot be made ({error.strerror})",
            fix="Choose a folder that this user can write to.",
        ) from None
    _, dlq = files_of(settings)
    with connect(settings.database) as rd:
        yield rd, dlq


def entries(settings: Settings) -> list[DLQEntry]:
    """Update the files, and return the entries of all dead letters, oldest first."""
    with opened(settings) as (rd, dlq):
        return dlq.update(rd)


def run(settings: Settings) -> Account:
    """Submit a job for each new mail, and work until no job is left."""
    with opened(settings) as (rd, dlq), open_clients(rd, settings) as clients:
        pipeline = pipeline_of(settings, clients)
        ids = list(dict.fromkeys(_listed(rd, settings, clients.source)))
        letters = {line.key: line.state for line in letter_lines(rd) if line.state not in PAST}
        jobs = [rd.submit(pipeline, MailRef(each), key=each) for each in ids if each not in letters]
        new = [job for job in jobs if not job.is_duplicate]
        waiting = [each for each in ids if letters.get(each, CLOSED) != CLOSED]
        _work(settings, rd, pipeline)
        dlq.update(rd)
        ended = [job.status for job in new]
        return Account(
            listed=len(ids),
            new=len(new),
            known=len(ids) - len(new) - len(waiting),
            waiting=len(waiting),
            done=ended.count("complete"),
            failed=ended.count("failed"),
        )


def replay(
    settings: Settings,
    chosen: Sequence[str] | None,
    *,
    actor: str,
    operation: str | None = None,
    most: int | None = None,
) -> list[DLQEntry]:
    """Replay dead letters from the stage that failed, work until all are done, and return their entries.

    `chosen` None means all that can be replayed, of one operation or of all, the oldest `most` of them.

    Raises:
        ConfigurationError: one of them cannot be replayed; then none is.
    """
    with opened(settings) as (rd, dlq):
        known, done = {each.dlq_id: each for each in dlq.update(rd)}, dlq.processed_ids()
        if chosen is None:
            chosen = [each.dlq_id for each in known.values() if is_replayable(each)]
            chosen = [each for each in chosen if operation in {None, known[each].operation_type}][:most]
        for each in chosen:
            _refuse(each, known, done)
        with open_clients(rd, settings) as clients:
            for each in chosen:
                if (
                    known[each].operation_type != OPERATION
                ):  # The keys are here, so `open_clients` has closed those.
                    job = int(str(known[each].error_details["job_id"]))
                    rd.jobs.retry(job, actor=actor, reason="collabiq dlq replay")
            dlq.update(rd)
            _work(settings, rd, pipeline_of(settings, clients))
        return [entry for entry in dlq.update(rd) if entry.dlq_id in chosen]


def complete(settings: Settings, dlq_id: str, *, note: str, actor: str) -> DLQEntry:
    """Close a dead letter by hand, so that it is not replayed, and return its entry.

    Raises:
        ConfigurationError: it is closed already, or is being replayed.
    """
    with opened(settings) as (rd, dlq):
        known, done = {each.dlq_id: each for each in dlq.update(rd)}, dlq.processed_ids()
        _refuse(dlq_id, known, done)
        letter = int(str(known[dlq_id].error_details["letter_id"]))
        rd.letters.discard(rd.letters.choose(ids=[letter]), actor=actor, reason=note)
        return next(entry for entry in dlq.update(rd) if entry.dlq_id == dlq_id)


def _work(settings: Settings, rd: Redrive, pipeline: Pipeline) -> None:
    rd.work([pipeline], concurrency=settings.concurrency, lease=settings.lease, until_idle=True)


def _listed(rd: Redrive, settings: Settings, source: Source) -> list[str]:
    """Return the ids of all mail, with the policy and breaker of its service."""
    log, _ = files_of(settings)

    def fallback(error: Exception) -> NoReturn:
        problem = f"the mail could not be listed: {redact(str(error))}"
        hint = f"See {settings.root / 'logs'}; run it again later."
        raise RedriveError(problem, hint=hint) from error

    call = ServiceCall(rd, log, "gmail", "gmail_fetch")
    return call(lambda: list(source.ids()), GMAIL_RETRY_CONFIG, fallback=fallback, records_retries=True)


def is_replayable(entry: DLQEntry) -> bool:
    """Return whether an entry waits for somebody: it is neither done with, nor being replayed, nor replaced by another one."""
    return entry.status in {DLQStatus.PENDING, DLQStatus.FAILED} and "successor" not in entry.error_details


def unknown(dlq_id: str, known: Iterable[str]) -> ConfigurationError:
    """Return the error for an id that no dead letter has, with the id that is most similar to it."""
    similar = difflib.get_close_matches(dlq_id, known, n=1)
    fix = f"Did you mean {similar[0]}?" if similar else "collabiq dlq list shows them."
    return ConfigurationError(field="dead letter", value=dlq_id, rule="is not a known dead letter", fix=fix)


def _refuse(dlq_id: str, known: Mapping[str, DLQEntry], done: Collection[str]) -> None:
    """Refuse an entry that cannot be replayed; one that is done with stays so, even with another database."""
    if dlq_id in done:
        rule, fix = "was replayed or closed before", "collabiq dlq show has the details."
    elif dlq_id not in known:
        raise unknown(dlq_id, known)
    elif "successor" in known[dlq_id].error_details:
        successor = known[dlq_id].error_details["successor"] or "none: its job was cancelled"
        rule, fix = "was replayed, and did not succeed", f"Its successor is {successor}."
    elif not is_replayable(known[dlq_id]):
        rule, fix = f"is {known[dlq_id].status.value}", "collabiq dlq list shows what can be replayed."
    else:
        return
    raise ConfigurationError(field="dead letter", value=dlq_id, rule=rule, fix=fix)
