# SPDX-License-Identifier: Apache-2.0
"""The demo's second half: one group of dead letters goes all the way back, by the commands an operator would type.

The first replay starts too early, while the cause is still there: it stops itself after one job. Then the cause is cured, at the
upstream and not here, and the replay goes on. The commands do everything; this only types them, and looks at the store to say how
far the replay is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from redrive.cli.demo.flow import flow
from redrive.cli.demo.shell import LOOK_SECONDS, PATIENCE_SECONDS, OffScriptError, Shell
from redrive.cli.demo.upstream import WRONG_KEY, FlakyUpstream
from redrive.cli.demo.view import View
from redrive.cli.demo.workers import COMMAND, Crew
from redrive.cli.output.errors import FAILED, HELD
from redrive.client.connection import Redrive
from redrive.engine.replay.filter import LetterFilter
from redrive.engine.runtime import CURRENT
from redrive.ops.jobs.inspect import known_job
from redrive.ops.letters.letter import LetterGroup, groups, letter_details
from redrive.ops.replay.progress import ReplayReport, report_of
from redrive.ops.replay.replays import list_replays

CODE: Final = "AUTH_INVALID"
"""What jobs with a refused key fail with: the cause that is cured here."""
CANARY: Final = "1,5,20"
PREFIX: Final = 8
"""So much of a fingerprint is typed."""
OPEN: Final = frozenset({"queued", "processing"})
GROUPS: Final = ("dlq", "groups", "--pipeline", flow.name)
SHORT: Final = 5
"""Lines shown of an answer that says little new."""
STORY: Final = 21
"""Lines shown of a letter; its stack and its attempts follow."""


def pending(rd: Redrive) -> LetterGroup | None:
    """Return the group of the letters with refused keys, if any of them waits for somebody."""
    found = groups(rd.store, LetterFilter(pipeline=flow.name, code=CODE))
    return next((group for group in found if group.pending), None)


@dataclass(slots=True)
class WayBack:
    """What happens after the accounting, in order; `jobs` are those whose key was refused."""

    rd: Redrive
    view: View
    shell: Shell
    crew: Crew
    upstream: FlakyUpstream
    jobs: Sequence[int]
    told: str = ""

    def play(self) -> str | None:
        """Bring the jobs back; return what went otherwise than it should, if anything did."""
        try:
            self._play()
        except OffScriptError as problem:
            return str(problem)
        return None

    def _play(self) -> None:
        self.view.say("")
        self.view.tell("now the way back; what is there to do?")
        self.shell.enter()
        self.shell.run(*GROUPS)
        group = pending(self.rd)
        if group is None or group.pending != len(self.jobs):
            letters = 0 if group is None else group.pending
            raise OffScriptError(
                problem=f"{letters} letters say {CODE}, but {len(self.jobs)} keys were refused"
            )
        self.view.tell(
            f"many letters, few causes; {_letters(group.pending)} say {CODE}: a key that was revoked"
        )
        self.shell.run("dlq", "show", str(group.sample), lines_max=STORY)
        which = ("--group", group.fingerprint.rpartition(":")[2][:PREFIX])
        self._judge(which)
        replay = self._start_too_early(which)
        self._cure()
        self._ramp(replay)
        self._bring_back_the_canary(replay)
        note = f"the key works again; all {len(self.jobs)} jobs are complete"
        self.shell.run("replay", "close", str(replay), "--note", note, lines_max=SHORT)
        self.view.tell("what is left has other causes, each with its own way back")
        self.shell.run(*GROUPS, "--state", "open")

    def _judge(self, which: tuple[str, str]) -> None:
        """Say what is wrong and what was done about it; without that nothing is replayed."""
        self.view.tell("nobody has said what was done about it, so that a replay is refused", "bold yellow")
        self.shell.run("replay", "start", *which, "--yes", expect=FAILED)
        self.view.tell("so: what is wrong, what was done, and what would a replay meet?")
        self.shell.run("dlq", "triage", *which, "--diagnosis", "auth_config", "--yes")
        self._remediate(*which, evidence="the provider was asked to restore the key, ticket 42")
        target = next(word for word in COMMAND if ":" in word)
        self.shell.run("dlq", "validate", *which, "--target", target)

    def _start_too_early(self, which: tuple[str, str]) -> int:
        """Replay while the key is still refused; return the replay, which has stopped itself."""
        self.view.tell(
            "asked is not done: the key is still refused. One job goes first, and finds out", "bold yellow"
        )
        before = {replay.id for replay in list_replays(self.rd.store, limit=1)}
        steps = ("--canary", CANARY, "--follow", "--yes")
        # A replay of one letter has nothing left that stopping could spare.
        is_alone = len(self.jobs) == 1
        expected = FAILED if is_alone else HELD
        self.shell.run(
            "replay", "start", *which, *steps, expect=expected, meanwhile=lambda: self._look(before)
        )
        (newest,) = list_replays(self.rd.store, limit=1)
        report = report_of(self.rd.store, newest.id)
        end = "done" if is_alone else "stopped"
        if (report.status, report.failed_again_same, report.waiting) != (end, 1, len(self.jobs) - 1):
            raise OffScriptError(
                problem=f"replay {report.id} did not stop itself after one job: {_progress(report)}"
            )
        self.view.tell(
            f"it stopped itself after one job; {_letters(report.waiting)} were not touched", "bold red"
        )
        return report.id

    def _cure(self) -> None:
        """Cure the cause where it is: at the upstream."""
        self.upstream.let_in(WRONG_KEY)
        self.view.tell("the provider restores the key: now the upstream lets it in", "bold green")

    def _ramp(self, replay: int) -> None:
        """Go on with the replay, and watch it to its end; the job that went first has failed again, and the exit code says so."""
        if len(self.jobs) == 1:
            return
        self.shell.run("replay", "resume", str(replay), "--reason", "the key works again", lines_max=SHORT)
        follow = ("replay", "status", str(replay), "--follow")
        self.shell.run(*follow, expect=FAILED, meanwhile=lambda: self._look(set()))
        report = report_of(self.rd.store, replay)
        if (report.status, report.verified) != ("done", len(self.jobs) - 1):
            raise OffScriptError(problem=f"replay {replay} did not bring back its jobs: {_progress(report)}")

    def _bring_back_the_canary(self, replay: int) -> None:
        """Bring back the job that went first: it has a new letter, which is judged anew."""
        store = self.rd.store
        (failed,) = report_of(store, replay).failures
        job = letter_details(store, failed.sample).letter.job
        self.view.tell(f"job {job}, which went first, has a new dead letter; it needs evidence of its own")
        known = (str(failed.sample), "--diagnosis", "auth_config")
        self._remediate(*known, evidence="the provider has restored the key, ticket 42")
        self.shell.run("job", "retry", str(job), "--yes")
        self._wait_for(lambda: known_job(store, job).facts.status not in OPEN, f"job {job}")
        status = known_job(store, job).facts.status
        if status != "complete":
            raise OffScriptError(problem=f"job {job} was retried, and is {status}")
        self.view.tell(f"job {job} is complete", "bold green")

    def _remediate(self, *which: str, evidence: str) -> None:
        self.shell.run("dlq", "remediate", *which, "--evidence", evidence, "--safe", "--yes")

    def _look(self, before: set[int]) -> None:
        """Say how far the newest replay is, if that is news."""
        self._check_worker()
        for replay in list_replays(self.rd.store, limit=1):
            report = report_of(self.rd.store, replay.id)
            line = _progress(report)
            if replay.id not in before and line != self.told:
                self.told = line
                self.view.say(f"  {line}")

    def _wait_for(self, is_done: Callable[[], bool], what: str) -> None:
        clock = CURRENT.get().clock
        until = clock.monotonic() + PATIENCE_SECONDS
        while not is_done():
            self._check_worker()
            if clock.monotonic() > until:
                raise OffScriptError(problem=f"{what} has not ended after {PATIENCE_SECONDS:g} s")
            clock.sleep(LOOK_SECONDS)

    def _check_worker(self) -> None:
        if not self.crew.is_working:
            raise OffScriptError(
                problem=f"the worker ended by itself; its last words: {self.crew.last_words}"
            )


def _letters(count: int) -> str:
    return f"{count} dead letter{'' if count == 1 else 's'}"


def _progress(report: ReplayReport) -> str:
    again = report.failed_again_same + report.failed_again_other
    return (
        f"replay {report.id} {report.status}: {report.recovered} recovered, {again} failed again, "
        f"{report.replaying} on their way, {report.waiting} waiting"
    )
