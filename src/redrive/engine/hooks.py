# SPDX-License-Identifier: Apache-2.0
"""Telling hooks about failed attempts: at least once, after the commit, and without any say in the outcome.

A notice is written with the settlement it is about. Whoever takes it hides it from others for a while; told, it is dropped; if the
hook raises, or the worker dies, it comes up again. So a hook may hear of an attempt twice, and never not at all.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, cast

from redrive.engine.clock import Clock
from redrive.engine.jobs import instant_of
from redrive.engine.letters import as_failure
from redrive.engine.outcomes import Lane
from redrive.engine.pipeline import Event, Hook
from redrive.engine.runner import Elsewhere
from redrive.errors import StoreError
from redrive.redaction import redact
from redrive.store.protocol import LaneId, Row, Settlement, Step, Store

logger = logging.getLogger("redrive.hooks")

BATCH: Final = 20
HOOK_SECONDS: Final = 30.0
"""How long a hook may take."""
HIDDEN_SECONDS: Final = 60.0
"""How long a notice is hidden from others while its hook is told, and how long a hook that raised is left alone."""
LOOK_SECONDS: Final = 30.0
FLUSH_SECONDS: Final = 5.0


class Hooks:
    """The hooks of one worker's pipelines."""

    def __init__(
        self,
        store: Store,
        lanes: Mapping[LaneId, Lane],
        clock: Clock,
        *,
        ask_store: Elsewhere,
        call: Elsewhere,
    ) -> None:
        self._store = store
        self._lanes = {lane.id: lane for lane in lanes.values() if lane.pipeline.hooks}
        self._clock = clock
        self._ask_store = ask_store
        self._call = call
        self._news = asyncio.Event()
        self._turn = asyncio.Lock()

    def committed(self, done: list[Settlement]) -> None:
        """Take in what was committed."""
        if any(settled.is_noticed for settled in done):
            self._news.set()

    async def run(self) -> None:
        """Tell hooks what there is to tell, until cancelled."""
        while self._lanes:
            self._news.clear()
            try:
                while await self.deliver():
                    pass
            except StoreError as error:
                logger.warning("hooks wait: %s", error)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._news.wait()

    async def flush(self) -> None:
        """Tell what is left before the worker ends; what cannot be told now is left to other workers."""
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(FLUSH_SECONDS):
                while await self.deliver():
                    pass

    async def deliver(self) -> int:
        """Tell one batch of notices per lane; return how many there were."""
        told = 0
        # One at a time: whoever flushes at the end waits for what is being told already.
        async with self._turn:
            for lane in self._lanes.values():
                due = functools.partial(self._store.query, "notices", lane.id, self._clock.wall(), BATCH)
                rows = await self._ask(due)
                if rows and await self._take(rows):
                    told += len(rows)
                    await self._tell(lane, rows)
        return told

    async def _take(self, rows: list[Row]) -> bool:
        """Hide notices from others; False when somebody else was faster with one of them."""
        hidden_until = self._clock.wall() + HIDDEN_SECONDS
        takes = [Step("take_notice", (hidden_until, row[0], row[-1]), rows=1) for row in rows]
        return await self._ask(lambda: self._store.apply(*takes)) is not None

    async def _tell(self, lane: Lane, rows: list[Row]) -> None:
        """Call the hooks; those that raised come up again when their notice is no longer hidden."""
        drops: list[Step] = []
        for row in rows:
            event = _event_of(lane, row)
            hook = lane.pipeline.hooks.get(event.kind)
            try:
                if hook is not None:
                    async with asyncio.timeout(HOOK_SECONDS):
                        await self._told(hook, event)
            except Exception as error:  # noqa: BLE001 - a hook must not change anything.
                logger.warning(
                    "hook on_%s of job %s raised %s", event.kind, event.job_id, redact(repr(error))
                )
            else:
                drops.append(Step("drop_notice", (row[0],)))
        await self._ask(lambda: self._store.apply(*drops))

    async def _told(self, hook: Hook, event: Event) -> None:
        """Call one hook; whatever it raises, an ending of the program included, comes back as an ordinary error."""
        answer = await self._call(functools.partial(_caught, hook, event))
        if isinstance(answer, BaseException):
            raise as_failure(answer)
        if inspect.isawaitable(answer):
            await answer

    async def _ask(self, question: Callable[[], list[Row] | list[list[Row]] | None]) -> list[Row]:
        return cast("list[Row]", await self._ask_store(question))


def _caught(hook: Hook, event: Event) -> object:
    """Call a hook on its thread. What it raises is returned: some of it, StopIteration for one, cannot cross to the loop."""
    try:
        return hook(event)
    except BaseException as error:  # noqa: BLE001 - a hook must not change anything.
        return error


def _event_of(lane: Lane, row: Row) -> Event:
    _, job, _, attempt, outcome, code, message, reason, sentence, ended_at, round_, run_at, _ = row
    return Event(
        kind=str(outcome),
        job_id=cast("int", job),
        pipeline=lane.pipeline.name,
        stage=lane.stage.name,
        attempt=cast("int", attempt),
        round=cast("int", round_),
        code=str(code),
        message=str(message),
        reason=str(reason),
        sentence=str(sentence),
        at=instant_of(ended_at),
        due_at=instant_of(ended_at if outcome == "dead" else run_at),
    )
