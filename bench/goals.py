# SPDX-License-Identifier: Apache-2.0
"""What redrive shall reach, as ratios within one run, and whether it did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.measure import Figure


@dataclass(frozen=True, slots=True)
class Goal:
    """Our contender shall need at most 1/`factor` of what the best of the others needs."""

    group: str
    ours: str
    others: tuple[str, ...]
    """How the names of the others begin."""
    factor: float


PEERS = ("Huey", "persist-queue", "DBOS")
STAGES = ("redrive, async", "redrive, sync")

GOALS: tuple[Goal, ...] = (
    *(Goal("one stage, FULL", ours, PEERS, 15) for ours in STAGES),
    *(Goal("one stage, FULL", ours, ("bare",), 0.3) for ours in STAGES),
    *(Goal("one stage, NORMAL", ours, ("Huey",), 5) for ours in STAGES),
    *(Goal("three stages, FULL", ours, ("Huey",), 25) for ours in STAGES),
    *(Goal("three stages, FULL", ours, ("DBOS",), 100) for ours in STAGES),
    *(Goal("fails once, FULL", ours, PEERS, 10) for ours in STAGES),
    Goal("submit", "redrive, submit_many", ("bare",), 100 / 355),
    Goal("slow stages", "redrive, async", ("bare",), 0.8),
    Goal("a file that holds many jobs", "1,000,000 jobs", ("10,000 jobs",), 1 / 1.3),
    Goal("a limit that never bites, processor time", "a rate", ("without",), 1 / 1.1),
    Goal("a limit that never bites, processor time", "a rate and calls at once", ("without",), 1 / 1.1),
    Goal("one stage, 1 worker", "redrive", ("pgqueuer",), 2),
    Goal("one stage, 1 worker", "redrive", ("bare",), 0.5),
    Goal("one stage, 2 workers", "redrive", ("pgqueuer",), 1.2),
    Goal("three stages", "redrive", ("absurd",), 40),
    Goal("three stages", "redrive", ("DBOS",), 100),
    Goal("fails once", "redrive", ("pgqueuer",), 10),
    Goal("submit, 1,000 per commit", "redrive, submit_many", ("bare",), 0.5),
    Goal("a foreign transaction for five minutes", "while it is open", ("before",), 0.6),
    Goal("a foreign transaction for five minutes", "two minutes after", ("before",), 0.9),
    Goal("memory of a run", "over 1,000,000 items", ("over 200,000 items",), 1 / 1.1),
)


def verdicts(figures: Sequence[Figure]) -> str:
    """Return a line for every goal that can be checked by these figures."""
    lines = [line for goal in GOALS if (line := _verdict(goal, figures))]
    return "\n".join(["goals:", *lines]) + "\n\n" if lines else ""


def _verdict(goal: Goal, figures: Sequence[Figure]) -> str:
    here = [figure for figure in figures if figure.group == goal.group]
    ours = next((figure for figure in here if figure.name == goal.ours), None)
    others = [figure for figure in here if figure.name.startswith(goal.others)]
    if ours is None or not others:
        return ""
    best = min(others, key=lambda figure: figure.amount)
    reached = best.amount / ours.amount
    word = "met" if reached >= goal.factor else "SHORT"
    return f"  {word:6}{goal.group}: {goal.ours} is {reached:.2f} x {best.name} (goal {goal.factor:.3g} x)"
