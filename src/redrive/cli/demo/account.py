# SPDX-License-Identifier: Apache-2.0
"""The demo's account: what became of every job, recounted row by row and checked against the upstream's ledger.

Nothing the live view remembered is used here, and nothing the commands of the way back said. A line that does not add up is a
complaint, and the demo then ends with exit code 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from rich.console import Console
from rich.table import Table

from redrive.cli.demo.flow import flow
from redrive.client.connection import Redrive
from redrive.ops.letters.groups import PENDING

PAGE: Final = 1_000
NAMED_MAX: Final = 12
"""So many jobs are named in a line."""


@dataclass(slots=True)
class Account:
    """What became of every job."""

    submitted: int
    statuses: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    lines: dict[str, str] = field(default_factory=dict[str, str])
    """What an operator reads in a dead letter of each code."""
    crashed: list[int] = field(default_factory=list[int])
    repeats: int = 0
    recovered: int = 0
    """How many jobs were brought back after they had failed."""
    recovered_repeats: int = 0
    """How many notifications of those reached the upstream a second time."""
    complaints: list[str] = field(default_factory=list[str])

    @property
    def open(self) -> int:
        """How many jobs have not ended."""
        return self.statuses["queued"] + self.statuses["processing"]


def account_of(
    rd: Redrive, ids: Sequence[int], notified: Mapping[str, int], *, recovered: Sequence[int] = ()
) -> Account:
    """Recount the jobs with these ids, and compare with the notifications that the upstream saw.

    Those that are said to be `recovered` must be complete.
    """
    account = Account(len(ids))
    statuses = _statuses(rd, ids)
    account.statuses.update(statuses.values())
    for job in ids:
        _add_attempts(account, rd, job, statuses.get(job, "lost"))
    for job, status in statuses.items():
        if status == "failed":
            _add_letter(account, rd, job)
    _add_recovered(account, rd, {job: statuses.get(job, "lost") for job in recovered})
    told = {job: notified.get(f"{flow.name}:{job}:{flow.stages[-1].name}", 0) for job in ids}
    account.repeats = sum(calls - 1 for calls in told.values() if calls)
    account.recovered_repeats = sum(told[job] - 1 for job in recovered if told[job])
    lost = [job for job, status in statuses.items() if status == "complete" and not told[job]]
    stray = [job for job, status in statuses.items() if status in {"failed", "cancelled"} and told[job]]
    _check(account, not lost, f"complete, but never notified: jobs {named(lost)}")
    _check(account, not stray, f"notified, but given up: jobs {named(stray)}")
    ended = sum(account.statuses[status] for status in ("complete", "failed", "cancelled"))
    _check(account, ended + account.open == account.submitted, "some jobs are in no state at all")
    _check(account, not account.open, f"{account.open} jobs have not ended")
    return account


def compare(before: Account, after: Account) -> None:
    """Add to the later account what the way back changed beside the jobs it was about."""
    for status, sign in (("complete", 1), ("failed", -1), ("cancelled", 0)):
        wanted = before.statuses[status] + sign * after.recovered
        _check(
            after,
            after.statuses[status] == wanted,
            f"{after.statuses[status]} jobs are {status} instead of {wanted}",
        )


def named(jobs: Sequence[int]) -> str:
    """Name some jobs, and say how many more there are."""
    more = f" and {len(jobs) - NAMED_MAX} more" if len(jobs) > NAMED_MAX else ""
    return ", ".join(map(str, jobs[:NAMED_MAX])) + more


def show(console: Console, account: Account) -> None:
    """Show the account, and what it proves."""
    again = " again" if account.recovered else ""
    table = Table(title=f"Every job, accounted for{again}", title_justify="left", header_style="bold")
    table.add_column("what")
    table.add_column("count", justify="right")
    table.add_column("")
    for status in ("complete", "failed", "cancelled"):
        table.add_row(f"jobs {status}", f"{account.statuses[status]:,}", "")
    table.add_row("jobs open", f"{account.open:,}", "", end_section=True)
    for outcome, count in account.outcomes.most_common():
        table.add_row(f"attempts {outcome}", f"{count:,}", _OUTCOMES.get(outcome, ""))
    table.add_section()
    for code, count in account.codes.most_common():
        table.add_row(f"dead letters {code}", f"{count:,}", account.lines[code])
    console.print(table)
    statuses = account.statuses
    console.print(
        f"{account.submitted} jobs = {statuses['complete']} complete + {statuses['failed']} failed + "
        f"{statuses['cancelled']} cancelled + {account.open} open",
        soft_wrap=True,
        highlight=False,
    )
    for line in _proof(account):
        console.print(line, soft_wrap=True, highlight=False)


_OUTCOMES: Final = {
    "ok": "the stage is done and its output is committed",
    "retry": "failed, and could heal",
    "hold": "waited for the breaker, no attempt burned",
    "dead": "given up, with a dead letter",
    "crashed": "the worker died; no attempt burned",
}


def _proof(account: Account) -> list[str]:
    if account.complaints:
        return [f"The account does not close: {complaint}." for complaint in account.complaints]
    twice = (
        f"{len(account.crashed)} jobs were in the hands of the worker that was killed, and ran their stage again: "
        f"{named(account.crashed)}."
    )
    again = account.recovered_repeats
    told = (
        f"notified once, and known by its key the {again} times it came again" if again else "notified once"
    )
    back = f"{account.recovered} jobs had failed and came back: each is complete, was {told}, and did no stage twice."
    return [
        f"No effect was lost: each of the {account.statuses['complete']} complete jobs was notified, and no other.",
        twice if account.crashed else "No job had to run a stage again for want of a worker.",
        f"{account.repeats} notifications reached the upstream a second time; it knew them by their idempotency key.",
        *([back] if account.recovered else []),
    ]


def _statuses(rd: Redrive, ids: Sequence[int]) -> dict[int, str]:
    found: dict[int, str] = {}
    wanted, below = set(ids), max(ids, default=0) + 1
    while rows := rd.store.query("list_jobs", below, None, flow.name, None, None, None, PAGE):
        listed = {cast("int", row[0]): str(row[3]) for row in rows}
        found |= {job: status for job, status in listed.items() if job in wanted}
        below = min(listed)
    return found


def _add_attempts(account: Account, rd: Redrive, job: int, status: str) -> None:
    attempts = rd.store.query("attempts", job)
    outcomes = Counter(str(row[4]) for row in attempts)
    account.outcomes.update(outcomes)
    if outcomes["crashed"]:
        account.crashed.append(job)
    done = len(flow.stages)
    _check(
        account, status != "complete" or outcomes["ok"] == done, f"job {job} is complete without its stages"
    )
    _check(account, outcomes["ok"] <= done, f"job {job} has a stage that counts twice")
    # A job that came back has an earlier round that ended dead; the last word counts.
    is_dead = bool(attempts) and attempts[-1][4] == "dead"
    _check(account, (status == "failed") == is_dead, f"job {job} is {status} by no attempt")


def _add_letter(account: Account, rd: Redrive, job: int) -> None:
    letters = [letter for letter in rd.store.query("letters_of_job", job) if letter[1] in PENDING]
    _check(account, len(letters) == 1, f"job {job} has failed without exactly one open dead letter")
    for letter in letters:
        account.codes[str(letter[3])] += 1
        account.lines.setdefault(str(letter[3]), str(letter[5]).splitlines()[0])


def _add_recovered(account: Account, rd: Redrive, statuses: Mapping[int, str]) -> None:
    left = [job for job, status in statuses.items() if status != "complete"]
    account.recovered = len(statuses) - len(left)
    _check(account, not left, f"said to be recovered, but not complete: jobs {named(left)}")
    for job in statuses:
        states = {str(letter[1]) for letter in rd.store.query("letters_of_job", job)}
        is_settled = "resolved" in states and not states & PENDING
        _check(account, is_settled, f"job {job} has a dead letter that is not settled")


def _check(account: Account, holds: bool, complaint: str) -> None:  # noqa: FBT001 - the condition comes first, as in an assert.
    if not holds:
        account.complaints.append(complaint)
