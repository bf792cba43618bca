# SPDX-License-Identifier: Apache-2.0
"""The world of faults with operators in it: replays, retries, edits, judgements and cancellations at random, and workers that die.

The workers drive the replays, with the real code, over the same faulty way to the store as everything else. Operators act by the
real use cases, each act over such a way of its own: the store refuses them, loses its answers, or they are gone between two steps of
one act; whoever comes next knows nothing of it. What a replay may not do is judged by the chronicle, at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import cast
from unittest import mock

from redrive import Backoff, Context, Jitter, Pipeline, Redrive, RetryPolicy, stage
from redrive.core.replay import ReplayRules, plan_of
from redrive.engine.replay import driver
from redrive.engine.replay.driver import ReplayDriver
from redrive.engine.replay.filter import LetterFilter
from redrive.engine.replay.rules import record_rules
from redrive.engine.runtime import CURRENT
from redrive.engine.worker.worker import Worker
from redrive.errors import RedriveError
from redrive.ops.audit import Actor
from redrive.ops.jobs.retry import retry_job
from redrive.ops.letters import edit, freeze, triage
from redrive.ops.letters.preview import ReplayPreview, preview_replay
from redrive.ops.replay import replays
from redrive.store.protocol import Store
from redrive.testing import VirtualClock

from .chronicle import Judge, events, keep_chronicle, present
from .watch import ATTEMPTS_MAX
from .world import SECRET, Died, FaultyStore, World

BY = Actor("operator", "simulated")
ACTS = 60
LAST_LOOKS = 500
"""So often somebody looks whether a replay has to be resumed, before all go home."""
LIVE = "('open', 'triaged', 'ready', 'discarded')"
FREE = "('open', 'triaged', 'ready')"
MENDED = "mended"
UNFIT = "5"
"""A value that no stage takes."""

Act = Callable[[Store], object]


@dataclass
class ReplayWorld(World):
    """A world in which much fails for good, and people bring it back."""

    is_operated: bool = False
    """True when the operators have gone home."""
    given: set[tuple[int, int, str]] = field(default_factory=set)
    """What stages were given: of which job, in which round, and what."""
    noticed: list[str] = field(default_factory=list)
    """Promises that were seen to be broken while it happened."""
    looks: list[tuple[LetterFilter, ReplayPreview, int]] = field(default_factory=list)
    """What somebody counted, to start a replay over it later; and when."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.needs_evidence = self.seed % 3 == 1
        keep_chronicle(self.store, _wall)

    def run(self, workers: int = 3) -> None:
        """Run it; in every other pair of worlds, whatever is done to many letters takes many steps."""
        if self.seed % 4 < 2:
            super().run(workers)
            return
        with (
            mock.patch.object(driver, "MARK_WINDOW", 4),
            mock.patch.object(driver, "RELEASE_MAX", 3),
            mock.patch.dict(cast("dict[str, object]", freeze.frozen_steps.__kwdefaults__), step=2),
        ):
            super().run(workers)

    def pipeline(self, clock: VirtualClock) -> Pipeline:
        """Build three stages of which each fails for good now and then; a mended value never does."""
        policy = RetryPolicy(ATTEMPTS_MAX, Backoff.exponential(1, cap=20, jitter=Jitter.full()))

        def made(name: str) -> object:
            async def run(text: str, ctx: Context) -> str:
                self.given.add((ctx.job_id, ctx.round, text))
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
        rules = ReplayRules(evidence="required" if self.needs_evidence else "optional")
        return Pipeline("flow", stages, replay=rules)  # type: ignore[arg-type]

    def may_end(self) -> bool:
        """Workers stay for as long as operators are there."""
        return self.is_operated

    def beside(
        self, store: FaultyStore, worker: Worker, pipeline: Pipeline, clock: VirtualClock
    ) -> list[Coroutine[object, object, None]]:
        """Let every worker drive replays."""
        driver = ReplayDriver(
            store,  # type: ignore[arg-type]
            [pipeline],
            clock,
            name=lambda: worker.name,
            ask_store=store.elsewhere,
            on_news=worker.wake,
        )
        return [driver.run()]

    async def operate(self, clock: VirtualClock) -> None:
        """Do something at random again and again; at last, let everything that was begun come to its end."""
        record_rules(self.store, [self.pipeline(clock)])
        acts: list[Act] = [
            self._start,
            self._start,
            self._retry,
            self._discard,
            self._restore,
            self._mend,
            self._triage,
        ]
        acts += [
            self._remediate,
            *[self._move] * 4,
            self._cancel_job,
            *[self._remediate] * (2 if self.needs_evidence else 0),
        ]
        for _ in range(ACTS):
            # Some acts follow at once on others, before a worker has looked.
            await clock.asleep(self.chance.random() * self.chance.choice([1, 20, 30]))
            self._by_somebody(self.chance.choice(acts), clock)
        for _ in range(LAST_LOOKS):
            await clock.asleep(10)
            live = self.store.read("SELECT id, status FROM replays WHERE ended_at IS NULL")
            for replay, status in live:
                if status in {"paused", "stopped"}:
                    number = int(str(replay))
                    self._by_somebody(lambda store, number=number: replays.resume(store, number, BY), clock)  # type: ignore[misc]
            if not live:
                break
        self.is_operated = True

    def _by_somebody(self, act: Act, clock: VirtualClock) -> None:
        """Let an operator act who may fail, or be gone, between any two steps of it."""
        store = FaultyStore(self.store, self.chance, self.faults, clock)
        try:
            act(cast("Store", store))
        except (RedriveError, Died):
            return

    def _start(self, store: Store) -> None:
        plan = plan_of(self.chance.choice([(), (1, 3), (2, 5, 9)]), self.chance.choice([None, 2.0, 0.2]))
        if self.looks and self.chance.random() < 0.5:
            which, seen, at = self.looks.pop(0)
            replays.start(store, which, Actor(f"operator {at}"), plan=plan, seen=seen)
            return
        group = self.store.read("SELECT fingerprint FROM letter_groups ORDER BY id")
        states = ["ready", "ready", "ready", None] if self.needs_evidence else [None, None, "open", "ready"]
        which = LetterFilter(
            pipeline="flow",
            group=str(self.chance.choice(group)[0]) if group and self.chance.random() < 0.3 else None,
            state=self.chance.choice(states),
        )
        at = present(self.store)
        if self.chance.random() < 0.25:
            self.looks.append((which, preview_replay(store, which), at))
        else:
            replays.start(store, which, Actor(f"operator {at}"), plan=plan)

    def _retry(self, store: Store) -> None:
        failed = self.store.read("SELECT id FROM jobs WHERE status = 'failed' ORDER BY id")
        if failed:
            retry_job(store, int(str(self.chance.choice(failed)[0])), BY)

    def _discard(self, store: Store) -> None:
        self._judge(store, f"state IN {FREE}", triage.discard)

    def _restore(self, store: Store) -> None:
        self._judge(store, "state = 'discarded'", triage.restore)

    def _judge(
        self, store: Store, asked: str, act: Callable[[Store, freeze.FrozenSet, Actor], triage.ActResult]
    ) -> None:
        """Judge some letters, and see that as many have moved as the answer says."""
        which = self._some(asked)
        if which is not None:
            before = present(self.store)
            done = act(store, freeze.freeze(store, which), BY)
            if done.changed != len(events(self.store, before)):
                self.noticed.append(f"{act.__name__} of {which} says {done}, and that is not what happened")

    def _triage(self, store: Store) -> None:
        which = self._some(f"state IN {FREE}")
        if which is not None:
            triage.triage(store, freeze.freeze(store, which), BY, diagnosis="data")

    def _remediate(self, store: Store) -> None:
        which = self._some("state IN ('open', 'triaged')")
        if which is not None:
            found = freeze.freeze(store, which)
            triage.remediate(store, found, BY, evidence="it is mended", is_safe=True, diagnosis="code_defect")

    def _some(self, asked: str) -> LetterFilter | None:
        """Choose a few letters, or all of a group that are in the state of one of them."""
        found = self.store.read(f"SELECT id, fingerprint, state FROM letters WHERE {asked} ORDER BY id")
        if not found:
            return None
        chosen = self.chance.sample(found, min(len(found), self.chance.choice([1, 1, 3])))
        if self.chance.random() < 0.2:
            return LetterFilter(group=str(chosen[0][1]), state=str(chosen[0][2]))
        return LetterFilter(ids=tuple(sorted(cast("int", letter) for letter, _, _ in chosen)))

    def _mend(self, store: Store) -> None:
        found = self.store.read(f"SELECT id FROM dead_letters WHERE state IN {FREE} ORDER BY id")
        if not found:
            return
        letter = cast("int", self.chance.choice(found)[0])
        draw = self.chance.random()
        if draw < 0.3:
            edit.edit(store, letter, BY, value=UNFIT.encode())
        elif draw < 0.6:
            edit.edit(store, letter, BY, patch=f'[{{"op":"replace","path":"","value":"{MENDED}"}}]'.encode())
        else:
            edit.edit(store, letter, BY, value=f'"{MENDED}"'.encode())

    def _move(self, store: Store) -> None:
        live = self.store.read("SELECT id, status FROM replays WHERE ended_at IS NULL ORDER BY id")
        if not live:
            return
        chosen, status = self.chance.choice(live)
        replay = int(str(chosen))
        if status in {"paused", "stopped"}:
            replays.resume(store, replay, BY)
        elif self.chance.random() < 0.5:
            replays.pause(store, replay, BY)
        else:
            replays.cancel(store, replay, BY)

    def _cancel_job(self, store: Store) -> None:
        job = self.chance.randrange(self.jobs) + 1
        try:
            if Redrive(store).jobs.cancel(job).status not in {"processing", "cancelled"}:
                return
        except (RedriveError, Died):
            # It may have been heard all the same.
            self.cancelled.add(job)
            raise
        self.cancelled.add(job)


def _wall() -> float:
    # The clock is another one in every world, and not there yet when a world is made.
    return CURRENT.get().clock.wall()


def replay_breaches(world: ReplayWorld) -> list[str]:
    """Say which promise about replays was broken."""
    read = world.store.read
    found = list(world.noticed)
    if not world.is_operated:
        found.append("a replay neither ended nor said what it waits for")
    checks = {
        "a replay has not ended": "SELECT id, status, reason FROM replays WHERE ended_at IS NULL",
        "a replay replayed a job twice": "SELECT replay_id, job_id FROM dead_letters WHERE replay_id IS NOT NULL"
        " GROUP BY 1, 2 HAVING count(*) > 1",
        "a letter is kept by a replay that has ended": "SELECT letter.id FROM dead_letters letter JOIN replays"
        f" ON replays.id = replay_id WHERE ended_at IS NOT NULL AND letter.state IN {FREE}",
        "a round without its letter": "SELECT jobs.id, round FROM jobs WHERE round <> 1 + (SELECT count(*) FROM dead_letters"
        " WHERE job_id = jobs.id AND state IN ('replaying', 'resolved', 'returned'))",
        "a failed job without its one live letter": "SELECT id FROM jobs WHERE (status = 'failed') <>"
        f" (SELECT count(*) FROM dead_letters WHERE job_id = jobs.id AND state IN {LIVE})",
        "a letter that is still replaying": "SELECT id FROM dead_letters WHERE state = 'replaying'",
        "a letter that does not follow its job's last one": "SELECT id FROM dead_letters WHERE (round > 1) <> (follows IS NOT NULL)",
        "an outcome that is not so": "SELECT letter.id FROM letters letter JOIN letters later ON later.follows = letter.id"
        " WHERE letter.outcome <> CASE later.fingerprint WHEN letter.fingerprint THEN 'same' ELSE 'other' END",
    }
    for told, sql in checks.items():
        if rows := read(sql):
            found.append(f"{told}: {rows}")
    judge = Judge(world.store, needs_evidence=world.needs_evidence)
    return found + judge.judge() + _log_breaches(world) + _edit_breaches(world) + _tally_breaches(world)


def _log_breaches(world: ReplayWorld) -> list[str]:
    """Say where the log of operators and what happened to letters differ."""
    told = "SELECT coalesce(sum(letters), 0) FROM operations WHERE verb = ?"
    happened = Counter(
        _verb_of(event.was, event.state, event.replay)
        for event in events(world.store)
        if event.kind == "letter" and event.was != event.state
    )
    happened["edit"] = cast("int", world.store.read("SELECT count(*) FROM edits")[0][0])
    logged = {
        verb: world.store.read(told, (verb,))[0][0] for verb in ("discard", "restore", "remediate", "edit")
    }
    retried = "SELECT count(*) FROM operations WHERE verb = 'retry' AND subject_kind = 'letter'"
    logged["retry"] = world.store.read(retried)[0][0]
    return [
        f"{times} letters have their {verb} in the log, and {happened[verb]} had it"
        for verb, times in logged.items()
        if times != happened[verb]
    ]


def _verb_of(was: str | None, state: str, replay: int | None) -> str | None:
    if state == "open":
        return "restore" if was == "discarded" else None
    if state == "replaying":
        return "retry" if replay is None else None
    return {"discarded": "discard", "ready": "remediate"}.get(state)


def _edit_breaches(world: ReplayWorld) -> list[str]:
    """Say which round of which job was given something else than the last edit before its release, or what it had without one."""
    rows = world.store.read("SELECT id, job_id FROM dead_letters")
    jobs = {cast("int", letter): cast("int", job) for letter, job in rows}
    edited: dict[int, str] = {}
    wanted = {(job, 1): f'"{SECRET}"' for job in range(1, world.jobs + 1)}
    rounds: Counter[int] = Counter()
    for event in events(world.store):
        if event.kind == "edit":
            edited[event.subject] = event.state
        elif event.is_release:
            job = jobs[event.subject]
            rounds[job] += 1
            before = wanted[job, rounds[job]]
            wanted[job, rounds[job] + 1] = edited.get(event.subject, before)
    return [
        f"job {job} was given {text!r} in round {number}, and not {wanted.get((job, number))}"
        for job, number, text in sorted(world.given)
        if wanted.get((job, number)) != f'"{text}"'
    ]


def _tally_breaches(world: ReplayWorld) -> list[str]:
    read = world.store.read
    found = []
    counted: Counter[tuple[object, ...]] = Counter()
    for group, state, is_taken, letters in read("SELECT * FROM letters_by_group WHERE letters <> 0"):
        counted[group, state, bool(is_taken)] += cast("int", letters)
    real = Counter(
        (group, state, replay is not None and state in {"open", "triaged", "ready"})
        for group, state, replay in read("SELECT group_id, state, replay_id FROM dead_letters")
    )
    if counted != real:
        found.append(f"the groups count {dict(counted)}, and there are {dict(real)}")
    tallied = Counter({(c, s): n for c, s, n in read("SELECT * FROM letters_by_replay") if n})
    standing = Counter(
        (replay, outcome or ("replaying" if state == "replaying" else "waiting"))
        for replay, outcome, state in read(
            "SELECT replay_id, outcome, state FROM dead_letters WHERE replay_id IS NOT NULL"
        )
    )
    if tallied != standing:
        found.append(f"the replays count {dict(tallied)}, and there are {dict(standing)}")
    return found
