# SPDX-License-Identifier: Apache-2.0
"""The operator log: who did something by hand, and why.

An act adds its line to the log in its own transaction. Lines are read by subject, by the letters they changed, or newest first.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from redrive.core.arguments import stored, text
from redrive.core.stop_reason import stop_sentence_in
from redrive.engine.pipeline.codec import storable
from redrive.engine.runtime import CURRENT
from redrive.redaction.process import redact, redact_mapping
from redrive.store.reader import Reader
from redrive.store.records import Step
from redrive.store.statements import operations as operation_sql
from redrive.store.statements.letters import DeadLetter
from redrive.store.statements.operations import Operation

Kind: TypeAlias = Literal[
    "breaker", "file", "filter", "group", "job", "jobs", "letter", "limit", "origin", "pipeline", "replay", "run",
    "schedule", "schema",
]  # fmt: skip

SUBJECT_MAX: Final = 600
"""Characters of what an act is about: the log is read by them, and more may not fit into its index."""


class Subject(NamedTuple):
    """What an act is about: of each kind of thing, one by its id or name."""

    kind: Kind
    id: int | str

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts, and why."""

    name: str
    reason: str | None = None
    user: str | None = None
    """The user of the operating system, if that is known: the name is only a claim."""

    def __post_init__(self) -> None:
        # Half of a surrogate pair, as the arguments of a program may have it, is escaped where it is stored.
        text("actor", storable(self.name), fix="Who acts: a name, or an address.")
        stored("reason", None if self.reason is None else storable(self.reason))

    @property
    def text(self) -> str:
        """The name to record, with the user beside it if that is another one."""
        return self.name if self.user in {None, self.name} else f"{self.name} (user {self.user})"

    def hiding(self, values: Mapping[str, str]) -> Actor:
        """Return the same with the values of the jobs redacted from the reason."""
        return Actor(self.name, None if self.reason is None else safe_text(self.reason, values), self.user)

    def line(self, verb: str, subject: Subject) -> operation_sql.Act:
        """Return the first columns of a log line: when, who, verb, subject, reason; redacted."""
        at, actor = CURRENT.get().clock.wall(), safe_text(self.text)
        named = str(subject.id) if isinstance(subject.id, int) else safe_text(subject.id)
        stored(subject.kind, named)
        named = named if len(named) <= SUBJECT_MAX else f"{named[: SUBJECT_MAX - 3]}..."
        reason = None if self.reason is None else safe_text(self.reason)
        return operation_sql.Act(at, actor, verb, subject.kind, named, reason)

    def log(
        self,
        verb: str,
        subject: Subject,
        *,
        letters: int | None = None,
        change: Mapping[str, object] | None = None,
        ids: Iterable[int] = (),
    ) -> Step:
        """Return the step that logs this act: on how many dead letters, and the state before and after, if given; redacted.

        `ids`, in rising order, are those of letters that the subject does not name: they link the act to each letter.
        """
        kept = kept_change(change or {}, ids)
        return operation_sql.log_letters(act=self.line(verb, subject), letters=letters, change=kept)


def kept_change(change: Mapping[str, object], ids: Iterable[int] = ()) -> str | None:
    """Return what an act changed as redacted JSON; None if there is nothing."""
    # Ids are added after the redactor, which might take long numbers for something they are not.
    kept = redact_mapping(change)
    kept |= {"letters": rows} if (rows := unbroken(ids)) else {}
    return msgspec.json.encode(kept).decode() if kept else None


def unbroken(ids: Iterable[int]) -> list[tuple[int, int]]:
    """Return rising ids as the first and last of each unbroken range."""
    rows: list[tuple[int, int]] = []
    for each in ids:
        if rows and each == rows[-1][1] + 1:
            rows[-1] = (rows[-1][0], each)
        else:
            rows.append((each, each))
    return rows


def operations(store: Reader, limit: int = 50, *, before: int | None = None) -> list[Operation]:
    """Return the last operations, oldest first; the id of the first one is the `before` of the page before."""
    rows = (
        store.query(operation_sql.operations(limit=limit))
        if before is None
        else store.query(operation_sql.operations_before(before=before, limit=limit))
    )
    return [_readable(row) for row in rows[::-1]]


def operations_about(store: Reader, job_id: int, letters: Sequence[DeadLetter]) -> list[Operation]:
    """Return the operations on a job and its letters, oldest first: by name, by group or filter, and by a replay of many.

    An act on many letters is included if, and only if, it changed one of these: the log has their ids.
    """
    rows = acts_on(store, Subject("job", job_id))
    for letter in letters:
        rows += acts_on(store, Subject("letter", letter.id))
        failed_at = letter.last_failure_at.timestamp()
        rows += store.query(
            operation_sql.acts_with_letter(letter=letter.id, group=letter.group, failed_at=failed_at)
        )
        if letter.replay is not None:
            rows += bounds_of_replay(store, letter.replay)
    return in_order(rows)


def bounds_of_replay(store: Reader, replay: int) -> list[Operation]:
    """Return the log lines of a replay that are about each of its letters: its start, and its close with the note."""
    return [row for row in acts_on(store, Subject("replay", replay)) if row.verb in {"replay", "close"}]


def acts_on(store: Reader, subject: Subject) -> list[Operation]:
    """Return the log lines of acts on one thing by its name."""
    asked = operation_sql.operations_on(subject_kind=subject.kind, subject_id=str(subject.id))
    return [_readable(row) for row in store.query(asked)]


def in_order(done: Iterable[Operation]) -> list[Operation]:
    """Return operations in order, each once."""
    found = {operation.id: operation for operation in done}
    return [found[each] for each in sorted(found)]


def _readable(row: Operation) -> Operation:
    """Return a log line with the sentence of its reason: that of a replay that stopped itself is stored as a value."""
    sentence = stop_sentence_in(row.reason) if row.verb == "stop" else None
    return row if sentence is None else replace(row, reason=sentence)


def safe_text(text: str, values: Mapping[str, str] | None = None) -> str:
    """Return a text fit to be stored, without the literals in `values`."""
    return redact(storable(text), payload=values)


def present_user() -> str:
    """Return the name of the user this process runs as, whatever the environment says; `unknown` where the system has none."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return "unknown"
