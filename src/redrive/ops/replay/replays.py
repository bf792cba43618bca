# SPDX-License-Identifier: Apache-2.0
"""Replaying many dead letters at once: starting a replay, and pausing, resuming, cancelling and closing it.

Starting only writes down what is meant: the filter, the cut-off that keeps newcomers out, and how many letters were shown. A worker
that serves the pipeline does the rest (`engine/replay`). Every act is in the operator log, in the transaction that does it.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, cast

import msgspec

from redrive.core.lifecycle import LetterState
from redrive.core.replay import Counts, Plan, ReplayRules
from redrive.engine.pipeline.codec import storable
from redrive.engine.replay.campaign import Options, Replay, counts_of, replay_of, unmark
from redrive.engine.replay.filter import LetterFilter
from redrive.engine.replay.rules import rules_of
from redrive.engine.runtime import CURRENT
from redrive.errors import EvidenceMissingError, ReplayNotFoundError, ReplayRefusedError
from redrive.ops.audit import Actor, safe_text
from redrive.ops.jobs.inspect import instant
from redrive.ops.letters.freeze import FrozenSet, freeze, frozen_steps
from redrive.ops.letters.own_values import LETTERS_MAX, values_of_letters, values_of_replay
from redrive.store.protocol import Row, Step, Store, listed

NOTE_MAX: Final = 4_000
FREE: Final = (LetterState.OPEN, LetterState.TRIAGED, LetterState.READY)
"""States from which a letter can be replayed, if the rules allow it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPreview:
    """What a replay would take, counted before anything is done."""

    pipeline: str
    letters: int
    """How many would be replayed."""
    by_state: dict[str, int]
    taken: int
    """How many more belong to another replay that has not ended."""
    lacking: int
    """How many of `letters` have no evidence although the rules ask for it."""
    rules: ReplayRules
    cutoff: int
    """The last letter that can be part of it."""
    moves: int
    """The last act after which a letter can have come into it."""


def preview_replay(store: Store, which: LetterFilter) -> ReplayPreview:
    """Count what a replay would take; raises ReplayRefusedError when that is nothing, or belongs to several pipelines."""
    # Before anything is counted: what is moved meanwhile is left out, and never more replayed than was shown.
    cutoff, moves = store.query("last_letter")[0]
    by_pipeline: dict[str, Counter[str]] = {}
    taken = ended = 0
    for pipeline, state, is_taken, letters in _census(store, which):
        if state not in FREE:
            ended += cast("int", letters)
        elif is_taken:
            taken += cast("int", letters)
        else:
            by_pipeline.setdefault(str(pipeline), Counter())[str(state)] += cast("int", letters)
    if not by_pipeline:
        raise _nothing(which, taken=taken, ended=ended)
    if len(by_pipeline) > 1:
        raise ReplayRefusedError(
            subject="replay",
            problem=f"these letters belong to several pipelines: {', '.join(sorted(by_pipeline))}",
            fix="A replay is about one pipeline; name it with --pipeline.",
        )
    ((pipeline, by_state),) = by_pipeline.items()
    rules = rules_of(store, pipeline)
    letters = sum(by_state.values())
    lacking = letters - by_state.get(LetterState.READY, 0) if rules.evidence == "required" else 0
    return ReplayPreview(
        pipeline=pipeline,
        letters=letters,
        by_state=dict(by_state),
        taken=taken,
        lacking=lacking,
        rules=rules,
        cutoff=cast("int", cutoff),
        moves=cast("int", moves),
    )


def start(
    store: Store, which: LetterFilter, by: Actor, *, plan: Plan, seen: ReplayPreview | None = None
) -> Replay:
    """Begin a replay over the letters that are there now, or were when `seen` was counted; later ones are not part of it.

    Raises:
        EvidenceMissingError: the rules ask for evidence, and some of the letters have none.
        ReplayRefusedError: there is nothing to replay, or another replay is just taking its letters.
    """
    found = seen or preview_replay(store, which)
    if found.lacking:
        raise _lacking(which, found)
    now = CURRENT.get().clock.wall()
    which = msgspec.structs.replace(which, pipeline=found.pipeline)
    options = Options(plan=plan, is_evidence_optional=found.rules.evidence == "optional")
    values = (
        found.pipeline,
        msgspec.json.encode(which),
        msgspec.json.encode(options),
        found.cutoff,
        _before_first(store, which),
        found.letters,
        msgspec.json.encode(Counts()),
        storable(by.name),
        now,
        found.moves,
    )
    change = {"filter": msgspec.to_builtins(which), "plan": msgspec.to_builtins(plan)}
    by = by.hiding(values_of_letters(store, _few_of(store, which, found), by.reason))
    at, actor, verb, _, reason, letters, kept = by.log_letters(
        "replay", "replay", letters=found.letters, change=change
    ).parameters
    log = Step("log_campaign", (at, actor, verb, reason, letters, kept))
    answer = store.apply(Step("add_campaign", values, rows=1), log)
    if answer is None:
        raise ReplayRefusedError(
            subject=f"replay of {found.pipeline}",
            problem="another replay of this pipeline is just taking its letters",
            fix="Look at redrive replay list; it takes a moment, and a worker that serves the pipeline."
            " One that was paused has to be resumed or cancelled first.",
        )
    return get_replay(store, cast("int", answer[0][0][0]))


def pause(store: Store, replay: int, by: Actor) -> Replay:
    """Release nothing more until it is resumed; what was released goes on."""
    known = get_replay(store, replay)
    why = f"paused by {storable(by.name)}"
    step = Step("pause_campaign", (why, replay), rows=1)
    if store.apply(_log(store, known, by, "pause", "paused"), step) is None:
        raise _not_now(known, "paused", "Only one that is taking its letters or running can be paused.")
    return get_replay(store, replay)


def resume(store: Store, replay: int, by: Actor) -> Replay:
    """Go on with a replay that was paused or stopped itself; what failed before is not held against it again."""
    known = get_replay(store, replay)
    # What failed while it was only paused is news.
    pardoned = msgspec.json.encode(counts_of(store, replay) if known.status == "stopped" else known.pardoned)
    step = Step("resume_campaign", (pardoned, CURRENT.get().clock.wall(), replay), rows=1)
    if store.apply(_log(store, known, by, "resume", "running"), step) is None:
        raise _not_now(known, "resumed", "Only one that was paused, or stopped itself, can go on.")
    return get_replay(store, replay)


def cancel(store: Store, replay: int, by: Actor) -> Replay:
    """End a replay: letters that were not released are free again, those that were go on to their end."""
    known = get_replay(store, replay)
    why = f"cancelled by {storable(by.name)}"
    step = Step("cancel_campaign", (why, replay), rows=1)
    log = _log(store, known, by, "cancel", "cancelled")
    if store.apply(log, step) is None and known.status != "cancelling":
        raise _not_now(known, "cancelled", "It has ended already.")
    while not unmark(store, replay, CURRENT.get().clock.wall()):
        pass
    return get_replay(store, replay)


def close(store: Store, replay: int, by: Actor, *, note: str) -> Replay:
    """Close a replay that has ended, with a note on how it was resolved."""
    known = get_replay(store, replay)
    given = note.strip()
    told = (safe_text(given, values_of_replay(store, known, given)) or "")[:NOTE_MAX]
    if not told:
        raise ReplayRefusedError(
            subject=f"replay {replay}",
            problem="it is closed with a note, and the note is empty",
            fix='--note "the new key works; 40 invoices recovered", for example.',
        )
    step = Step("close_campaign", (told, CURRENT.get().clock.wall(), replay), rows=1)
    log = Step("log_replay", (*Actor(by.name, told).line("close", f"replay {replay}"), "closed", replay))
    if store.apply(log, step) is None:
        problem = "It is closed already." if known.closed_at else "Let it end first, or cancel it."
        raise _not_now(known, "closed", problem)
    return get_replay(store, replay)


def get_replay(store: Store, replay: int) -> Replay:
    """Return a replay; raises ReplayNotFoundError with ids that are near."""
    rows = store.query("campaign", replay) if 0 < replay < 2**62 else []
    if not rows:
        near = [str(row[0]) for row in store.query("near_campaigns", min(abs(replay), 2**62))]
        hint = f"There are: {', '.join(near)}." if near else "None was ever started in this database."
        raise ReplayNotFoundError(replay=replay, hint=hint)
    return replay_of(rows[0])


def list_replays(
    store: Store, *, pipeline: str | None = None, before: int | None = None, limit: int = 50
) -> list[Replay]:
    """Return replays, newest first."""
    end = 2**62 if before is None else before
    return [replay_of(row) for row in store.query("campaigns", end, pipeline, limit)]


def _log(store: Store, replay: Replay, by: Actor, verb: str, after: str) -> Step:
    """Return the step that writes down what is done to a replay, without the values of the letters it is about.

    It goes before the act it is about: how the replay was is read in the same transaction.
    """
    by = by.hiding(values_of_replay(store, replay, by.reason))
    return Step("log_replay", (*by.line(verb, f"replay {replay.id}"), after, replay.id))


def _few_of(store: Store, which: LetterFilter, found: ReplayPreview) -> Iterator[int]:
    """Yield the letters a replay takes, if they are few."""
    states = found.by_state if found.letters <= LETTERS_MAX else ()
    for state in states:
        of_state = msgspec.structs.replace(which, state=state)
        meant = FrozenSet(which=of_state, cutoff=found.cutoff, count=found.letters, by_state={})
        for ids in frozen_steps(store, meant):
            yield from ids


def _census(store: Store, which: LetterFilter) -> Iterator[Row]:
    """Count the letters that are meant by pipeline, state, and whether a replay has them; by groups where that will do."""
    if which.is_by_group:
        yield from store.query("replay_census", *which.census_row())
        return
    if which.owner is None and which.key is None and which.ids is None:
        since = 0.0 if which.since is None else which.since
        until = float("inf") if which.until is None else which.until
        yield from store.query("replay_census_by_time", *which.census_row(), since, until)
        return
    for ids in frozen_steps(store, freeze(store, which)):
        yield from store.query("replay_census_of", listed(ids))


def _before_first(store: Store, which: LetterFilter) -> int:
    """Return an id below those of all letters that are meant: stamping begins there."""
    first = store.query("first_letter_of", *which.census_row()[:5])[0][0]
    return 0 if first is None else cast("int", first) - 1


def _nothing(which: LetterFilter, *, taken: int, ended: int) -> ReplayRefusedError:
    told = [f"{taken} belong to a replay that has not ended"] if taken else []
    told += [f"{ended} are replaying, resolved, returned or discarded"] if ended else []
    problem = "there is nothing to replay" + (f": {' and '.join(told)}" if told else "")
    return ReplayRefusedError(
        subject="replay",
        problem=problem,
        fix="redrive replay list shows who has them; redrive dlq list shows what there is."
        if told or which == LetterFilter()
        else "No dead letter is like that; redrive dlq list shows what there is.",
    )


def _lacking(which: LetterFilter, found: ReplayPreview) -> EvidenceMissingError:
    where = _options_of(which) or f"--pipeline {found.pipeline}"
    others = "" if which.ids is not None else "; or replay only those that have it, with --state ready"
    return EvidenceMissingError(
        subject=f"replay of {found.pipeline}",
        problem=f"{found.lacking} of {found.letters} letters have no evidence that their cause is fixed",
        fix=f'Record it: redrive dlq triage {where} --diagnosis ..., then redrive dlq remediate {where} --evidence "..." --safe'
        f"{others}.",
    )


def _options_of(which: LetterFilter) -> str:
    """Return a filter as it is typed; what it is about and no more, because somebody will vouch for all of it."""
    if which.ids is not None:
        return " ".join(str(each) for each in which.ids)
    given = msgspec.structs.asdict(which)
    named = ("group", "pipeline", "stage", "code", "category", "owner", "key")
    told = [f"--{name} {shlex.quote(str(given[name]))}" for name in named if given[name] is not None]
    times = {"since": which.since, "until": which.until}
    return " ".join(
        told + [f"--{name} {instant(at):%Y-%m-%dT%H:%M:%SZ}" for name, at in times.items() if at is not None]
    )


def _not_now(replay: Replay, verb: str, fix: str) -> ReplayRefusedError:
    return ReplayRefusedError(
        subject=f"replay {replay.id}", problem=f"it is {replay.status} and cannot be {verb}", fix=fix
    )
