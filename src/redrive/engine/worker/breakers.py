# SPDX-License-Identifier: Apache-2.0
"""Breakers whose state lives in the store, so that every worker sees the same one and no start resets it.

Between two commits a worker collects what its calls found, and writes it down once: read, step, compare-and-swap, again if somebody
else was faster. An open breaker keeps its lanes from being claimed; when its time has come, one job goes out as the probe.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from redrive.core import breaker_state as step
from redrive.core.breaker import Breaker, Evidence
from redrive.core.breaker_state import Admitted, BreakerState, Phase
from redrive.core.decide import Standing
from redrive.errors import ConfigurationError
from redrive.store.protocol import Store

SWAPS_MAX: Final = 100
"""How often one change is tried against other workers before it is left to the next commit."""

_ENCODE: Final = msgspec.json.Encoder().encode
_DECODE: Final = msgspec.json.Decoder(BreakerState).decode


class SharedBreakers:
    """What one worker knows about the breakers of its stages, and has to say about them."""

    def __init__(self, store: Store, breakers: Iterable[Breaker]) -> None:
        self._store = store
        self._breakers: dict[str, Breaker] = {}
        for breaker in breakers:
            known = self._breakers.setdefault(breaker.name, breaker)
            if known != breaker:
                raise ConfigurationError(
                    field=f"Breaker({breaker.name})",
                    value=breaker,
                    rule="is configured in two ways",
                    fix="Stages share a breaker by its name: define it once.",
                )
        self._states = dict.fromkeys(self._breakers, BreakerState())
        self._tallies: dict[str, list[int]] = {name: [0, 0] for name in self._breakers}
        self._dropped: deque[tuple[Breaker, str]] = deque()
        self._starts: dict[str, tuple[float | None, int]] = dict.fromkeys(self._breakers, (None, 0))

    def standing(self, breaker: Breaker) -> Standing:
        """Return the breaker with its state as last seen."""
        return Standing(breaker, self._states[breaker.name])

    def is_closed(self, breaker: Breaker) -> bool:
        """Say whether calls may go out freely."""
        return self._states[breaker.name].phase is Phase.CLOSED

    def opens_in(self, now: float, otherwise: float, *, only: Breaker | None = None) -> float:
        """Return in how many seconds the next breaker that is not closed lets a call through; `otherwise` if none will."""
        waits = [
            at - now
            for name, state in self._states.items()
            if state.phase is not Phase.CLOSED
            and (only is None or only.name == name)
            and (at := step.opens_at(self._breakers[name], state)) is not None
        ]
        return max(min(waits, default=otherwise), 0.01)

    def starts_left(self, breaker: Breaker, now: float) -> float:
        """Return how many more calls this worker may start now; infinite unless the breaker closed a short while ago."""
        state = self._states[breaker.name]
        since, starts = self._starts[breaker.name]
        return step.starts_allowed(breaker, state, now) - (starts if since == state.changed_at else 0)

    def count_start(self, breaker: Breaker) -> None:
        """Remember that a call starts, for as long as the breaker stays as it is."""
        changed_at = self._states[breaker.name].changed_at
        since, starts = self._starts[breaker.name]
        self._starts[breaker.name] = (changed_at, starts + 1 if since == changed_at else 1)

    def is_ramping(self, now: float) -> bool:
        """Say whether calls are let go gradually through some breaker."""
        return any(step.is_ramping(self._breakers[name], state, now) for name, state in self._states.items())

    def note(self, breaker: Breaker, evidence: Evidence) -> None:
        """Remember what one ordinary call found, for the next `flush`."""
        if evidence is not Evidence.NOTHING:
            self._tallies[breaker.name][evidence is Evidence.DOWN] += 1

    def release_later(self, breaker: Breaker, token: str) -> None:
        """Remember that a probe was dropped without a finding, for the next `flush`."""
        self._dropped.append((breaker, token))

    def flush(self, now: float) -> None:
        """Write down what was found since the last time, and see what others wrote; what cannot be written waits for the next."""
        self._release_dropped(now)
        for name, tally in self._tallies.items():
            breaker = self._breakers[name]
            ok, failed = tally
            if self._change(breaker, _recorder(breaker, now, ok, failed)):
                tally[0] -= ok
                tally[1] -= failed

    def _release_dropped(self, now: float) -> None:
        """Give back the probes that were dropped; meanwhile the loop may drop more."""
        while self._dropped:
            breaker, token = dropped = self._dropped.popleft()
            is_released = False
            try:
                is_released = self.end_probe(breaker, now, token, Evidence.NOTHING)
            finally:
                if not is_released:
                    self._dropped.appendleft(dropped)
            if not is_released:
                return

    def take_probe(self, breaker: Breaker, now: float, token: str) -> bool:
        """Try to be the one call that is let through; say whether it worked. Asked again with its token, the answer is the same."""
        admitted = False

        def admit(state: BreakerState) -> BreakerState:
            nonlocal admitted
            if state.probe is not None and state.probe.token == token:
                admitted = True
                return state
            after, answer = step.admit(breaker, state, now, token)
            admitted = isinstance(answer, Admitted)
            return after

        return self._change(breaker, admit) and admitted

    def end_probe(self, breaker: Breaker, now: float, token: str, evidence: Evidence) -> bool:
        """Write down what the probe found; without a finding it is given back. Say whether it could be written."""
        ok, failed = int(evidence is Evidence.ALIVE), int(evidence is Evidence.DOWN)

        def end(state: BreakerState) -> BreakerState:
            if evidence is Evidence.NOTHING:
                return step.release(state, token)
            return step.record(breaker, state, now, ok=ok, failed=failed, token=token)

        return self._change(breaker, end)

    def _change(self, breaker: Breaker, change: Callable[[BreakerState], BreakerState]) -> bool:
        for _ in range(SWAPS_MAX):
            raw = self._store.breaker(breaker.name)
            state = BreakerState() if raw is None else _DECODE(raw)
            after = change(state)
            if after is state or self._store.swap_breaker(breaker.name, raw, _ENCODE(after)):
                self._states[breaker.name] = after
                return True
        return False


def _recorder(breaker: Breaker, now: float, ok: int, failed: int) -> Callable[[BreakerState], BreakerState]:
    def record(state: BreakerState) -> BreakerState:
        return step.record(breaker, state, now, ok=ok, failed=failed) if ok or failed else state

    return record
