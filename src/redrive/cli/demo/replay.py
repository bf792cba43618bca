# SPDX-License-Identifier: Apache-2.0
"""The demo's second scene: the dead letters of one group are replayed with the commands an operator would type.

The replay starts too early, while the cause is still there, and stops itself after one job. Then the cause is fixed at the upstream
and the replay resumes. The commands do all the work; this module only runs them and reads the store to print progress.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from redrive.cli.demo.flow import flow
from redrive.cli.demo.shell import DemoError, Shell, wait_until
from redrive.cli.demo.upstream import WRONG_KEY, FaultyUpstream
from redrive.cli.demo.view import View
from redrive.cli.demo.work import TARGET, Worker
from redrive.cli.output.errors import FAILED, HELD
from redrive.cli.output.replay import progress_line
from redrive.client.connection import Redrive
from redrive.core.units import plural
from redrive.ops.letters.groups import LetterGroup
from redrive.ops.replay.progress import ReplayReport

CODE: Final = "AUTH_INVALID"
"""The code of jobs whose key was refused: the cause that is fixed here."""
PREFIX: Final = 8
"""Digits of a fingerprint that are typed."""
GROUPS: Final = ("dlq", "groups", "--pipeline", flow.name)
SHORT: Final = 5
LONG: Final = 21
"""Lines printed of a report, and of a letter, whose stack and attempts follow."""


def refused_group(rd: Redrive) -> LetterGroup | None:
    """Return the group of the letters with a refused key, if any of them is pending."""
    found = rd.letters.groups(pipeline=flow.name, code=CODE)
    return next((group for group in found if group.pending), None)


@dataclass(slots=True)
class ReplayScene:
    """Replays the jobs whose key was refused."""

    rd: Redrive
    view: View
    shell: Shell
    worker: Worker
    upstream: FaultyUpstream
    jobs: Sequence[int]
    last_line: str = ""

    def play(self) -> str | None:
        """Recover the jobs; return what went wrong, if anything did."""
        try:
            self._play()
        except DemoError as problem:
            return str(problem)
        return None

    def _play(self) -> None:
        self.view.line("")
        self.view.announce("now the replay; which dead letters are there?")
        self.shell.export_database()
        self.shell.run(*GROUPS)
        group = refused_group(self.rd)
        pending = 0 if group is None else group.pending
        if group is None or pending != len(self.jobs):
            raise DemoError(problem=f"{pending} letters have {CODE}, but {len(self.jobs)} keys were refused")
        self.view.announce(
            f"many letters, few causes: {plural(pending, 'dead letter')} with {CODE}, a revoked key"
        )
        self.shell.run("dlq", "show", str(group.sample), lines_max=LONG)
        which = ("--group", group.fingerprint.rpartition(":")[2][:PREFIX])
        self._triage(which)
        replay = self._start_too_early(which)
        self.upstream.accept_key(WRONG_KEY)
        self.view.announce("the provider restores the key: the upstream accepts it again", "bold green")
        self._resume(replay)
        self._retry_first_job(replay)
        note = f"the key works again; all {len(self.jobs)} jobs are complete"
        self.shell.run("replay", "close", str(replay), "--note", note, lines_max=SHORT)
        self.view.announce("the remaining dead letters have other causes")
        self.shell.run(*GROUPS, "--state", "open")

    def _triage(self, which: tuple[str, str]) -> None:
        """Record the diagnosis and the evidence that a replay requires."""
        self.view.announce("there is no evidence of a fix, so a replay is refused", "bold yellow")
        self.shell.run("replay", "start", *which, "--yes", expect=FAILED)
        self.view.announce("so: record the diagnosis and the fix, then check what a replay would do")
        self.shell.run("dlq", "triage", *which, "--diagnosis", "auth_config", "--yes")
        self._remediate(*which, evidence="the provider was asked to restore the key, ticket 42")
        self.shell.run("dlq", "validate", *which, "--target", TARGET)

    def _start_too_early(self, which: tuple[str, str]) -> int:
        """Replay while the key is still refused; return the replay, which has stopped itself."""
        self.view.announce("the key is still refused: the first canary will fail", "bold yellow")
        self.shell.run("replay", "start", *which, "--canary", "1,5,20", "--yes", lines_max=SHORT)
        (report,) = self.rd.replays.list(limit=1)
        # With one letter, nothing is left for the replay to stop: it is done.
        is_alone = len(self.jobs) == 1
        report = self._follow(report.id, expect=FAILED if is_alone else HELD)
        expected = ("done" if is_alone else "stopped", 1, len(self.jobs) - 1)
        _check(report, (report.status, report.failed_again_same, report.waiting) == expected)
        self.view.announce(
            f"the replay stopped itself after one job; {plural(report.waiting, 'dead letter')} not touched",
            "bold red",
        )
        return report.id

    def _resume(self, replay: int) -> None:
        """Resume the replay and follow it to its end; its exit code is 1, because the first job has failed again."""
        if len(self.jobs) == 1:
            return
        self.shell.run("replay", "resume", str(replay), "--reason", "the key works again", lines_max=SHORT)
        report = self._follow(replay, expect=FAILED)
        _check(report, (report.status, report.verified) == ("done", len(self.jobs) - 1))

    def _retry_first_job(self, replay: int) -> None:
        """Retry the canary that failed: it has a new letter, which needs its own evidence."""
        (failed,) = self.rd.replays.status(replay).failures
        job = self.rd.letters.show(failed.sample).letter.job
        self.view.announce(f"job {job}, the first canary, has a new dead letter that needs its own evidence")
        letter = (str(failed.sample), "--diagnosis", "auth_config")
        self._remediate(*letter, evidence="the provider has restored the key, ticket 42")
        self.shell.run("job", "retry", str(job), "--yes")
        wait_until(lambda: self._has_ended(job), f"job {job}")
        if (status := self.rd.job(job).status) != "complete":
            raise DemoError(problem=f"job {job} was retried and is {status}")
        self.view.announce(f"job {job} is complete", "bold green")

    def _remediate(self, *which: str, evidence: str) -> None:
        self.shell.run("dlq", "remediate", *which, "--evidence", evidence, "--safe", "--yes")

    def _follow(self, replay: int, *, expect: int) -> ReplayReport:
        """Print how far a replay is until it has ended or stopped itself, then its status."""
        wait_until(lambda: self._is_standing(replay), f"replay {replay}")
        self.shell.run("replay", "status", str(replay), "--follow", expect=expect)
        return self.rd.replays.status(replay)

    def _is_standing(self, replay: int) -> bool:
        self._check_worker()
        report = self.rd.replays.status(replay)
        line = progress_line(report)
        if line != self.last_line:
            self.last_line = line
            self.view.line(f"  {line}")
        return report.ended_at is not None or report.status == "stopped"

    def _has_ended(self, job: int) -> bool:
        self._check_worker()
        return self.rd.job(job).status not in {"queued", "processing"}

    def _check_worker(self) -> None:
        if (problem := self.worker.problem) is not None:
            raise DemoError(problem=problem)


def _check(report: ReplayReport, is_expected: bool) -> None:  # noqa: FBT001 - as in an assert.
    if not is_expected:
        raise DemoError(problem=f"replay {report.id} did not go as expected: {progress_line(report)}")
