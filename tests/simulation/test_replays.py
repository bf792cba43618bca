# SPDX-License-Identifier: Apache-2.0
"""Replays, edits, discards, cancellations and retries in a world of faults; and deliberate bugs that must be caught."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from redrive.core import replay as replay_core
from redrive.core.replay import Finish, Plan, Release
from redrive.engine.replay import driver
from redrive.engine.replay import release as releasing
from redrive.engine.replay.driver import ReplayDriver, mark_steps
from redrive.engine.replay.record import Replay, ReplayOptions
from redrive.ops.jobs import retry
from redrive.store.records import Step
from redrive.store.sqlite import settle
from redrive.store.sqlite import store as sqlite
from redrive.store.statements import replays as replay_sql

from .replay_world import ReplayWorld, replay_breaches
from .world import CALM, Faults, breaches

Bug = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize("seed", range(6))
def test_whatever_operators_do_every_letter_is_accounted_for(seed: int) -> None:
    world = ReplayWorld(seed)
    world.run()

    assert breaches(world) + replay_breaches(world) == []


def test_replays_bring_work_to_its_end() -> None:
    world = ReplayWorld(3, faults=CALM)
    world.run()

    assert breaches(world) + replay_breaches(world) == []
    assert world.store.read("SELECT count(*) FROM dead_letters WHERE outcome = 'completed'") != [(0,)]
    assert world.store.read("SELECT count(*) FROM dead_letters WHERE state = 'returned'") != [(0,)]


def released_in_two_steps(patch: pytest.MonkeyPatch) -> None:
    plain = sqlite.SqliteStore.apply

    def halved(self: sqlite.SqliteStore, *steps: Step) -> object:
        if any(step.name == "take_letters" for step in steps):
            # The jobs are on their way before their letters know.
            jobs = [step for step in steps if step.name == "replay_jobs"]
            plain(self, *jobs)
            return plain(self, *(step for step in steps if step not in jobs and step.name != "take_letters"))
        return plain(self, *steps)

    patch.setattr(sqlite.SqliteStore, "apply", halved)


def newcomers_are_taken(patch: pytest.MonkeyPatch) -> None:
    plain = ReplayDriver._mark

    def greedy(self: ReplayDriver, replay: Replay, options: ReplayOptions) -> float:
        self._store.query(replay_sql.last_letter())
        wait = plain(self, replay, options)
        beyond = (replay.cutoff, 10**9)
        self._store.apply(*mark_steps(replay.id, beyond, replay.filter, is_evidence_optional=True))
        return wait

    def late(self: ReplayDriver, replay: Replay) -> float:
        beyond = (replay.cutoff, 10**9)
        self._store.apply(*mark_steps(replay.id, beyond, replay.filter, is_evidence_optional=True))
        return release(self, replay)

    release = ReplayDriver._release
    # It marks the same window again and again, so that each letter has to be counted by itself.
    singly = sqlite._SQL["mark_letters"].replace(", counted = counted + 1", "")
    patch.setitem(sqlite._SQL, "mark_letters", singly)
    patch.setitem(sqlite._SQL, "count_marked", "SELECT ?1, ?2, ?3 WHERE FALSE")
    patch.setattr(ReplayDriver, "_mark", greedy)
    patch.setattr(ReplayDriver, "_release", late)


def a_pause_is_overrun(patch: pytest.MonkeyPatch) -> None:
    for name in ("set_next_release", "live_replays"):
        loose = sqlite._SQL[name].replace("AND status = 'running'", "")
        loose = loose.replace(
            "('marking', 'running', 'cancelling')", "('marking', 'running', 'cancelling', 'paused')"
        )
        assert loose != sqlite._SQL[name]
        patch.setitem(sqlite._SQL, name, loose)


def letters_are_not_closed(patch: pytest.MonkeyPatch) -> None:
    plain = ReplayWorld.__post_init__

    def careless(self: ReplayWorld) -> None:
        plain(self)
        with self.store._writing() as db:
            db.execute("DROP TRIGGER jobs_replayed")

    patch.setattr(ReplayWorld, "__post_init__", careless)
    patch.setattr(settle, "_close_recovered", lambda *_: None)


def a_cancelled_replay_keeps_its_letters(patch: pytest.MonkeyPatch) -> None:
    end = sqlite._SQL["end_cancelled"]
    patch.setitem(sqlite._SQL, "end_cancelled", end[: end.index("AND NOT EXISTS")])
    keep = sqlite._SQL["unmark_letters"].replace(
        "SELECT id FROM", "SELECT id FROM (SELECT NULL AS id) WHERE 0 UNION SELECT 0 FROM"
    )
    patch.setitem(sqlite._SQL, "unmark_letters", keep)


def edits_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(releasing, "_edited", lambda *_args: [])


def a_retry_leaves_its_letter_open(patch: pytest.MonkeyPatch) -> None:
    plain = releasing.release_steps

    def careless(*args: object, **kwargs: object) -> list[Step]:
        return [step for step in plain(*args, **kwargs) if step.name != "take_letters"]  # type: ignore[arg-type]

    patch.setattr(retry, "release_steps", careless)


def letters_that_wait_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(driver, "next_turn", lambda *_args, **_kwargs: Finish())


def edits_are_only_logged(patch: pytest.MonkeyPatch) -> None:
    rest = " AND ".join(f"?{number} IS ?{number}" for number in range(2, 9))
    patch.setitem(
        sqlite._SQL,
        "add_edit",
        f"UPDATE dead_letters SET owner = owner WHERE id = ?1 AND {rest} RETURNING id",
    )


def a_discard_does_not_stick(patch: pytest.MonkeyPatch) -> None:
    plain = sqlite._SQL["discard_letters"]
    loose = plain.replace("state = 'discarded', replay_id = NULL", "state = state")
    assert loose != plain
    patch.setitem(sqlite._SQL, "discard_letters", loose)


def skips_are_not_recorded(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(sqlite._SQL, "skip_letter", "SELECT ?, ?, ?, ?, ?, ?, ? WHERE FALSE")


def the_rate_is_ignored(patch: pytest.MonkeyPatch) -> None:
    def at_once(_plan: Plan, letters: int, _next_at: float, now: float) -> Release:
        return Release(letters, now)

    patch.setattr(replay_core, "_paced", at_once)


def a_replay_never_stops_itself(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(replay_core, "_stop_reason", lambda *_: None)


def a_retry_needs_no_evidence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(retry, "_check_rules", lambda *_: None)


def letters_come_into_a_replay_later(patch: pytest.MonkeyPatch) -> None:
    plain = sqlite._SQL["mark_letters"]
    loose = plain.replace("freed <= ?18 AND moved <= ?19", "?19 IS NOT NULL AND ?18 IS NOT NULL")
    assert loose != plain
    patch.setitem(sqlite._SQL, "mark_letters", loose)


BUGS: list[tuple[Bug, Faults]] = [
    (released_in_two_steps, CALM),
    (newcomers_are_taken, CALM),
    (a_pause_is_overrun, CALM),
    (letters_are_not_closed, CALM),
    (a_cancelled_replay_keeps_its_letters, CALM),
    (edits_are_forgotten, CALM),
    (a_retry_leaves_its_letter_open, Faults()),
    (letters_that_wait_are_forgotten, CALM),
    (edits_are_only_logged, CALM),
    (a_discard_does_not_stick, CALM),
    (skips_are_not_recorded, CALM),
    (the_rate_is_ignored, CALM),
    (a_replay_never_stops_itself, CALM),
    (a_retry_needs_no_evidence, CALM),
    (letters_come_into_a_replay_later, CALM),
]


@pytest.mark.parametrize(("bug", "faults"), BUGS, ids=[bug.__name__ for bug, _ in BUGS])
def test_a_deliberate_bug_is_caught(bug: Bug, faults: Faults, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)

    for seed in range(30):
        world = ReplayWorld(seed, faults=faults, patience=1_500)
        world.run()
        if breaches(world) + replay_breaches(world):
            return
    pytest.fail("no seed noticed the bug")
