# SPDX-License-Identifier: Apache-2.0
"""The demo's account: what became of every job, recounted from the store and compared with what the upstream received.

It uses nothing that the live view or the commands reported. Whatever does not add up is a problem, and the demo then ends with
exit code 1.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rich.console import Console
from rich.table import Table

from redrive.cli.demo.flow import flow
from redrive.cli.demo.progress import PAGE, events_since
from redrive.client.connection import Redrive
from redrive.engine.pipeline.context import origin_of
from redrive.engine.pipeline.lanes import installation_of
from redrive.ops.jobs.inspect import JobFilter, list_jobs
from redrive.ops.letters.groups import PENDING
from redrive.store.statements.letters import LetterLine

LISTED_MAX: Final = 12
"""Job ids shown in one line."""
_OUTCOMES: Final = {
    "ok": "the stage is done and its output is committed",
    "retry": "failed, and may succeed later",
    "hold": "waited for the breaker; no attempt used",
    "dead": "given up, with a dead letter",
    "crashed": "the worker died; no attempt used",
}


@dataclass(slots=True)
class Account:
    """What became of every job."""

    submitted: int
    statuses: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    messages: dict[str, str] = field(default_factory=dict[str, str])
    """The first line of one pending dead letter of each code."""
    crashed: list[int] = field(default_factory=list[int])
    repeats: int = 0
    """Notifications that reached the upstream a second time."""
    recovered: int = 0
    """Jobs that failed, were replayed and are complete."""
    recovered_repeats: int = 0
    problems: list[str] = field(default_factory=list[str])

    @property
    def open(self) -> int:
        """How many jobs have not ended."""
        return self.statuses["queued"] + self.statuses["processing"]

    def check(self, holds: bool, problem: str) -> None:  # noqa: FBT001 - the condition comes first, as in an assert.
        """Add a problem unless the condition holds."""
        if not holds:
            self.problems.append(problem)


def account_of(
    rd: Redrive, ids: Sequence[int], notified: Mapping[str, int], *, recovered: Sequence[int] = ()
) -> Account:
    """Recount these jobs and compare them with the notifications the upstream received; `recovered` ones must be complete."""
    account = Account(len(ids))
    # The newest of the pipeline: those of an earlier demo come after them.
    newest = list_jobs(rd.store, JobFilter(pipeline=flow.name), limit=len(ids))
    found = {job.id: job.status for job in newest}
    statuses = {job: found.get(job, "lost") for job in ids}
    account.statuses.update(statuses.values())
    outcomes: defaultdict[int, list[str]] = defaultdict(list)
    for event in events_since(rd, 0):
        outcomes[event.job].append(event.outcome)
    letters: defaultdict[int, list[LetterLine]] = defaultdict(list)
    for letter in _letters(rd):
        letters[letter.job].append(letter)
    for job, status in statuses.items():
        _add_attempts(account, job, status, outcomes[job])
        if status == "failed":
            _add_letter(account, job, letters[job])
    known = installation_of(rd.store).ids
    calls = {
        job: notified.get(f"{flow.name}:{origin_of(job, known)}:{flow.stages[-1].name}", 0)
        for job in statuses
    }
    _add_notifications(account, statuses, calls, recovered)
    _add_recovered(account, {job: statuses.get(job, "lost") for job in recovered}, letters)
    ended = sum(account.statuses[status] for status in ("complete", "failed", "cancelled", "skipped"))
    account.check(ended + account.open == account.submitted, "some jobs are in no known state")
    account.check(not account.open, f"{account.open} jobs have not ended")
    return account


def compare(before: Account, after: Account) -> None:
    """Check that the replay changed only the jobs it was about."""
    for status, sign in (("complete", 1), ("failed", -1), ("cancelled", 0), ("skipped", 0)):
        expected = before.statuses[status] + sign * after.recovered
        actual = after.statuses[status]
        after.check(actual == expected, f"{actual} jobs are {status} instead of {expected}")


def job_list(jobs: Sequence[int]) -> str:
    """Return the first ids, and how many more there are."""
    more = f" and {len(jobs) - LISTED_MAX} more" if len(jobs) > LISTED_MAX else ""
    return ", ".join(map(str, jobs[:LISTED_MAX])) + more


def print_account(console: Console, account: Account) -> None:
    """Print the account and what it proves."""
    again = " again" if account.recovered else ""
    table = Table(title=f"Every job, accounted for{again}", title_justify="left", header_style="bold")
    table.add_column("what")
    table.add_column("count", justify="right")
    table.add_column("")
    for status in ("complete", "failed", "cancelled", "skipped"):
        table.add_row(f"jobs {status}", f"{account.statuses[status]:,}", "")
    table.add_row("jobs open", f"{account.open:,}", "", end_section=True)
    for outcome, count in account.outcomes.most_common():
        table.add_row(f"attempts {outcome}", f"{count:,}", _OUTCOMES.get(outcome, ""))
    table.add_section()
    for code, count in account.codes.most_common():
        table.add_row(f"dead letters {code}", f"{count:,}", account.messages[code])
    console.print(table)
    statuses = account.statuses
    total = (
        f"{account.submitted} jobs = {statuses['complete']} complete + {statuses['failed']} failed + "
        f"{statuses['cancelled']} cancelled + {statuses['skipped']} skipped + {account.open} open"
    )
    for line in (total, *_conclusions(account)):
        console.print(line, soft_wrap=True, highlight=False)


def _conclusions(account: Account) -> list[str]:
    if account.problems:
        return [f"The account does not add up: {problem}." for problem in account.problems]
    lines = [
        f"No effect was lost: each of the {account.statuses['complete']} complete jobs was notified, and no other.",
        f"{len(account.crashed)} jobs were leased by the killed worker and ran their stage again: {job_list(account.crashed)}."
        if account.crashed
        else "No job had to run a stage again because its worker died.",
        f"{account.repeats} notifications reached the upstream a second time; their idempotency key identified them.",
    ]
    if account.recovered:
        lines.append(
            f"{account.recovered} failed jobs were recovered: each is complete, ran no completed stage again, and "
            f"{account.recovered_repeats} of their notifications were sent twice."
        )
    return lines


def _letters(rd: Redrive) -> Iterator[LetterLine]:
    cursor: str | None = None
    while True:
        page = rd.letters.list(pipeline=flow.name, before=cursor, limit=PAGE)
        yield from page.letters
        cursor = page.next_cursor
        if cursor is None:
            return


def _add_attempts(account: Account, job: int, status: str, outcomes: Sequence[str]) -> None:
    account.outcomes.update(outcomes)
    if "crashed" in outcomes:
        account.crashed.append(job)
    done, stages = outcomes.count("ok"), len(flow.stages)
    account.check(status != "complete" or done == stages, f"job {job} is complete without all its stages")
    account.check(done <= stages, f"job {job} completed a stage twice")
    # A recovered job has an earlier round that ended dead: only the last attempt counts.
    is_dead = bool(outcomes) and outcomes[-1] == "dead"
    account.check(
        (status == "failed") == is_dead, f"job {job} is {status}, but its last attempt does not match"
    )


def _add_letter(account: Account, job: int, letters: Sequence[LetterLine]) -> None:
    pending = [letter for letter in letters if letter.state in PENDING]
    account.check(len(pending) == 1, f"job {job} has {len(pending)} pending dead letters instead of 1")
    for letter in pending:
        account.codes[letter.code] += 1
        account.messages.setdefault(letter.code, letter.message.strip().partition("\n")[0])


def _add_notifications(
    account: Account, statuses: Mapping[int, str], calls: Mapping[int, int], recovered: Sequence[int]
) -> None:
    account.repeats = sum(count - 1 for count in calls.values() if count)
    account.recovered_repeats = sum(calls[job] - 1 for job in recovered if calls[job])
    lost = [job for job, status in statuses.items() if status == "complete" and not calls[job]]
    stray = [
        job for job, status in statuses.items() if status in {"failed", "cancelled", "skipped"} and calls[job]
    ]
    account.check(not lost, f"complete, but never notified: jobs {job_list(lost)}")
    account.check(not stray, f"notified, but not complete: jobs {job_list(stray)}")


def _add_recovered(
    account: Account, statuses: Mapping[int, str], letters: Mapping[int, Sequence[LetterLine]]
) -> None:
    incomplete = [job for job, status in statuses.items() if status != "complete"]
    account.recovered = len(statuses) - len(incomplete)
    account.check(not incomplete, f"replayed, but not complete: jobs {job_list(incomplete)}")
    for job in statuses:
        states = {letter.state for letter in letters[job]}
        is_resolved = "resolved" in states and not states & PENDING
        account.check(is_resolved, f"job {job} has a dead letter that is not resolved")
