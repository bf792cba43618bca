# SPDX-License-Identifier: Apache-2.0
"""Dead letters page by page, newest first, at a cost that depends on the page and not on how many letters there are.

A cursor is the position of the last letter on a page: the instant of its last failure, and its id. Which index is walked depends on
the filter; each looks at a bounded number of letters, so a filter that matches few of very many may return a page that is not full,
or even empty, with a cursor to continue from.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from redrive.core.arguments import whole
from redrive.engine.replay.filter import LetterFilter
from redrive.errors import ConfigurationError
from redrive.ops.suggest import LAST_ID
from redrive.store.reader import Reader
from redrive.store.records import Call
from redrive.store.statements import letters as letter_sql
from redrive.store.statements.letters import LetterLine, LetterSpan
from redrive.store.statements.statement import Statement

SCAN_MAX: Final = 20_000
"""Letters that are looked at for one page."""
STEP: Final = 5_000
"""Letters that are read at once by a caller that wants all."""
EARLIEST: Final = -1e300
LATEST: Final = 1e300

Position = tuple[float, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some letters, and the cursor of the next page; None after the last one."""

    letters: Sequence[LetterLine]
    next_cursor: str | None


def list_letters(store: Reader, which: LetterFilter, *, before: str | None = None, limit: int = 50) -> Page:
    """Return letters, newest first; the `next_cursor` of a page is the `before` of the next one."""
    whole("limit", limit, minimum=1, fix="50 is usual.")
    lower, until = span_of(which)
    upper = (until, 0) if before is None else min((until, 0), position_of(before))
    found, floor = _positions(store, which, upper=upper, lower=lower, limit=limit + 1)
    end = found[limit - 1] if len(found) > limit else floor
    lines = lines_of(store, [letter for _, letter in found[:limit]])
    return Page(letters=lines, next_cursor=None if end is None else cursor_of(end))


def positions_of(store: Reader, which: LetterFilter) -> Iterator[list[Position]]:
    """Yield the positions of all letters that match a filter, newest first, some thousands at a time."""
    lower, until = span_of(which)
    upper = (until, 0)
    while True:
        found, floor = _positions(store, which, upper=upper, lower=lower, limit=STEP)
        yield found
        if len(found) == STEP:
            upper = found[-1]
        elif floor is None:
            return
        else:
            upper = floor


def span_of(which: LetterFilter) -> tuple[float, float]:
    """Return from when on and until when letters match a filter."""
    return EARLIEST if which.since is None else which.since, LATEST if which.until is None else which.until


def lines_of(store: Reader, ids: Sequence[int]) -> list[LetterLine]:
    """Return the letters with these ids, in this order; those that are gone are left out."""
    rows = {row.id: row for row in store.query(letter_sql.letter_lines(ids=list(ids)))}
    return [rows[letter] for letter in ids if letter in rows]


def pairs_of(store: Reader, which: LetterFilter) -> list[letter_sql.Pair]:
    """Return the groups and states that match a filter, with how many letters each has; exact if the filter is by group."""
    return store.query(letter_sql.letter_pairs(which=which.group_terms()))


def cursor_of(position: Position) -> str:
    """Return a position as a text that restores it exactly."""
    return f"{position[0]!r}_{position[1]}"


def position_of(cursor: str) -> Position:
    """Return the position of a cursor; raises ConfigurationError."""
    at, _, letter = cursor.rpartition("_")
    try:
        position = (float(at), int(letter))
    except ValueError:
        position = (math.nan, 0)
    if not math.isfinite(position[0]) or not 0 <= position[1] <= LAST_ID:
        raise ConfigurationError(
            field="before",
            value=cursor,
            rule="must be the cursor of a page",
            fix="Take it from the page before, or leave it out for the first page.",
        )
    return position


def _positions(
    store: Reader, which: LetterFilter, *, upper: Position, lower: float, limit: int
) -> tuple[list[Position], Position | None]:
    """Return the newest positions between the bounds, and where the search ended, if not at the end."""
    if which.ids is not None:
        return _named(store, which, upper, lower, limit), None
    if (walk := _walk_of(which, upper, lower)) is not None:
        return _walk(store, which, walk, upper=upper, lower=lower, limit=limit)
    if which == LetterFilter(since=which.since, until=which.until):
        newest = letter_sql.letters_by_time(before=upper, since=lower, limit=limit)
    else:
        pairs = [(pair.group, pair.state) for pair in pairs_of(store, which)]
        newest = letter_sql.letters_by_groups(pairs=pairs, before=upper, since=lower, limit=limit)
    return [*store.query(newest)], None


_Way = tuple[Call[letter_sql.LetterPlace], Statement[..., letter_sql.LetterPlace]]
"""What finds where to end, and what lists the letters down to there."""


def _walk(
    store: Reader, which: LetterFilter, walk: _Way, *, upper: Position, lower: float, limit: int
) -> tuple[list[Position], Position | None]:
    """Walk the letters of a key, run, owner or assignee, or the escalated ones, and leave out what does not match; so many at most.

    If the groups of the filter have few letters, those are looked at instead.
    """
    is_grouped = any(part is not None for part in which.group_terms()[:5]) or which.state is not None
    pairs = pairs_of(store, which) if is_grouped else []
    if is_grouped and sum(pair.letters for pair in pairs) <= SCAN_MAX:
        named = [(pair.group, pair.state) for pair in pairs]
        few = store.query(
            letter_sql.letters_by_groups(pairs=named, before=upper, since=lower, limit=SCAN_MAX)
        )
        among = msgspec.structs.replace(which, ids=tuple(place.id for place in few))
        return _named(store, among, upper, lower, limit), None
    floor_of, listing = walk
    floor = store.query(floor_of)
    end = floor[0] if floor else (lower, 0)
    found = store.query(listing(which=which.terms(), span=LetterSpan(*upper, *end, limit)))
    return [*found], floor[0] if floor else None


def _walk_of(which: LetterFilter, before: Position, since: float) -> _Way | None:
    """Return the walk over the most selective index for a filter, as two queries: its end, and its letters; None without one."""
    down = letter_sql.LetterWalk(*before, since, SCAN_MAX)
    if which.key is not None:
        return letter_sql.key_floor(key=which.key, down=down), letter_sql.letters_by_key
    if which.run is not None:
        return letter_sql.run_floor(run=which.run, down=down), letter_sql.letters_by_run
    if which.owner is not None:
        return letter_sql.owner_floor(owner=which.owner, down=down), letter_sql.letters_by_owner
    if which.assignee is not None:
        return letter_sql.assignee_floor(assignee=which.assignee, down=down), letter_sql.letters_by_assignee
    if which.escalated is not None:
        return letter_sql.escalated_floor(escalated=True, down=down), letter_sql.letters_by_escalated
    return None


def _named(store: Reader, which: LetterFilter, upper: Position, lower: float, limit: int) -> list[Position]:
    """Return the positions of the letters that a filter names."""
    asked = letter_sql.letters_by_id(which=which.terms(), span=LetterSpan(*upper, lower, 0, limit))
    return [*store.query(asked)]
