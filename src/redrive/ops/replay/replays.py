# SPDX-License-Identifier: Apache-2.0
"""Replays of many dead letters: start, pause, resume, cancel and close.

Starting only stores the filter, the cut-off that excludes later letters, and the count that was confirmed. A worker that serves the
pipeline does the rest (`engine/replay`). Every act adds its line to the operator log in its own transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from redrive.core.arguments import stored
from redrive.core.replay import Counts, Plan
from redrive.core.stop_reason import OperatorStop, encode_stop_reason
from redrive.engine.pipeline.codec import storable
from redrive.engine.replay.driver import unmark
from redrive.engine.replay.filter import LetterFilter
from redrive.engine.replay.record import Replay, ReplayOptions, counts_of, replay_of
from redrive.engine.runtime import CURRENT
from redrive.errors import EvidenceMissingError, ReplayNotFoundError, ReplayRefusedError
from redrive.ops.audit import Actor, Subject, kept_change, safe_text
from redrive.ops.letters.filter import filter_options
from redrive.ops.letters.freeze import id_steps
from redrive.ops.letters.job_values import LETTERS_MAX, values_of_letters, values_of_replay
from redrive.ops.letters.preview import ReplayPreview, preview_replay
from redrive.ops.suggest import LAST_ID
from redrive.store.protocol import Store
from redrive.store.reader import Reader
from redrive.store.records import Step
from redrive.store.statements import replays as replay_sql

NOTE_MAX: Final = 4_000


def start(
    store: Store, which: LetterFilter, by: Actor, *, plan: Plan, seen: ReplayPreview | None = None
) -> Replay:
    """Start a replay of the letters that match now, or did when `seen` was counted; later ones are not part of it.

    Raises:
        EvidenceMissingError: the rules require evidence, and some of the letters have none.
        ReplayRefusedError: there is nothing to replay, or another replay is still marking its letters.
    """
    found = seen or preview_replay(store, which)
    if found.lacking:
        raise _lacking(which, found)
    now = CURRENT.get().clock.wall()
    which = msgspec.structs.replace(found.frozen.which, pipeline=found.pipeline)
    options = ReplayOptions(plan=plan, is_evidence_optional=found.rules.evidence == "optional")
    add = replay_sql.add_replay(
        pipeline=found.pipeline,
        filter=msgspec.json.encode(which),
        options=msgspec.json.encode(options),
        cutoff=found.frozen.cutoff,
        marked_to=_before_first(store, which),
        expected=found.letters,
        pardoned=msgspec.json.encode(Counts()),
        actor=storable(by.text),
        now=now,
        moves=found.frozen.moves,
    )
    change = {"filter": msgspec.to_builtins(which), "plan": msgspec.to_builtins(plan)}
    by = by.hiding(values_of_letters(store, _few_of(store, which, found), by.reason))
    act = by.line("replay", Subject("replay", "made with this line"))
    log = replay_sql.log_replay_start(
        at=act.at,
        actor=act.actor,
        verb=act.verb,
        reason=act.reason,
        letters=found.letters,
        change=kept_change(change) or "{}",
    )
    answer = store.apply(add.touching(1), log)
    if answer is None:
        raise ReplayRefusedError(
            subject=f"replay of {found.pipeline}",
            problem="another replay of this pipeline is still marking its letters",
            fix="See redrive replay list. Marking takes a moment, and a worker that serves the pipeline;"
            " a paused replay has to be resumed or cancelled first.",
        )
    return get_replay(store, answer[0][0])


def pause(store: Store, replay: int, by: Actor) -> Replay:
    """Release nothing more until it is resumed; released jobs continue."""
    known = get_replay(store, replay)
    reason = encode_stop_reason(OperatorStop(act="paused", actor=storable(by.text)))
    step = replay_sql.pause_replay(reason=reason, replay=replay).touching(1)
    if store.apply(_log(store, known, by, "pause", "paused"), step) is None:
        raise _not_now(known, "paused", "Only a replay that is marking or running can be paused.")
    return get_replay(store, replay)


def resume(store: Store, replay: int, by: Actor) -> Replay:
    """Continue a replay that was paused or stopped itself; earlier failures do not stop it again."""
    known = get_replay(store, replay)
    # Failures during a mere pause still count.
    pardoned = msgspec.json.encode(counts_of(store, replay) if known.status == "stopped" else known.pardoned)
    step = replay_sql.resume_replay(
        pardoned=pardoned, now=CURRENT.get().clock.wall(), replay=replay
    ).touching(1)
    if store.apply(_log(store, known, by, "resume", "running"), step) is None:
        raise _not_now(known, "resumed", "Only a replay that was paused, or stopped itself, can be resumed.")
    return get_replay(store, replay)


def cancel(store: Store, replay: int, by: Actor) -> Replay:
    """End a replay: letters that were not released are free again, released jobs continue."""
    known = get_replay(store, replay)
    reason = encode_stop_reason(OperatorStop(act="cancelled", actor=storable(by.text)))
    step = replay_sql.cancel_replay(reason=reason, replay=replay).touching(1)
    log = _log(store, known, by, "cancel", "cancelled")
    if store.apply(log, step) is None and known.status != "cancelling":
        raise _not_now(known, "cancelled", "It has ended already.")
    while not unmark(store, replay, CURRENT.get().clock.wall()):
        pass
    return get_replay(store, replay)


def close(store: Store, replay: int, by: Actor, *, note: str) -> Replay:
    """Close a replay that has ended, with a note on how it was resolved."""
    given = note.strip()
    stored("note", storable(given))
    known = get_replay(store, replay)
    kept = safe_text(given, values_of_replay(store, known, given))[:NOTE_MAX]
    if not kept:
        raise ReplayRefusedError(
            subject=f"replay {replay}",
            problem="the note is empty",
            fix='--note "the new key works; 40 invoices recovered", for example.',
        )
    step = replay_sql.close_replay(note=kept, now=CURRENT.get().clock.wall(), replay=replay).touching(1)
    act = Actor(by.name, kept, by.user).line("close", Subject("replay", replay))
    log = replay_sql.log_replay(act=act, after="closed", replay=replay)
    if store.apply(log, step) is None:
        problem = "It is closed already." if known.closed_at else "Wait until it has ended, or cancel it."
        raise _not_now(known, "closed", problem)
    return get_replay(store, replay)


def get_replay(store: Reader, replay: int) -> Replay:
    """Return a replay; raises ReplayNotFoundError whose hint lists ids close to it."""
    rows = store.query(replay_sql.replay(replay=replay)) if 0 < replay < LAST_ID else []
    if not rows:
        near = store.query(replay_sql.nearest_replays(replay=min(abs(replay), LAST_ID)))
        hint = (
            f"There are: {', '.join(map(str, near))}." if near else "There are no replays in this database."
        )
        raise ReplayNotFoundError(replay=replay, hint=hint)
    return replay_of(rows[0])


def list_replays(
    store: Store, *, pipeline: str | None = None, before: int | None = None, limit: int = 50
) -> list[Replay]:
    """Return replays, newest first."""
    end = LAST_ID if before is None else before
    return [
        replay_of(row) for row in store.query(replay_sql.replays(before=end, pipeline=pipeline, limit=limit))
    ]


def _log(store: Store, replay: Replay, by: Actor, verb: str, after: str) -> Step:
    """Return the step that logs an act on a replay, without the values of its letters.

    It goes before the act: it reads the state before in the same transaction.
    """
    by = by.hiding(values_of_replay(store, replay, by.reason))
    act = by.line(verb, Subject("replay", replay.id))
    return replay_sql.log_replay(act=act, after=after, replay=replay.id)


def _few_of(store: Store, which: LetterFilter, found: ReplayPreview) -> Iterator[int]:
    """Yield the letters of a replay, if they are few."""
    for state in found.by_state if found.letters <= LETTERS_MAX else ():
        for ids in id_steps(store, msgspec.structs.replace(which, state=state), found.frozen.cutoff):
            yield from ids


def _before_first(store: Store, which: LetterFilter) -> int:
    """Return an id below those of all letters that match: marking begins there."""
    (first,) = store.query(
        replay_sql.first_letter_of(
            pipeline=which.pipeline,
            stage=which.stage,
            code=which.code,
            category=which.category,
            fingerprint=which.group,
        )
    )
    return 0 if first is None else first - 1


def _lacking(which: LetterFilter, found: ReplayPreview) -> EvidenceMissingError:
    where = filter_options(which) or f"--pipeline {found.pipeline}"
    # A triage moves letters out of the state that the filter names, so one command records both.
    record = f'redrive dlq remediate {where} --diagnosis ... --evidence "..." --safe'
    is_among_ready = which.ids is None and which.state is None
    others = "; or replay only those that have it, with --state ready" if is_among_ready else ""
    return EvidenceMissingError(
        subject=f"replay of {found.pipeline}",
        problem=f"{found.lacking} of {found.letters} letters have no evidence that their cause is fixed",
        fix=f"Record it: {record}{others}.",
    )


def _not_now(replay: Replay, verb: str, fix: str) -> ReplayRefusedError:
    return ReplayRefusedError(
        subject=f"replay {replay.id}", problem=f"it is {replay.status} and cannot be {verb}", fix=fix
    )
