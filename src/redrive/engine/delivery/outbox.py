# SPDX-License-Identifier: Apache-2.0
"""Telling hooks about failed attempts, and sinks about dead letters: after the commit, and without any say in the outcome.

A notice is written with the settlement it is about, one for each recipient. Whoever takes it hides it from others for a while;
told, it is dropped; if the recipient raises, it comes up again after a pause that grows, and if the worker dies, when it is no
longer hidden. So a recipient may hear of something twice, and never not at all. Recipients do not wait for each other's answers,
and a notice for a sink that this worker's code does not have is left to others.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final, cast

from redrive.engine.clock import Clock
from redrive.engine.delivery.messages import event_of, sunk_letter
from redrive.engine.delivery.recipients import Recipient, pause, recipients_of
from redrive.engine.error_text import error_text
from redrive.engine.pipeline.lanes import Lane
from redrive.engine.pipeline.pipeline import Event
from redrive.engine.worker.dead_letter import as_failure
from redrive.engine.worker.threads import AskStore, RunBlocking
from redrive.errors import StoreError
from redrive.sinks.base import SunkLetter, wants_values
from redrive.store.protocol import LaneId, Row, Settlement, Step, Store

logger = logging.getLogger("redrive.hooks")

BATCH: Final = 20
HOOK_SECONDS: Final = 30.0
"""How long a hook, or a sink with one letter, may take."""
HIDDEN_SECONDS: Final = 60.0
"""How long notices are hidden from others while their recipient is told; what it could not hear in half of that is taken again."""
LOOK_SECONDS: Final = 30.0
FLUSH_SECONDS: Final = 5.0
UNRETURNED_MAX: Final = 4
"""So many calls of one recipient may be out without having returned; each that hangs keeps a thread."""

Call = Callable[[], Awaitable[None] | None]


class Hooks:
    """Everybody whom one worker's pipelines tell: their hooks and their sinks."""

    def __init__(
        self,
        store: Store,
        lanes: Mapping[LaneId, Lane],
        clock: Clock,
        *,
        ask_store: AskStore,
        call: RunBlocking,
    ) -> None:
        self._store = store
        self._recipients = recipients_of(lanes)
        self._clock = clock
        self._ask_store = ask_store
        self._call = call
        self._unreturned: dict[Recipient, set[object]] = {each: set() for each in self._recipients}
        """A mark for each call that has not returned, though nobody may be waiting for it any more."""

    def committed(self, done: list[Settlement]) -> None:
        """Take in what was committed."""
        if any(settled.recipients for settled in done):
            for recipient in self._recipients:
                recipient.news.set()

    async def run(self) -> None:
        """Tell what there is to tell, until cancelled; each recipient at its own pace."""
        await asyncio.gather(*(self._keep_telling(recipient) for recipient in self._recipients))

    async def _keep_telling(self, recipient: Recipient) -> None:
        while True:
            recipient.news.clear()
            recipient.next_at = math.inf
            try:
                while await self._serve(recipient):
                    pass
            except StoreError as error:
                logger.warning("hooks wait: %s", error)
            except Exception as error:  # noqa: BLE001 - nobody would tell this recipient anything any more.
                logger.warning("hooks wait: %s", error_text(error))
            wait = max(0.0, recipient.next_at - self._clock.wall())
            with suppress(TimeoutError):
                async with asyncio.timeout(min(LOOK_SECONDS, wait)):
                    await recipient.news.wait()

    async def flush(self) -> None:
        """Tell what is left before the worker ends; what cannot be told now is left to other workers."""
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                while await self.deliver():
                    pass
        except (StoreError, TimeoutError):
            pass
        except Exception as error:  # noqa: BLE001 - what the worker did is done, however this ends.
            logger.warning("hooks are left to other workers: %s", error_text(error))

    async def deliver(self) -> int:
        """Tell each recipient one batch of notices per lane; return how many there were."""
        served = (self._serve(recipient) for recipient in self._recipients)
        told = await asyncio.gather(*served, return_exceptions=True)
        for each in told:
            if isinstance(each, BaseException):
                raise each
        return sum(each for each in told if isinstance(each, int))

    async def _serve(self, recipient: Recipient) -> int:
        told = 0
        async with recipient.turn:
            for lane in recipient.lanes:
                now = self._clock.wall()
                if self._rests(recipient, now):
                    recipient.next_at = min(recipient.next_at, recipient.rests_until)
                    break
                due = functools.partial(self._store.query, "notices_for", lane.id, recipient.name, now, BATCH)
                rows = await self._ask(due)
                if rows and await self._take(rows, now + HIDDEN_SECONDS):
                    told += len(rows)
                    await self._tell(recipient, lane, rows)
        return told

    def _rests(self, recipient: Recipient, now: float) -> bool:
        """Say whether a recipient is to be left alone now: it failed too often, or too many of its calls have not returned."""
        out = len(self._unreturned[recipient])
        if out >= UNRETURNED_MAX and recipient.rests_until <= now:
            recipient.rests_until = now + HOOK_SECONDS
            logger.warning(
                "%s of pipeline %s is not called now: %d calls have not returned. Give it a timeout of its own.",
                "the hook" if recipient.sink is None else f"sink {recipient.name}",
                recipient.lanes[0].pipeline.name,
                out,
            )
        return recipient.rests_until > now

    async def _take(self, rows: list[Row], hidden_until: float) -> bool:
        """Hide notices from others; False when somebody else was faster with one of them."""
        takes = [Step("take_notice", (hidden_until, row[0], row[-1]), rows=1) for row in rows]
        return await self._ask(lambda: self._store.apply(*takes)) is not None

    async def _tell(self, recipient: Recipient, lane: Lane, rows: list[Row]) -> None:
        """Tell notices that were taken, and write down what became of each."""
        began_at = self._clock.wall()
        after: list[Step] = []
        for row in rows:
            now = self._clock.wall()
            is_late = now - began_at > HIDDEN_SECONDS - HOOK_SECONDS
            if is_late or self._rests(recipient, now):
                due_at = max(now, recipient.rests_until)
                # Given back as it was taken: it was not tried.
                after.append(_put_off(row, due_at, tries=cast("int", row[-1])))
                continue
            # What is left of a job that was pruned is nothing to tell about.
            is_told = row[4] is None or await self._told(recipient, lane, row)
            if is_told:
                recipient.strikes = 0
                after.append(Step("drop_notice", (row[0],)))
            else:
                now, tries = self._clock.wall(), cast("int", row[-1]) + 1
                recipient.failed(now)
                due_at = now + pause(tries)
                recipient.next_at = min(recipient.next_at, due_at)
                after.append(_put_off(row, due_at, tries=tries))
        await self._ask(lambda: self._store.apply(*after))

    async def _told(self, recipient: Recipient, lane: Lane, row: Row) -> bool:
        """Tell one notice; say whether it was heard. Whatever a recipient raises changes nothing."""
        try:
            what, call = await self._prepared(recipient, lane, row)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - those before it in the batch would be told again and again.
            logger.warning("a notice of job %s cannot be told: %s", row[1], error_text(error))
            return False
        if call is None:
            return True
        try:
            async with asyncio.timeout(HOOK_SECONDS):
                await self._called(recipient, call)
        except Exception as error:  # noqa: BLE001 - a recipient must not change anything.
            # A sink that gets values may quote them; what kind of error it was is enough then.
            is_let_in = recipient.sink is not None and wants_values(recipient.sink)
            told = type(error).__name__ if is_let_in else error_text(error)
            logger.warning("%s of job %s raised %s", what, row[1], told)
            return False
        return True

    async def _prepared(self, recipient: Recipient, lane: Lane, row: Row) -> tuple[str, Call | None]:
        """Return what is called and how; None when nobody wants to hear it any more."""
        sink = recipient.sink
        if sink is None:
            read_event = functools.partial(event_of, self._store, lane, row)
            event = cast("Event", await self._ask_store(read_event))
            hook = lane.pipeline.hooks.get(event.kind)
            return f"hook on_{event.kind}", None if hook is None else functools.partial(hook, event)
        read = functools.partial(sunk_letter, self._store, lane, row, now=self._clock.wall(), sink=sink)
        letter = cast("SunkLetter", await self._ask_store(read))
        return f"sink {recipient.name} with the dead letter", functools.partial(sink.deliver, letter)

    async def _called(self, recipient: Recipient, call: Call) -> None:
        """Call a hook or a sink; whatever it raises, an ending of the program included, comes back as an ordinary error."""
        mark, unreturned = object(), self._unreturned[recipient]
        unreturned.add(mark)
        try:
            asked = self._call(functools.partial(_caught, call, functools.partial(unreturned.discard, mark)))
        except BaseException:
            # There is no thread for it.
            unreturned.discard(mark)
            raise
        answer = await asked
        try:
            if isinstance(answer, BaseException):
                raise as_failure(answer)
            if inspect.isawaitable(answer):
                await answer
        except asyncio.CancelledError as exc:
            # A task it waited for may have been cancelled by somebody; only a cancellation of this one is meant for us.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise as_failure(exc) from None
        finally:
            # What is raised here knows this frame: the two would keep each other alive, with whatever the error holds.
            del answer, asked

    async def _ask(self, question: Callable[[], list[Row] | list[list[Row]] | None]) -> list[Row]:
        return cast("list[Row]", await self._ask_store(question))


def _put_off(row: Row, due_at: float, *, tries: int) -> Step:
    """Return the change that lets a notice that was taken come up again; `tries` is how often it was tried by then."""
    return Step("postpone_notice", (due_at, tries, row[0], cast("int", row[-1]) + 1))


def _caught(call: Call, returned: Callable[[], None]) -> object:
    """Call somebody on a thread. What is raised is returned: some of it, StopIteration for one, cannot cross to the loop."""
    try:
        return call()
    except BaseException as error:  # noqa: BLE001 - a recipient must not change anything.
        return error
    finally:
        returned()
