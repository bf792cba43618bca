# SPDX-License-Identifier: Apache-2.0
"""Breakers whose state lives in the store, so that every worker sees the same one and no start resets it.

Between two commits a worker collects what its calls found, and writes it with the next one, unless another worker was faster: then
with the one after it. A change of phase is written at once, by compare-and-swap, and again if another was faster; it is recorded in
the transaction that makes it, and logged by the worker that made it. An open breaker keeps its lanes from being claimed; the probes
that it lets through are in `probes`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

import msgspec

from redrive.core import breaker_state as step
from redrive.core.breaker import Breaker, Evidence
from redrive.core.breaker_state import BreakerState, Phase
from redrive.core.decide import BreakerStatus
from redrive.engine.limits.keys import JobKeys, breaker_part
from redrive.errors import ConfigurationError
from redrive.store.protocol import Store
from redrive.store.records import JobId, PhaseChange, StateChange
from redrive.store.statements import workers as worker_sql
from redrive.store.steps import SWAPS_MAX

logger = logging.getLogger("redrive.worker")

KEYS_KEPT: Final = 10_000
"""Breakers of keys that are kept although they only count a few failures."""
FORGET_SECONDS: Final = 3_600.0
"""How long the breaker of a key is kept after it closed."""
FORGET_OPEN_SECONDS: Final = 7 * 86_400.0
"""How long it is kept when it opened and no call was made since."""

_ENCODE: Final = msgspec.json.Encoder().encode
_DECODE: Final = msgspec.json.Decoder(BreakerState).decode


class SharedBreakers:
    """What one worker knows about the breakers of its stages, and has yet to write about them."""

    def __init__(
        self,
        store: Store,
        breakers: Iterable[Breaker],
        *,
        worker: Callable[[], str] = lambda: "unknown",
    ) -> None:
        self._store = store
        self._worker = worker
        self.changes = 0
        """How many changes of phase this worker has made."""
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
        self._codes: dict[str, str | None] = dict.fromkeys(self._breakers)
        """The code of the last failure of each breaker."""
        self._starts: dict[str, tuple[float | None, int]] = dict.fromkeys(self._breakers, (None, 0))
        self._sent: dict[str, tuple[bytes, tuple[int, ...]]] = {}
        """What was sent, and the tally in it, until there is an answer: without one, the state shows whether it was written."""
        self._counted_for = 0
        self._counted: set[JobId] = set()
        """Jobs of the commit with this token whose start is counted: that commit may have to be made again."""
        self._of_keys: set[str] = set()
        """The breakers of single keys."""
        self.holding: set[str] = set()
        """Breakers for which holds were committed since they were last looked at: an operator may have closed them meanwhile."""
        self.keys: JobKeys | None = None
        """The keys of jobs, if any breaker or limit has some."""

    def of(self, job: JobId, breaker: Breaker | None) -> Breaker | None:
        """Return the breaker for a leased job: that of its key, if the stage's breaker has keys; None if the key is not known."""
        if breaker is None or breaker.key is None:
            return breaker
        key = None if self.keys is None else self.keys.key_of(job, breaker_part(breaker.name))
        return None if key is None else self.of_key(breaker, key)

    def of_key(self, breaker: Breaker, key: str) -> Breaker:
        """Return the breaker of one key."""
        name = keyed_name(breaker.name, key)
        known = self._breakers.get(name)
        return self._known(replace(breaker, name=name, key=None)) if known is None else known

    def forget_idle(self, now: float) -> None:
        """Remove the breakers of keys that were not needed for long, from memory and from the store."""
        for name in [name for name in self._of_keys.copy() if self._is_quiet(name, now)]:
            self._of_keys.remove(name)
            for each in (self._breakers, self._states, self._tallies, self._codes, self._starts):
                del each[name]
        for breaker in [one for one in self._breakers.values() if one.key is not None]:
            # Their names begin with a bracket after the breaker's own; the next character ends them.
            rows = self._store.query(
                worker_sql.breakers_of_keys(first=f"{breaker.name}[", end=f"{breaker.name}\\")
            )
            old = [row for row in rows if _is_old(_DECODE(row.state), now, is_many=len(rows) > KEYS_KEPT)]
            if old:
                self._store.apply(*(worker_sql.drop_breaker(name=name, state=raw) for name, raw in old))

    def _known(self, breaker: Breaker) -> Breaker:
        """Remember the breaker of a key; also one that was forgotten while a call of that key was under way."""
        name = breaker.name
        if name not in self._breakers:
            self._states[name], self._tallies[name] = BreakerState(), [0, 0]
            self._codes[name], self._starts[name] = None, (None, 0)
            self._breakers[name] = breaker
            self._of_keys.add(name)
        return breaker

    def _is_quiet(self, name: str, now: float) -> bool:
        """Return whether nothing is known about the breaker of a key that is not in the store."""
        state = self._states[name]
        is_closed = state.phase is Phase.CLOSED and not step.is_ramping(self._breakers[name], state, now)
        return is_closed and not any(self._tallies[name])

    def standing(self, breaker: Breaker) -> BreakerStatus:
        """Return the breaker with its state as last seen."""
        # The breaker of a key may have been forgotten since the caller looked it up.
        return BreakerStatus(breaker, self._states.get(breaker.name, BreakerState()))

    def opens_in(self, now: float, otherwise: float) -> float:
        """Return in how many seconds the next breaker that is not closed lets a job through; `otherwise` if none will.

        A breaker that brings its own probe lets none through before it is closed.
        """
        waits = [
            at - now
            for breaker, state in self._known_states()
            if state.phase is not Phase.CLOSED
            and breaker.probe is None
            and (at := step.opens_at(breaker, state)) is not None
        ]
        return max(min(waits, default=otherwise), 0.01)

    def starts_left(self, breaker: Breaker, now: float) -> float:
        """Return how many more calls this worker may start now; infinite unless the breaker closed a short while ago."""
        state = self._states[breaker.name]
        since, starts = self._starts[breaker.name]
        return step.starts_allowed(breaker, state, now) - (starts if since == state.changed_at else 0)

    def count_start(self, breaker: Breaker, job: JobId, token: int) -> None:
        """Count the start of a claimed job while the breaker stays as it is; once, however often its commit is made."""
        if token != self._counted_for:
            self._counted_for, self._counted = token, set()
        if job in self._counted:
            return
        self._counted.add(job)
        changed_at = self._states[breaker.name].changed_at
        since, starts = self._starts[breaker.name]
        self._starts[breaker.name] = (changed_at, starts + 1 if since == changed_at else 1)

    def is_ramping(self, now: float) -> bool:
        """Return whether some breaker closed a short while ago and limits how many calls start."""
        return any(step.is_ramping(breaker, state, now) for breaker, state in self._known_states())

    def _known_states(self) -> list[tuple[Breaker, BreakerState]]:
        """Return the breakers with their states; copied first, because another thread adds and removes those of keys."""
        states, breakers = self._states.copy(), self._breakers.copy()
        return [(breakers[name], state) for name, state in states.items() if name in breakers]

    def note(self, breaker: Breaker, evidence: Evidence, code: str | None = None) -> None:
        """Remember what one ordinary call found, for the next `flush`; `code` is that of its failure."""
        self._known(breaker)
        if evidence is not Evidence.NOTHING:
            self._tallies[breaker.name][evidence is Evidence.DOWN] += 1
        if evidence is Evidence.DOWN:
            self._codes[breaker.name] = code

    def flush(self, now: float, *, with_commit: bool = False) -> list[StateChange]:
        """Read what others wrote, and write what was found since the last time; what cannot be written is kept for later.

        For a commit that follows, what changes no phase is returned, to be written with it; `written` reports which of it was.
        """
        # A breaker of a key is read when its key is to be claimed: there may be very many of them.
        due = [
            name for name, tally in self._tallies.copy().items() if any(tally) or name not in self._of_keys
        ]
        found = dict(self._store.query(worker_sql.breakers_named(names=due))) if due else {}
        changes: list[StateChange] = []
        for name in due:
            breaker, raw = self._breakers[name], found.get(name)
            sent = self._sent.pop(name, None)
            if sent is not None and sent[0] == raw:
                self._forget(name, sent[1])
            tally = tuple(self._tallies[name])
            record = _recorder(breaker, now, *tally)
            state = BreakerState() if raw is None else _DECODE(raw)
            after = record(state)
            is_same = _looks(breaker, after.phase) is _looks(breaker, state.phase)
            if after is state:
                self._states[name] = state
                self._forget(name, tally)
                continue
            self._sent[name] = _ENCODE(after), tally
            if with_commit and raw is not None and is_same:
                self._states[name] = after
                changes.append(StateChange(_ENCODE(after), name, raw))
                continue
            is_written = self.change(breaker, record, code=self._codes[name])
            del self._sent[name]
            if is_written:
                self._forget(name, tally)
        for name in tuple(self.holding):
            # Whoever closed it released only what was held by then.
            raw = self._store.breaker(name)
            if raw is None or _DECODE(raw).phase is Phase.CLOSED:
                self._store.apply(worker_sql.release_held(now=now, breaker=name))
            self.holding.discard(name)
        return changes

    def written(self, names: Iterable[str]) -> None:
        """Forget what was found about these breakers: it was written with a commit, and what was found about others was not."""
        for name in names:
            self._forget(name, self._sent[name][1])
        self._sent.clear()

    def _forget(self, name: str, tally: tuple[int, ...]) -> None:
        # Calls that have ended meanwhile are for the next time.
        kept = self._tallies[name]
        kept[0] -= tally[0]
        kept[1] -= tally[1]

    def change(
        self, breaker: Breaker, change: Callable[[BreakerState], BreakerState], *, code: str | None = None
    ) -> bool:
        """Change the state in the store by compare-and-swap; return whether it could be written. `code` is of a failure."""
        self._known(breaker)
        for _ in range(SWAPS_MAX):
            raw = self._store.breaker(breaker.name)
            state = BreakerState() if raw is None else _DECODE(raw)
            after = change(state)
            if after is state or _looks(breaker, after.phase) is _looks(breaker, state.phase):
                is_written = after is state or self._store.swap_breaker(breaker.name, raw, _ENCODE(after))
            else:
                is_written = self._change_phase(breaker, raw, state, after, code)
            if is_written:
                self._states[breaker.name] = after
                return True
        return False

    def _change_phase(
        self,
        breaker: Breaker,
        raw: bytes | None,
        before: BreakerState,
        after: BreakerState,
        code: str | None,
    ) -> bool:
        """Change the phase, and record and log that; return whether it could be written."""
        is_opened = after.phase is Phase.OPEN
        change = PhaseChange(
            at=after.changed_at or 0.0,
            breaker=breaker.name,
            before=_looks(breaker, before.phase),
            after=after.phase,
            cause="failures" if before.phase is Phase.CLOSED else "probe",
            actor=self._worker(),
            code=code if is_opened else None,
        )
        if not self._store.swap_breaker(breaker.name, raw, _ENCODE(after), change):
            return False
        self.changes += 1
        logger.log(
            logging.WARNING if is_opened else logging.INFO,
            "breaker %s: %s -> %s: %s",
            breaker.name,
            change.before,
            after.phase,
            step.change_text(change.before, after.phase, code=change.code),
            extra={
                "facts": {"event": "breaker", "breaker": breaker.name, "state": after.phase, "code": code}
            },
        )
        return True


def _looks(breaker: Breaker, phase: Phase) -> Phase:
    """Return the phase to record: while a function of its own asks, a breaker stays open, however often that finds it down."""
    return Phase.OPEN if phase is Phase.HALF_OPEN and breaker.probe is not None else phase


def keyed_name(name: str, key: str) -> str:
    """Return the name under which the breaker of one key is stored, listed and changed."""
    return f"{name}[{key}]"


def _is_old(state: BreakerState, now: float, *, is_many: bool) -> bool:
    """Return whether the breaker of a key can be forgotten: no failures, or unused for long."""
    age = now - (state.changed_at or 0.0)
    if state.phase is Phase.CLOSED:
        return (is_many or not state.failures) and age > FORGET_SECONDS
    return state.phase is not Phase.ISOLATED and age > FORGET_OPEN_SECONDS


def _recorder(breaker: Breaker, now: float, ok: int, failed: int) -> Callable[[BreakerState], BreakerState]:
    def record(state: BreakerState) -> BreakerState:
        return step.record(breaker, state, now, ok=ok, failed=failed) if ok or failed else state

    return record
