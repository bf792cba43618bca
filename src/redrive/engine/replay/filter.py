# SPDX-License-Identifier: Apache-2.0
"""The filter over dead letters. Its counterpart in SQL are the parts `group_filter`, `letter_filter` and `time_filter`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct

from redrive.core.lifecycle import LetterState
from redrive.store.statements.letters import GroupTerms, LetterTerms

LATEST: Final = 2**62
"""Greater than the number of any act that moved letters."""
STATES: Final = tuple(str(state) for state in LetterState)
FREE: Final = (LetterState.OPEN, LetterState.TRIAGED, LetterState.READY)
"""States from which a letter can be replayed, if the rules allow it."""


class LetterFilter(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which dead letters are meant; None matches all."""

    pipeline: str | None = None
    stage: str | None = None
    code: str | None = None
    category: str | None = None
    group: str | None = None
    """A whole fingerprint."""
    state: str | None = None
    owner: str | None = None
    """The owner of the job."""
    key: str | None = None
    since: float | None = None
    until: float | None = None
    """The last failure was at `since` or later, and before `until`."""
    ids: tuple[int, ...] | None = None
    escalated: Literal[True] | None = None
    """Only letters that a replay brought back with the same permanent code."""
    assignee: str | None = None
    run: int | None = None
    """The run of the job."""

    @property
    def is_by_group(self) -> bool:
        """Whether the counters of the groups are enough to count the letters."""
        rest = (self.owner, self.key, self.since, self.until, self.ids, self.escalated)
        return all(each is None for each in (*rest, self.assignee, self.run))

    def group_terms(self, among: Sequence[str] = STATES) -> GroupTerms:
        """Return the parameters that choose groups, and the states; only states of `among`."""
        states = [str(state) for state in among if self.state in {None, state}]
        return GroupTerms(self.pipeline, self.stage, self.code, self.category, self.group, states)

    def terms(self, among: Sequence[str] = STATES) -> LetterTerms:
        """Return all parameters of the filter, as every statement over letters takes them."""
        ids = None if self.ids is None else list(self.ids)
        letter = (self.owner, self.key, ids, self.escalated, self.assignee, self.run)
        return LetterTerms(self.group_terms(among), self.since, self.until, *letter)
