# SPDX-License-Identifier: Apache-2.0
"""The world of faults with operators in it: campaigns, retries, edits, discards and cancellations at random, and workers that die.

The workers drive the campaigns, with the real code, over the same faulty way to the store as everything else; operators reach the
store directly, as a command line does, and may die in the middle of what they do. What a campaign may not do is checked at the end,
and, for pauses, while it happens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import cast

from redrive import Backoff, Context, Jitter, Pipeline, Redrive, RetryPolicy, stage
from redrive.core.replay import ReplayRules, plan_of
from redrive.engine.campaigns import Campaigns, counts_of
from redrive.engine.selection import LetterFilter
from redrive.engine.worker import Worker
from redrive.errors import RedriveError
from redrive.ops import replay
from redrive.ops.oversight import By
from redrive.ops.retrying import retry_job
from redrive.store.protocol import Step
from redrive.testing import VirtualClock

from .world import ATTEMPTS_MAX, FaultyStore, World

BY = By("operator", "simulated")
ACTS = 60
LIVE = "('open', 'triaged', 'ready', 'discarded')"
FREE = "('open', 'triaged', 'ready')"
MENDED = "mended"


@dataclass
class ReplayWorld(World):
    """A world in which much fails for good, and people bring it back."""

    is_operated: bool = False
    """True when the operators have gone home."""
    mended: set[int] = field(default_factory=set)
    """Jobs whose input was edited before their replay."""
    noticed: list[str] = field(default_factory=list)
    """Promises that were seen to be broken while it happened."""
    paused: dict[int, int] = field(default_factory=dict)
    """How many letters a campaign had released when it was paused."""

    def pipeline(self, clock: VirtualClock) -> Pipeline:
        """Build three stages of which each fails for good now and then; a mended value never does."""
        policy = RetryPolicy(ATTEMPTS_MAX, Backoff.exponential(1, cap=20, jitter=Jitter.full()))

        def made(name: str) -> object:
            async def run(text: str, ctx: Context) -> str:
                await clock.asleep(self.chance.random() * 3)
                draw = self.chance.random()
                if draw < 0.1:
                    raise ConnectionResetError(104, "reset")
                if draw < 0.3 and text != MENDED:
                    raise KeyError("bug") if draw < 0.2 else TypeError("another bug")
                self.ledger.append((ctx.job_id, name))
                return text

            return stage(retry=policy, name=name)(run)

        stages = [made("fetch"), made("llm"), made("notify")]
        return Pipeline("flow", stages, replay=ReplayRules(evidence="optional"))  # type: ignore[arg-type]

    def may_end(self) -> bool:
        """Workers stay for as long as operators are there."""
        return self.is_operated

    def beside(
        self, store: FaultyStore, worker: Worker, pipeline: Pipeline, clock: VirtualClock
    ) -> list[Coroutine[object, object, None]]:
        """Let every worker drive campaigns."""
        campaigns = Campaigns(
            store,  # type: ignore[arg-type]
            [pipeline],
            clock,
            name=lambda: worker.name,
            ask_store=store.elsewhere,
            on_news=worker.look,
        )
        return [campaigns.run()]

    async def operate(self, clock: VirtualClock) -> None:
        """Do something at random again and again; at last, let everything that was begun come to its end."""
        Redrive(self.store).store.apply(
            Step("put_rules", ("flow", b'{"evidence":"optional","owner_retry":false,"export":"redacted"}'))
        )
        for _ in range(ACTS):
            await clock.asleep(self.chance.random() * 20)
            act = self.chance.choice([self._start, self._start, self._retry, self._discard, self._mend, self._move, self._move, self._cancel_job])  # fmt: skip
            try:
                act()
            except RedriveError:
                continue
        for _ in range(60):
            await clock.asleep(10)
            live = self.store.read("SELECT id, status FROM campaigns WHERE ended_at IS NULL")
            for campaign, status in live:
                if status in {"paused", "stopped"}:
                    self._resume(int(str(campaign)))
            if not live:
                break
        self.is_operated = True

    def _start(self) -> None:
        plan = plan_of(self.chance.choice([(), (1, 3), (2, 5, 9)]), self.chance.choice([None, 2.0, 0.2]))
        group = self.store.read("SELECT fingerprint FROM letter_groups ORDER BY id")
        which = LetterFilter(
            pipeline="flow",
            group=str(self.chance.choice(group)[0]) if group and self.chance.random() < 0.5 else None,
        )
        replay.start(self.store, which, BY, plan=plan)

    def _retry(self) -> None:
        failed = self.store.read("SELECT id FROM jobs WHERE status = 'failed' ORDER BY id")
        if failed:
            retry_job(self.store, int(str(self.chance.choice(failed)[0])), BY)

    def _discard(self) -> None:
        state = self.chance.choice(["open", "discarded"])
        found = self.store.read("SELECT id FROM dead_letters WHERE state = ? ORDER BY id", (state,))
        if found:
            other = "discarded" if state == "open" else "open"
            self._write(
                "UPDATE dead_letters SET state = ?, campaign_id = NULL WHERE id = ? AND state = ?",
                (other, self.chance.choice(found)[0], state),
            )

    def _mend(self) -> None:
        found = self.store.read(f"SELECT id, job_id FROM dead_letters WHERE state IN {FREE} ORDER BY id")
        if found:
            letter, job = self.chance.choice(found)
            self._write(
                "INSERT INTO edits (letter_id, job_id, part, before, after, at, actor) VALUES (?, ?, 'input', ?, ?, 0, 'o')",
                (letter, job, b'"x"', f'"{MENDED}"'.encode()),
            )
            self.mended.add(int(str(letter)))

    def _move(self) -> None:
        live = self.store.read("SELECT id, status FROM campaigns WHERE ended_at IS NULL ORDER BY id")
        if not live:
            return
        chosen, status = self.chance.choice(live)
        campaign = int(str(chosen))
        if status in {"paused", "stopped"}:
            self._resume(campaign)
        elif self.chance.random() < 0.6:
            replay.pause(self.store, campaign, BY)
            self.paused[campaign] = counts_of(self.store, campaign).released
        else:
            replay.cancel(self.store, campaign, BY)

    def _resume(self, campaign: int) -> None:
        released = counts_of(self.store, campaign).released
        if self.paused.pop(campaign, released) != released:
            self.noticed.append(f"campaign {campaign} released letters while it was paused")
        replay.resume(self.store, campaign, BY)

    def _cancel_job(self) -> None:
        job = self.chance.randrange(self.jobs) + 1
        if Redrive(self.store).cancel(job) in {"processing", "cancelled"}:
            self.cancelled.add(job)

    def _write(self, sql: str, parameters: tuple[object, ...]) -> None:
        with self.store._writing() as db:
            db.execute(sql, parameters)


def replay_breaches(world: ReplayWorld) -> list[str]:
    """Say which promise about replays was broken."""
    read = world.store.read
    found = list(world.noticed)
    if not world.is_operated:
        found.append("a campaign neither ended nor said what it waits for")
    checks = {
        "a campaign has not ended": "SELECT id, status, why FROM campaigns WHERE ended_at IS NULL",
        "a newcomer was taken": "SELECT letter.id FROM dead_letters letter JOIN campaigns ON campaigns.id = campaign_id"
        " WHERE letter.id > cutoff",
        "a campaign replayed a job twice": "SELECT campaign_id, job_id FROM dead_letters WHERE campaign_id IS NOT NULL"
        " GROUP BY 1, 2 HAVING count(*) > 1",
        "a letter is kept by a campaign that has ended": "SELECT letter.id FROM dead_letters letter JOIN campaigns"
        f" ON campaigns.id = campaign_id WHERE ended_at IS NOT NULL AND letter.state IN {FREE}",
        "a round without its letter": "SELECT jobs.id, round FROM jobs WHERE round <> 1 + (SELECT count(*) FROM dead_letters"
        " WHERE job_id = jobs.id AND state IN ('replaying', 'resolved', 'returned'))",
        "a failed job without its one live letter": "SELECT id FROM jobs WHERE (status = 'failed') <>"
        f" (SELECT count(*) FROM dead_letters WHERE job_id = jobs.id AND state IN {LIVE})",
        "a letter that is still replaying": "SELECT id FROM dead_letters WHERE state = 'replaying'",
        "a letter that does not follow its job's last one": "SELECT id FROM dead_letters WHERE (round > 1) <> (follows IS NOT NULL)",
        "an edit that was not used": "SELECT letter.id FROM edits JOIN dead_letters letter ON letter.id = letter_id JOIN jobs"
        " ON jobs.id = letter.job_id WHERE letter.verdict = 'completed' AND edits.part = 'input' AND letter.state = 'resolved'"
        f" AND jobs.result <> CAST('\"{MENDED}\"' AS BLOB) AND edits.id IN (SELECT max(id) FROM edits GROUP BY letter_id)"
        " AND edits.at <= letter.closed_at AND letter.id NOT IN (SELECT follows FROM dead_letters WHERE follows IS NOT NULL)",
    }
    for told, sql in checks.items():
        if rows := read(sql):
            found.append(f"{told}: {rows}")
    return found + _tally_breaches(world)


def _tally_breaches(world: ReplayWorld) -> list[str]:
    read = world.store.read
    found = []
    counted: Counter[tuple[object, ...]] = Counter()
    for group, state, is_taken, letters in read("SELECT * FROM letters_by_group WHERE letters <> 0"):
        counted[group, state, bool(is_taken)] += cast("int", letters)
    real = Counter(
        (group, state, campaign is not None and state in {"open", "triaged", "ready"})
        for group, state, campaign in read("SELECT group_id, state, campaign_id FROM dead_letters")
    )
    if counted != real:
        found.append(f"the groups count {dict(counted)}, and there are {dict(real)}")
    tallied = Counter({(c, s): n for c, s, n in read("SELECT * FROM letters_by_campaign") if n})
    standing = Counter(
        (campaign, verdict or ("replaying" if state == "replaying" else "waiting"))
        for campaign, verdict, state in read(
            "SELECT campaign_id, verdict, state FROM dead_letters WHERE campaign_id IS NOT NULL"
        )
    )
    if tallied != standing:
        found.append(f"the campaigns count {dict(tallied)}, and there are {dict(standing)}")
    return found
