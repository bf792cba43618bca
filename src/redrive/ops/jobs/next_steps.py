# SPDX-License-Identifier: Apache-2.0
"""What to do next about a job, with the command to type; by the state it and its dead letter are in.

The hint about a code comes from the application's code set if that has one, and from the taxonomy otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cache, partial

from redrive.core.diagnosis import remediation_hint, suggested_diagnosis
from redrive.core.units import utc_text
from redrive.engine.replay.rules import recorded
from redrive.store.reader import Reader
from redrive.store.statements.jobs import JobFacts
from redrive.store.statements.letters import DeadLetter

_WAITS = {
    None: "It waits for its turn",
    "retry": "It waits for its next attempt",
    "hold": "It is held until what it depends on is back",
    "crashed": "It waits to be run again after its worker was lost",
    "paused": "It waits because its run is paused",
    "replay": "It was replayed and waits for its turn",
}


class Hints:
    """What to do about codes; the store is asked once for each pipeline."""

    def __init__(self, store: Reader) -> None:
        self._recorded = cache(partial(recorded, store))

    def about(self, pipeline: str, stage: str, code: str, category: str) -> str:
        """Return what to do about a code that failed there."""
        for own in self._recorded(pipeline).hints:
            if own.code == code and (not own.stages or stage in own.stages):
                return own.hint
        return remediation_hint(code, category)


def next_steps(
    facts: JobFacts,
    letter: DeadLetter | None,
    hint: str | None = None,
    *,
    came_empty: bool = False,
    limited_by: Sequence[str] = (),
) -> list[str]:
    """Return what to do next, most urgent first; `letter` is the pending one, `hint` what to do about its code.

    A job without values can never be replayed: they were erased, unless it `came_empty` by an import. `limited_by` has
    the limits for which a queued one waits.
    """
    match facts.status:
        case "queued":
            return _of_queued(facts, limited_by)
        case "processing":
            return [
                f"Worker {facts.worker} runs it now: redrive events --job {facts.id} --follow shows how it ends."
            ]
        case "complete" | "skipped":
            return ["Nothing is to be done."]
        case "cancelled":
            return ["It was cancelled; submit it again if it is still wanted."]
        case _:
            return [] if letter is None else _of_failed(facts, letter, hint, came_empty=came_empty)


def steps_for_letter(letter: DeadLetter, hint: str | None = None) -> list[str]:
    """Return what to do next about a dead letter; without a `hint` about its code, that of the taxonomy."""
    number = letter.id
    if letter.replay is not None and letter.state in {"open", "triaged", "ready"}:
        return [
            f"Replay {letter.replay} has marked it: redrive replay status {letter.replay} shows the progress."
        ]
    match letter.state:
        case "open":
            hint = hint or remediation_hint(letter.code, letter.category)
            probably = suggested_diagnosis(letter.category, letter.code)
            steps = [hint, f"Record the cause: redrive dlq triage {number} --diagnosis {probably.value}"]
            came_back = f"a replay failed again with the same permanent code, {letter.code}"
            why = f"It is escalated: {came_back}, so the last fix did not work."
            return [why, *steps] if letter.is_escalated else steps
        case "triaged":
            return [f'Record what was done about it: redrive dlq remediate {number} --evidence "..." --safe']
        case "ready":
            return [f"Run it again: redrive job retry {letter.job}"]
        case "discarded":
            return [f"It was discarded, nothing is to be done; redrive dlq restore {number} undoes it."]
        case _:
            return []


def gone_for_good(erased_at: datetime) -> str:
    """Return that a job cannot be replayed because its values were erased, and what to do instead."""
    erased = f"its values were erased at {utc_text(erased_at)}"
    return f"It can never be replayed: {erased}. Submit it anew if it is still wanted."


def _of_failed(facts: JobFacts, letter: DeadLetter, hint: str | None, *, came_empty: bool) -> list[str]:
    steps = steps_for_letter(letter, hint)
    if facts.erased_at is None or letter.state not in {"open", "triaged", "ready", "discarded"}:
        return steps
    if came_empty:
        supply = f"It was imported without its values; supply one: redrive dlq edit {letter.id} --input FILE"
        # A discarded letter cannot be edited; it has to be restored first.
        return steps if letter.state == "discarded" else [supply, *steps]
    gone = gone_for_good(facts.erased_at)
    if letter.state == "discarded":
        return [gone, "It was discarded, nothing is to be done."]
    if letter.replay is not None:
        number = letter.replay
        return [gone, f"Replay {number} has marked it, and skips it: redrive replay status {number}"]
    return [gone, f"Close its dead letter: redrive dlq discard {letter.id}"]


def _of_queued(facts: JobFacts, limited_by: Sequence[str]) -> list[str]:
    why = _WAITS.get(facts.waiting, f"It waits ({facts.waiting})")
    steps = [f"{why}; it is due at {utc_text(facts.run_at)}."]
    if facts.waiting == "hold":
        steps.append("See what holds it: redrive breaker list")
    if limited_by:
        steps.append(f"It waits for {' and '.join(limited_by)}: redrive limit list")
    steps.append("See that a worker serves its pipeline: redrive pipeline list")
    return steps
