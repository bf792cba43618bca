# SPDX-License-Identifier: Apache-2.0
"""Which dead letters are meant: a filter over columns that never change, and one over the state they are in."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from redrive.store.protocol import Row, listed

LATEST: Final = 2**62
"""Greater than the number of any act that moved letters."""


class LetterFilter(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which dead letters are meant; what is left out does not matter."""

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
    """These and no others."""

    @property
    def is_by_group(self) -> bool:
        """Whether the groups alone tell which letters are meant, and how many."""
        rest = (self.owner, self.key, self.since, self.until, self.ids)
        return all(each is None for each in rest)

    def named_ids(self) -> str | None:
        """Return the ids as the store takes them."""
        return None if self.ids is None else listed(self.ids)

    def census_row(self) -> Row:
        """Return the parameters of this filter by which groups are chosen, and the state."""
        return (self.pipeline, self.stage, self.code, self.category, self.group, self.state)

    def stamp_row(self, *, is_evidence_optional: bool, moves: int = LATEST) -> Row:
        """Return the parameters of this filter in the order in which stamping takes them; without later moves than `moves`."""
        by_group = (self.pipeline, self.stage, self.code, self.category, self.group)
        by_letter = (self.owner, self.since, self.until)
        named = (self.state, self.key, self.named_ids())
        return (*by_group, *by_letter, int(is_evidence_optional), *named, moves)
