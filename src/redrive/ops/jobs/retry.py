# SPDX-License-Identifier: Apache-2.0
"""Retrying one failed job, under the same rules as a replay of many.

The job keeps its identity: it is queued again at the stage that failed, with that stage's stored input, in a new round. Its dead
letter is `replaying` from the same transaction on, and closed by the end of the job.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypedDict, Unpack

import msgspec

from redrive.core.lifecycle import JobState, LetterState
from redrive.core.units import utc_text
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.replay.release import (
    Batch,
    batch_of,
    by_name,
    first_lane_of,
    obstacle_to,
    release_steps,
    start_value,
)
from redrive.engine.replay.rules import recorded, rules_of
from redrive.engine.runtime import CURRENT
from redrive.errors import (
    ConfigurationError,
    EvidenceMissingError,
    NotOwnerError,
    ReplayRefusedError,
    StoreRefusedError,
)
from redrive.ops.audit import Actor, Subject
from redrive.ops.jobs.facts import get_job
from redrive.ops.letters.job_values import values_of_job
from redrive.ops.replay.validation import lost_stage
from redrive.store.protocol import Store
from redrive.store.records import LaneId
from redrive.store.statements import release as release_sql
from redrive.store.statements import triage as triage_sql
from redrive.store.statements.jobs import JobFacts


class RetryOptions(TypedDict, total=False):
    """How a job is to be retried: from its first stage, for its owner, and by which code."""

    from_start: bool
    owner: str | None
    pipelines: Iterable[Pipeline]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """A retry without obstacles."""

    facts: JobFacts
    letter: int
    state: str
    """Of the letter, when the rules were checked."""
    batch: Batch
    first_lane: LaneId | None
    change: str
    """What the log says besides: that an owner acted, and that evidence was asked for and not given; as JSON."""


def check_retry(store: Store, job_id: int, **how: Unpack[RetryOptions]) -> JobFacts:
    """Return the facts of a job that can be retried; raises as `retry_job` would, so that a refusal comes before the question."""
    return _way_of(store, job_id, **how).facts


def retry_job(store: Store, job_id: int, by: Actor, **how: Unpack[RetryOptions]) -> JobFacts:
    """Send a failed job back to the stage that failed, or, with `from_start`, to the first one; return its new facts.

    With `owner`, somebody acts who may touch only their own jobs. With the code of its pipeline in `pipelines`, the value it starts
    with is checked against the present types first.

    Raises:
        ReplayRefusedError: it has not failed, was discarded or erased, belongs to a replay, its key was taken meanwhile, or its
            pipeline has no such stage any more: by the code in `pipelines`, or else by that of the last worker.
        EvidenceMissingError: the rules of its pipeline ask for evidence, and there is none.
        NotOwnerError: it has another owner, or none.
        ConfigurationError: there is code in `pipelines`, and none of it is that of its pipeline.
    """
    way = _way_of(store, job_id, **how)
    by = by.hiding(values_of_job(store, job_id, by.reason))
    now = CURRENT.get().clock.wall()
    steps = release_steps(store, way.batch, replay=None, first_lane=way.first_lane, now=now)
    verb = "restart" if how.get("from_start") else "retry"
    log = release_sql.log_retry(
        act=by.line(verb, Subject("letter", way.letter)),
        change=way.change,
        letter=way.letter,
        state=way.state,
    )
    try:
        taken = store.apply(log.touching(1), *steps)
    except StoreRefusedError as error:
        if error.is_forbidden:
            raise
        taken = None
    if taken is None:
        raise _refused(
            job_id,
            "its state was changed just now",
            f"redrive job show {job_id} shows its current state.",
        )
    return get_job(store, job_id)


def _way_of(
    store: Store,
    job_id: int,
    *,
    from_start: bool = False,
    owner: str | None = None,
    pipelines: Iterable[Pipeline] = (),
) -> _Way:
    """Return how a job can be retried, or raise the obstacle."""
    facts = get_job(store, job_id)
    letter = _free_letter(store, facts)
    # After its state: what a job is in can be seen by whoever knows its id, and is the better reason.
    if owner is not None and owner != facts.owner:
        raise _not_owner(facts, owner)
    code = _code_of(facts, by_name(pipelines))
    batch = batch_of(store.query(release_sql.replay_candidates(ids=[letter[0]], from_start=from_start)))
    (candidate,) = batch.candidates
    value = start_value(store, candidate)
    if value is None:
        # Before the rules: nobody should record evidence for what cannot run again.
        _check_not_gone(store, facts, letter[0])
    is_spared = _check_rules(store, facts, letter, owner)
    obstacle = obstacle_to(candidate, value, code, from_start=from_start)
    if obstacle is not None:
        raise _refused(job_id, obstacle.text, f"redrive dlq show {letter[0]} shows more.")
    stages = recorded(store, facts.pipeline).stages
    if code is None and not from_start and (lost := lost_stage(candidate, stages)) is not None:
        name = f"Restore the stage's name with @stage(name={facts.stage!r})"
        target = "if there is code that has it, name it with --target MODULE:PIPELINE"
        raise _refused(job_id, lost.text, f"{name}; {target}; or begin at the first stage with --from-start.")
    first = first_lane_of(store, code, facts.pipeline) if from_start else None
    if from_start and first is None:
        raise _refused(
            job_id,
            f"several stages of {facts.pipeline} were its first stage at some time",
            "Name the code, which has the present first stage: --target MODULE:PIPELINE.",
        )
    flags = {"as_owner": owner is not None, "without_evidence": is_spared}
    change = msgspec.json.encode({name: True for name, is_set in flags.items() if is_set}).decode()
    number, state = letter
    return _Way(facts=facts, letter=number, state=state, batch=batch, first_lane=first, change=change)


def _code_of(facts: JobFacts, pipelines: Mapping[str, Pipeline]) -> Pipeline | None:
    """Return the code of a job's pipeline; None when no code was named; refuse code of other pipelines alone."""
    if pipelines and facts.pipeline not in pipelines:
        raise ConfigurationError(
            field="pipeline",
            value=", ".join(sorted(pipelines)),
            rule=f"is not the one of job {facts.id}, {facts.pipeline}",
            fix="Name the code of that pipeline, or none.",
        )
    return pipelines.get(facts.pipeline)


def _check_not_gone(store: Store, facts: JobFacts, letter: int) -> None:
    """Refuse a job whose values are gone for good; one that was imported without any may still be given one."""
    if (
        facts.erased_at is None
        or store.query(triage_sql.letter_values(letter=letter, part="payload"))[0].may_be_supplied
    ):
        return
    raise _refused(
        facts.id,
        f"its values were erased at {utc_text(facts.erased_at)}, and cannot be brought back",
        f"Submit it anew if it is still wanted; redrive dlq discard {letter} closes its dead letter.",
    )


def _not_owner(facts: JobFacts, owner: str) -> NotOwnerError:
    """Refuse whoever is not the owner, without naming the owner, whom they may not know."""
    by_evidence = f"an operator may retry it, under the rules of its pipeline: redrive job retry {facts.id}"
    if facts.owner is None:
        problem = f"it has no owner, so {owner!r} does not own it"
        fix = f"It was submitted without an owner; {by_evidence}, without --as-owner."
    else:
        problem = f"it is not owned by {owner!r}"
        fix = f"--actor names who acts. If that is not its owner, {by_evidence}, without --as-owner."
    return NotOwnerError(subject=f"job {facts.id}", problem=problem, fix=fix)


def _free_letter(store: Store, facts: JobFacts) -> tuple[int, str]:
    """Return the letter of a failed job and its state; refuse what cannot be retried."""
    if facts.status != JobState.FAILED:
        raise _refused(facts.id, f"it is {facts.status}", "Only a job that failed can be retried.")
    rows = store.query(release_sql.live_letter(job=facts.id))
    if not rows:
        wrong = "redrive doctor --deep reports what is wrong with this database."
        raise _refused(facts.id, "it has no dead letter", wrong)
    letter, state, replay = rows[0]
    if state == LetterState.DISCARDED:
        restore = f"redrive dlq restore {letter} undoes it."
        raise _refused(facts.id, f"its dead letter {letter} was discarded", restore)
    if replay is not None:
        wait = f"Wait for it, or redrive replay cancel {replay}."
        raise _refused(facts.id, f"its dead letter {letter} belongs to replay {replay}", wait)
    return letter, state


def _refused(job_id: int, problem: str, fix: str) -> ReplayRefusedError:
    return ReplayRefusedError(subject=f"job {job_id}", problem=problem, fix=fix)


def _check_rules(store: Store, facts: JobFacts, letter: tuple[int, str], owner: str | None) -> bool:
    """Refuse what the rules do not allow; return whether only the owner may do it, without evidence."""
    number, state = letter
    rules = rules_of(store, facts.pipeline)
    if rules.evidence == "optional" or state == LetterState.READY:
        return False
    if owner is not None and rules.owner_retry:
        return True
    # Whoever says that they are the owner should hear why that is not enough, and others that it would be.
    own = (
        "" if owner is None else ", of its owner as well: its code does not set ReplayRules(owner_retry=True)"
    )
    may_own = " Its owner needs none, with --as-owner." if rules.owner_retry and facts.owner else ""
    triage = f"redrive dlq triage {number} --diagnosis ..., then " if state == LetterState.OPEN else ""
    record = f'Record it: {triage}redrive dlq remediate {number} --evidence "..." --safe.'
    raise EvidenceMissingError(
        subject=f"job {facts.id}",
        problem=f"there is no evidence that its cause is fixed, and its pipeline asks for that{own}",
        fix=f"{record}{may_own}",
    )
