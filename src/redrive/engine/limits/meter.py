# SPDX-License-Identifier: Apache-2.0
"""One worker's side of a limit, or of one key of it: its block of tokens and its share of slots.

The state itself is in the store, shared by all workers, and changed by compare-and-swap; `core.limit_state` has the steps. Lives on
the store's thread. Nothing here knows lanes or jobs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import msgspec

from redrive.core import limit_state as step
from redrive.core.limit import Limit
from redrive.core.limit_state import BLOCK_SECONDS, TURN_SECONDS, Block, LimitState, SlotRequest
from redrive.store.protocol import Store
from redrive.store.statements import workers as worker_sql
from redrive.store.steps import SWAPS_MAX, limit_swap

KEEP_SECONDS: Final = 2 * BLOCK_SECONDS
"""How long tokens that nobody spends are kept before they are returned."""
LOOK_SECONDS: Final = 0.25
"""How often a worker looks for slots that other workers have given back, if nobody wakes it."""
AVERAGING: Final = 0.2
"""How much the cost of the last call counts in the average."""

Change = Callable[[LimitState], LimitState]

ENCODE_LIMIT: Final = msgspec.json.Encoder().encode
DECODE_LIMIT: Final = msgspec.json.Decoder(LimitState).decode


class Meter:
    """What one worker knows about a limit, and may still spend of it."""

    def __init__(self, store: Store, limit: Limit, key: str, *, worker: Callable[[], str]) -> None:
        self._store = store
        self._worker = worker
        self.limit = limit
        self.key = key
        self.state = LimitState()
        """As last seen."""
        self.opens_at = -math.inf
        """When it may let more calls start than at the last request; infinite if an operator paused it."""
        self._raw: bytes | None = None
        self._block: Block | None = None
        self._pause: float | None = None
        """The pause that was known when the block was taken: a later one makes the block void."""
        self._size = 0.0
        self._taken_at = self._touched_at = -math.inf
        self._cost = 1.0
        self._need = 1.0
        """What the next call costs that had to wait."""
        self._wanted: tuple[int, float] = (0, -math.inf)
        self._asked_at = -math.inf
        """When it was last asked for slots."""

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing that would have to be returned."""
        return self._block is None and self._worker() not in self.state.shares

    def read(self) -> None:
        """Read what all workers have made of it."""
        rows = self._store.query(worker_sql.limit(name=self.limit.name, key=self.key))
        raw = rows[0] if rows else None
        if raw != self._raw:
            self._raw, self.state = raw, LimitState() if raw is None else DECODE_LIMIT(raw)
        if self.state.paused_until != self._pause:
            self._block, self._pause = None, self.state.paused_until

    def change(self, change: Change, now: float) -> bool:
        """Change the state in the store by compare-and-swap; return whether it could be written."""
        for _ in range(SWAPS_MAX):
            after = change(self.state)
            if after == self.state:
                return True
            raw = ENCODE_LIMIT(after)
            swap = limit_swap(self.limit.name, self.key, before=self._raw, after=raw, now=now)
            if self._store.apply(swap) is not None:
                self._raw, self.state = raw, after
                return True
            self.read()
        return False

    def startable(self, room: int, used: int, now: float, is_wanted: Callable[[], object]) -> int:
        """Return how many of `room` more calls may start now, when `used` run; takes tokens and slots if any are wanted."""
        self.read()
        opens = step.opens_at(self.state, now)
        if opens is None or opens > now:
            self.opens_at = math.inf if opens is None else opens
            return 0
        self.opens_at = -math.inf
        most = room
        if step.concurrency_of(self.limit, self.state) is not None:
            most = max(0, min(most, self._slots(room, used, now, is_wanted) - used))
            if most < room:
                # A slot is free when a call ends, here or elsewhere: nobody knows when.
                self.opens_at = now + LOOK_SECONDS
        if self.limit.is_metered:
            most = self._tokens(most, now, is_wanted)
        return most

    def spend(self, cost: float, *, calls: float = 1.0) -> None:
        """Count calls that start, with what they cost together."""
        self._cost += AVERAGING * (cost / calls - self._cost)
        self._need = 1.0
        self.correct(cost)

    def correct(self, cost: float) -> None:
        """Count what a call used beyond its cost; below zero, what it did not use."""
        if self._block is not None:
            self._block = self._block.spent(cost)

    def fits(self, cost: float, now: float) -> bool:
        """Return whether a call that has been claimed may start; if not, all of its cost is reserved next."""
        if not self.limit.is_metered or (self._block is not None and self._block.usable(now) >= cost - 1e-9):
            return True
        self._need = cost
        self.opens_at = now if self._block is None else self._block.usable_at(cost)
        return False

    def settle_up(self, now: float) -> None:
        """Return tokens that nobody has spent for a while, so that they do not add to a later burst."""
        block = self._block
        if block is not None and now >= max(self._touched_at, block.ready_at) + KEEP_SECONDS:
            self._return(block, now)

    def give_back(self, used: int, now: float) -> None:
        """Return the slots that no call uses, and want none, if none were needed for a while: others may wait for them."""
        mine = self.state.shares.get(self._worker())
        if mine is None or max(mine.slots, mine.wanted) <= used or now < self._asked_at + TURN_SECONDS:
            return
        self._wanted = (used, now)
        self.read()
        request = SlotRequest(self._worker(), used, used)
        self.change(lambda state: step.shared(self.limit, state, now, request, state.shares), now)

    def release(self, now: float) -> None:
        """Return everything: the worker ends."""
        self.read()
        if self._block is not None:
            self._return(self._block, now)
        if self._worker() in self.state.shares:
            self.change(lambda state: step.without(state, self._worker()), now)

    def _return(self, block: Block, now: float) -> None:
        self._block = None
        self.change(lambda state: step.returned(self.limit, state, now, block.tokens), now)

    def _tokens(self, most: int, now: float, is_wanted: Callable[[], object]) -> int:
        """Return for how many calls there are tokens; with none left, reserve the next block."""
        block = self._block
        if block is None or block.tokens < self._need - 1e-9:
            if not most or not is_wanted():
                return 0
            block = self._reserve(most, now)
        if block is None:
            return 0
        usable = block.usable(now)
        if usable < self._need - 1e-9:
            self.opens_at = block.usable_at(self._need)
            return 0
        self._touched_at = now
        count = max(1, int(usable / self._cost + 1e-9))
        if count < most:
            self.opens_at = max(self.opens_at, block.usable_at((count + 1) * self._cost))
        return min(most, count)

    def _reserve(self, most: int, now: float) -> Block | None:
        """Reserve a block: for all that could start now, and larger than the last one if that was spent quickly."""
        rest = 0.0 if self._block is None else self._block.tokens
        is_quick = now - self._taken_at < BLOCK_SECONDS
        size = max(most * self._cost, self._size * (2.0 if is_quick else 0.5))
        made: Block | None = None

        def reserve(state: LimitState) -> LimitState:
            nonlocal made
            after, made = step.reserve(self.limit, state, now, size - rest, least=self._need - rest)
            return after

        if not self.change(reserve, now) or made is None:
            return None
        self._block = Block(made.tokens + rest, made.ready_at, made.rate)
        self._size, self._taken_at, self._touched_at = made.tokens, now, now
        return self._block

    def _slots(self, room: int, used: int, now: float, is_wanted: Callable[[], object]) -> int:
        """Return how many slots this worker has; ask for more, or return some, when that is due."""
        most = step.concurrency_of(self.limit, self.state) or 0
        mine = self.state.shares.get(self._worker())
        has = 0 if mine is None else mine.slots
        needed, since = self._wanted
        self._asked_at = now
        others = len(self.state.shares) - (mine is not None)
        is_turn = now - since >= TURN_SECONDS
        if is_turn or min(used + room, most) > needed:
            # Where nobody else has a share, a busy worker need not look whether more is to come.
            asked = min(used + room if (used and not others) or is_wanted() else used, most)
            if is_turn or asked > needed:
                # Less is asked for only after a while: the need of a busy worker goes up and down with every commit.
                self._wanted = needed, _ = (asked, now)
        if has == needed and not (others and needed) and (mine is None) == (needed == 0):
            return has
        live = set(self._store.query(worker_sql.worker_ids())) if others else {self._worker()}
        request = SlotRequest(self._worker(), needed, used)
        after = step.shared(self.limit, self.state, now, request, live)
        if after.shares != self.state.shares:
            self.change(lambda state: step.shared(self.limit, state, now, request, live), now)
        made = self.state.shares.get(self._worker())
        return 0 if made is None else made.slots
