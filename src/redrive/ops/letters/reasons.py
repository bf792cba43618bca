# SPDX-License-Identifier: Apache-2.0
"""Why an act leaves dead letters alone: a value, and the only place that makes a sentence of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal[
    "taken", "state", "untriaged", "left_state", "came_later", "released_later", "gone", "pruned", "unfit"
]
_TEXTS: Final[dict[Kind, tuple[str, str]]] = {
    "taken": ("replay {replay} has taken it", "replay {replay} has taken them"),
    "state": ("it is {state}", "they are {state}"),
    "untriaged": (
        "it is {state}: triage it first, or give a diagnosis as well",
        "they are {state}: triage them first, or give a diagnosis as well",
    ),
    "left_state": ("it is {state} by now", "they are {state} by now"),
    "came_later": ("it became {state} only later", "they became {state} only later"),
    "released_later": ("a replay released it only later", "a replay released them only later"),
    "gone": ("it was moved or pruned meanwhile", "they were moved or pruned meanwhile"),
    "pruned": ("it was pruned", "they were pruned"),
    "unfit": ("{problem}", "{problem}"),
}
"""The sentence about one letter, and about several."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why an act leaves a letter alone."""

    kind: Kind
    state: str | None = None
    """The state the letter is in, where that is why."""
    replay: int | None = None
    """The replay that has taken it, where that is why."""
    problem: str | None = None
    """What is wrong with its new value, where that is why."""

    def __str__(self) -> str:
        """Return the sentence about one letter."""
        return self.text(1)

    def text(self, letters: int) -> str:
        """Return the sentence about so many letters."""
        one, many = _TEXTS[self.kind]
        return (one if letters == 1 else many).format(
            state=self.state, replay=self.replay, problem=self.problem
        )
