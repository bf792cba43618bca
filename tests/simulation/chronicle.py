# SPDX-License-Identifier: Apache-2.0
"""Everything that ever happened to letters, replays and edits, in its order, and what a replay may not have done by it.

The store's own tables say how things ended; the chronicle says how they came to it. It is written by triggers of this connection
alone, in the transactions of the changes themselves, and is part of no schema. What a replay was started for is worked out here
from what its letters were when somebody looked, and not by any statement of the store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple, cast

import msgspec

from redrive.core.replay import BURST_SECONDS, HALF, STRICT_MAX, Plan
from redrive.engine.replay.filter import LetterFilter
from redrive.engine.replay.record import ReplayOptions
from redrive.store.sqlite.store import SqliteStore

FREE = frozenset({"open", "triaged", "ready"})
_ENDED = frozenset({"resolved", "returned"})
_TABLES = """
CREATE TEMP TABLE chronicle (id INTEGER PRIMARY KEY, at REAL DEFAULT (world_now()), kind TEXT, subject INTEGER, was TEXT, state TEXT,
    was_of INTEGER, replay INTEGER, outcome TEXT, has_evidence INTEGER);
CREATE TEMP TRIGGER letter_came AFTER INSERT ON dead_letters BEGIN
    INSERT INTO chronicle (kind, subject, state) VALUES ('letter', NEW.id, NEW.state);
END;
CREATE TEMP TRIGGER letter_moved AFTER UPDATE ON dead_letters WHEN NEW.state <> OLD.state OR NEW.replay_id IS NOT OLD.replay_id
BEGIN
    INSERT INTO chronicle (kind, subject, was, state, was_of, replay, outcome, has_evidence)
    VALUES ('letter', NEW.id, OLD.state, NEW.state, OLD.replay_id, NEW.replay_id, NEW.outcome, NEW.evidence IS NOT NULL);
END;
CREATE TEMP TRIGGER replay_came AFTER INSERT ON replays BEGIN
    INSERT INTO chronicle (kind, subject, state) VALUES ('replay', NEW.id, NEW.status);
END;
CREATE TEMP TRIGGER replay_moved AFTER UPDATE ON replays WHEN NEW.status <> OLD.status BEGIN
    INSERT INTO chronicle (kind, subject, was, state) VALUES ('replay', NEW.id, OLD.status, NEW.status);
END;
CREATE TEMP TRIGGER edit_came AFTER INSERT ON edits BEGIN
    INSERT INTO chronicle (kind, subject, state) VALUES ('edit', NEW.letter_id, CAST(NEW.after AS TEXT));
END;
"""


class Event(NamedTuple):
    """One change: of a letter, of the status of a replay, or an edit of a letter, whose state is the new value."""

    id: int
    at: float
    kind: str
    subject: int
    was: str | None
    state: str
    was_of: int | None
    replay: int | None
    outcome: str | None
    has_evidence: int | None

    @property
    def is_release(self) -> bool:
        """Whether a letter went on its way."""
        return self.kind == "letter" and self.state == "replaying" != self.was


def keep_chronicle(store: SqliteStore, now: Callable[[], float]) -> None:
    """Write down from now on what happens."""
    with store._mutex:
        store._db.create_function("world_now", 0, now)
        store._db.executescript(_TABLES)


def present(store: SqliteStore) -> int:
    """Return the place in the chronicle at which things are now."""
    return cast("int", store.read("SELECT coalesce(max(id), 0) FROM chronicle")[0][0])


def events(store: SqliteStore, after: int = 0) -> list[Event]:
    """Return what happened after a place in the chronicle."""
    return [Event(*row) for row in store.read("SELECT * FROM chronicle WHERE id > ? ORDER BY id", (after,))]  # type: ignore[arg-type]


@dataclass
class Course:
    """One replay as the chronicle tells it."""

    id: int
    which: LetterFilter
    plan: Plan
    cutoff: int
    expected: int
    looked_at: int
    """The place in the chronicle at which its letters were counted."""
    status: str = ""
    meant: frozenset[int] = frozenset()
    """Letters it was started for."""
    stirred: set[int] = field(default_factory=set)
    """Those of them that somebody else moved before it took them."""
    barred: set[int] = field(default_factory=set)
    """Those of these that were for a moment not what was asked for: they may not come back into it."""
    taken: set[int] = field(default_factory=set)
    parted: set[int] = field(default_factory=set)
    """Letters it took, and then released or let go."""
    releases: list[float] = field(default_factory=list)
    on_way: set[int] = field(default_factory=set)
    ended: Counter[str | None] = field(default_factory=Counter)
    pardoned: Counter[str | None] = field(default_factory=Counter)

    @property
    def name(self) -> str:
        """What it is called in a breach."""
        return f"replay {self.id}"

    def trouble(self) -> str | None:
        """Say why it should have stopped itself before it released any more; None when there is no reason."""
        fresh = self.ended - self.pardoned
        strict = sum(size for size in self.plan.canary if size <= STRICT_MAX)
        if fresh["same"] and len(self.releases) <= strict:
            return f"{fresh['same']} of its canaries had failed as before"
        if not self.on_way and fresh["same"] + fresh["other"] > HALF * fresh.total():
            return f"of {fresh.total()} most had failed again"
        return None


class Judge:
    """What goes through the chronicle once, and says where a replay did what it may not do."""

    def __init__(self, store: SqliteStore, *, needs_evidence: bool) -> None:
        self.found: list[str] = []
        self._needs_evidence = needs_evidence
        self._events = events(store)
        self._now: dict[int, tuple[str, int | None]] = {}
        of_letter = store.read("SELECT id, fingerprint FROM letters")
        self._groups = {cast("int", letter): str(group) for letter, group in of_letter}
        self._skips = set(store.read("SELECT replay_id, letter_id FROM replay_skips WHERE kind <> ''"))
        rows = store.read("SELECT id, filter, options, cutoff, expected, actor FROM replays")
        self.courses = {cast("int", row[0]): _course(*row) for row in rows}

    def judge(self) -> list[str]:
        """Return every breach of a promise, in the order in which they happened."""
        before: Event | None = None
        for event in self._events:
            if event.kind == "letter":
                self._letter(event, is_batch=before is not None and _is_one_batch(before, event))
            elif event.kind == "replay":
                self._replay(event)
            before = event
            for course in self.courses.values():
                if course.looked_at == event.id:
                    course.meant = self._meant(course)
        for course in self.courses.values():
            self.found += _account(course)
        return self.found

    def _is_asked_for(self, course: Course, letter: int) -> bool:
        state, replay = self._now[letter]
        which = course.which
        if replay is not None or state not in (FREE if which.state is None else {which.state}):
            return False
        is_like_it = which.group in {None, self._groups[letter]} and (
            which.ids is None or letter in which.ids
        )
        return letter <= course.cutoff and is_like_it

    def _meant(self, course: Course) -> frozenset[int]:
        """Return what a replay would take now; where evidence is asked for, letters without it are never part of one."""
        found = (each for each in self._now if self._is_asked_for(course, each))
        return frozenset(each for each in found if not self._needs_evidence or self._now[each][0] == "ready")

    def _replay(self, event: Event) -> None:
        course = self.courses[event.subject]
        course.status = event.state
        fresh = course.ended - course.pardoned
        if event.state == "stopped" and not fresh["same"] + fresh["other"]:
            self.found.append(f"{course.name} stopped itself, and nothing had failed")
        if (event.was, event.state) == ("stopped", "running"):
            course.pardoned = course.ended.copy()
        if event.state in {"cancelled", "done"} and (kept := course.taken - course.parted):
            self.found.append(
                f"{course.name} is {event.state} and neither released nor let go of {sorted(kept)}"
            )

    def _letter(self, event: Event, *, is_batch: bool) -> None:
        letter = event.subject
        self._now[letter] = (event.state, event.replay)
        if event.replay is not None and event.replay != event.was_of:
            self._take(self.courses[event.replay], letter)
        elif event.was_of is not None and event.replay is None:
            self._let_go(self.courses[event.was_of], event)
        if event.is_release:
            self._release(event, is_batch=is_batch)
        elif event.state in _ENDED and event.replay is not None:
            course = self.courses[event.replay]
            course.on_way.discard(letter)
            course.ended[event.outcome] += 1
        self._stir(event)

    def _stir(self, event: Event) -> None:
        for course in self.courses.values():
            is_started = 0 < course.looked_at < event.id
            if is_started and event.subject in course.meant and event.subject not in course.taken:
                course.stirred.add(event.subject)
                if not self._is_asked_for(course, event.subject):
                    course.barred.add(event.subject)

    def _take(self, course: Course, letter: int) -> None:
        if letter not in course.meant:
            self.found.append(
                f"{course.name} took letter {letter}, which was not asked for when it was started"
            )
        elif letter in course.barred:
            self.found.append(f"{course.name} took letter {letter}, which was away in between")
        course.taken.add(letter)

    def _let_go(self, course: Course, event: Event) -> None:
        course.parted.add(event.subject)
        is_freed = course.status in {"cancelling", "cancelled"} and event.state in FREE
        if (course.id, event.subject) not in self._skips and not is_freed:
            self.found.append(f"{course.name} let go of letter {event.subject} and does not say why")

    def _release(self, event: Event, *, is_batch: bool) -> None:
        letter = event.subject
        if event.was not in FREE:
            self.found.append(f"letter {letter} was released although it was {event.was}")
        if self._needs_evidence and not (event.was == "ready" and event.has_evidence):
            self.found.append(f"letter {letter} was released without evidence")
        if event.replay is None:
            return
        course = self.courses[event.replay]
        if course.status != "running":
            self.found.append(f"{course.name} released letter {letter} while it was {course.status}")
        if not is_batch and (trouble := course.trouble()) is not None:
            self.found.append(f"{course.name} went on although {trouble}")
        if len(course.releases) in set(accumulate(course.plan.canary)) and course.on_way:
            self.found.append(f"{course.name} began a step before the last one had ended")
        course.releases.append(event.at)
        course.on_way.add(letter)
        course.parted.add(letter)


def _course(
    number: object, frozen: object, options: object, cutoff: object, expected: object, actor: object
) -> Course:
    return Course(
        id=cast("int", number),
        which=msgspec.json.decode(cast("bytes", frozen), type=LetterFilter),
        plan=msgspec.json.decode(cast("bytes", options), type=ReplayOptions).plan,
        cutoff=cast("int", cutoff),
        expected=cast("int", expected),
        # Whoever starts one signs with the place in the chronicle.
        looked_at=int(str(actor).rpartition(" ")[2]),
    )


def _is_one_batch(before: Event, event: Event) -> bool:
    return before.is_release and event.is_release and before.replay == event.replay


def _account(course: Course) -> Iterator[str]:
    """Say which letters of a replay are unaccounted for, and whether it was faster than it may be."""
    if len(course.meant) != course.expected:
        yield f"{course.name} was said to be about {course.expected} letters, and there were {len(course.meant)}"
    if len(course.taken) > course.expected:
        yield f"{course.name} took {len(course.taken)} letters of {course.expected}"
    missed = course.meant - course.taken - course.stirred
    if missed and course.status != "cancelled":
        yield f"{course.name} forgot {sorted(missed)}"
    if (rate := course.plan.rate) is None:
        return
    for first, start in enumerate(course.releases):
        for last, end in enumerate(course.releases[first:], first):
            if last - first > rate * (end - start + BURST_SECONDS) + 1e-6:
                yield f"{course.name} released {last - first + 1} letters in {end - start:g} s at a rate of {rate:g}"
                return
