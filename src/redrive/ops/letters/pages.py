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
from typing import Final, cast

import msgspec

from redrive.core.arguments import whole
from redrive.engine.replay.filter import LetterFilter
from redrive.errors import ConfigurationError
from redrive.ops.letters.letter import LetterLine, lines_of
from redrive.ops.suggest import LAST_ID
from redrive.store.protocol import Store
from redrive.store.records import json_list

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


@dataclass(frozen=True, slots=True)
class Pair:
    """The letters of one group that are in one state."""

    group: int
    state: str
    letters: int


def list_letters(store: Store, which: LetterFilter, *, before: str | None = None, limit: int = 50) -> Page:
    """Return letters, newest first; the `next_cursor` of a page is the `before` of the next one."""
    whole("limit", limit, minimum=1, fix="50 is usual.")
    upper = (LATEST if which.until is None else which.until, 0)
    if before is not None:
        upper = min(upper, position_of(before))
    lower = EARLIEST if which.since is None else which.since
    found, floor = _positions(store, which, upper=upper, lower=lower, limit=limit + 1)
    end = found[limit - 1] if len(found) > limit else floor
    lines = lines_of(store, [letter for _, letter in found[:limit]])
    return Page(letters=lines, next_cursor=None if end is None else cursor_of(end))


def positions_of(store: Store, which: LetterFilter) -> Iterator[list[Position]]:
    """Yield the positions of all letters that match a filter, newest first, some thousands at a time."""
    upper = (LATEST if which.until is None else which.until, 0)
    lower = EARLIEST if which.since is None else which.since
    while True:
        found, floor = _positions(store, which, upper=upper, lower=lower, limit=STEP)
        yield found
        if len(found) == STEP:
            upper = found[-1]
        elif floor is None:
            return
        else:
            upper = floor


def pairs_of(store: Store, which: LetterFilter) -> list[Pair]:
    """Return the groups and states that match a filter, with how many letters each has; exact if the filter is by group."""
    rows = store.query("letter_pairs", *which.group_row())
    return [Pair(cast("int", group), str(state), cast("int", letters)) for group, state, letters in rows]


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
    store: Store, which: LetterFilter, *, upper: Position, lower: float, limit: int
) -> tuple[list[Position], Position | None]:
    """Return the newest positions between the bounds, and where the search ended, if not at the end."""
    if which.ids is None and _walked(which) is not None:
        return _walk(store, which, upper=upper, lower=lower, limit=limit)
    if which.ids is not None:
        return _query(store, "letters_by_id", *which.row(), *upper, lower, 0, limit), None
    if which == msgspec.structs.replace(LetterFilter(), since=which.since, until=which.until):
        return _query(store, "letters_by_time", *upper, lower, limit), None
    pairs = json_list([(pair.group, pair.state) for pair in pairs_of(store, which)])
    return _query(store, "letters_by_groups", pairs, *upper, lower, limit), None


def _walk(
    store: Store, which: LetterFilter, *, upper: Position, lower: float, limit: int
) -> tuple[list[Position], Position | None]:
    """Walk the letters of a key, run, owner or assignee, or the escalated ones, and leave out what does not match; so many at most.

    If the groups of the filter have few letters, those are looked at instead.
    """
    is_grouped = any(part is not None for part in which.group_row()[:5]) or which.state is not None
    pairs = pairs_of(store, which) if is_grouped else []
    if is_grouped and sum(pair.letters for pair in pairs) <= SCAN_MAX:
        named = json_list([(pair.group, pair.state) for pair in pairs])
        few = _query(store, "letters_by_groups", named, *upper, lower, SCAN_MAX)
        among = msgspec.structs.replace(which, ids=tuple(letter for _, letter in few))
        return _query(store, "letters_by_id", *among.row(), *upper, lower, 0, limit), None
    kind, value = cast("tuple[str, object]", _walked(which))
    floor = _query(store, f"{kind}_floor", value, *upper, lower, SCAN_MAX)
    end = floor[0] if floor else (lower, 0)
    found = _query(store, f"letters_by_{kind}", *which.row(), *upper, *end, limit)
    return found, floor[0] if floor else None


def _walked(which: LetterFilter) -> tuple[str, object] | None:
    """Return what only letters have and an index leads to, with its value: the most selective one of a filter."""
    kinds = {"key": which.key, "run": which.run, "owner": which.owner}
    kinds |= {"assignee": which.assignee, "escalated": which.escalated}
    return next(((kind, value) for kind, value in kinds.items() if value is not None), None)


def _query(store: Store, name: str, *parameters: object) -> list[Position]:
    return [(cast("float", at), cast("int", letter)) for at, letter in store.query(name, *parameters)]
