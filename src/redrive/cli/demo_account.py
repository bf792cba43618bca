# SPDX-License-Identifier: Apache-2.0
"""The demo's account: what became of every job, recounted row by row and checked against the upstream's ledger.

Nothing the live view remembered is used here. A line that does not add up is a complaint, and the demo then ends with exit code 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from rich.console import Console
from rich.table import Table

from redrive.cli.demo_flow import flow
from redrive.engine.client import Redrive

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
    complaints: list[str] = field(default_factory=list[str])

    @property
    def open(self) -> int:
        """How many jobs have not ended."""
        return self.statuses["queued"] + self.statuses["processing"]


def account_of(rd: Redrive, ids: Sequence[int], notified: Mapping[str, int]) -> Account:
    """Recount the jobs with these ids, and compare with the notifications that the upstream saw."""
    account = Account(len(ids))
    statuses = _statuses(rd, ids)
    account.statuses.update(statuses.values())
    for job in ids:
        _add_attempts(account, rd, job, statuses.get(job, "lost"))
    for job, status in statuses.items():
        if status == "failed":
            _add_letter(account, rd, job)
    told = {job: notified.get(f"{flow.name}:{job}:{flow.stages[-1].name}", 0) for job in ids}
    account.repeats = sum(calls - 1 for calls in told.values() if calls)
    lost = [job for job, status in statuses.items() if status == "complete" and not told[job]]
    stray = [job for job, status in statuses.items() if status in {"failed", "cancelled"} and told[job]]
    _check(account, not lost, f"complete, but never notified: jobs {named(lost)}")
    _check(account, not stray, f"notified, but given up: jobs {named(stray)}")
    ended = sum(account.statuses[status] for status in ("complete", "failed", "cancelled"))
    _check(account, ended + account.open == account.submitted, "some jobs are in no state at all")
    _check(account, not account.open, f"{account.open} jobs have not ended")
    return account


def named(jobs: Sequence[int]) -> str:
    """Name some jobs, and say how many more there are."""
    more = f" and {len(jobs) - NAMED_MAX} more" if len(jobs) > NAMED_MAX else ""
    return ", ".join(map(str, jobs[:NAMED_MAX])) + more


def show(console: Console, account: Account) -> None:
    """Show the account, and what it proves."""
    table = Table(title="Every job, accounted for", title_justify="left", header_style="bold")
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
    return [
        f"No effect was lost: each of the {account.statuses['complete']} complete jobs was notified, and no other.",
        twice if account.crashed else "No job had to run a stage again for want of a worker.",
        f"{account.repeats} notifications reached the upstream a second time; it knew them by their idempotency key.",
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
    _check(account, (status == "failed") == bool(outcomes["dead"]), f"job {job} is {status} by no attempt")


def _add_letter(account: Account, rd: Redrive, job: int) -> None:
    letters = rd.store.query("letters_of_job", job)
    is_one = [str(letter[1]) for letter in letters] == ["open"]
    _check(account, is_one, f"job {job} has failed without exactly one open dead letter")
    for letter in letters:
        account.codes[str(letter[3])] += 1
        account.lines.setdefault(str(letter[3]), str(letter[5]).splitlines()[0])


def _check(account: Account, holds: bool, complaint: str) -> None:  # noqa: FBT001 - the condition comes first, as in an assert.
    if not holds:
        account.complaints.append(complaint)
