# SPDX-License-Identifier: Apache-2.0
"""Deliver notices to hooks (failed attempts, ends of runs), sinks (dead letters) and both (breakers), after the commit of each.

A change writes one notice per recipient in its own transaction. A worker that takes a notice hides it from others for a while
and drops it after delivery. If the recipient raises, the notice is due again after a growing pause; if the worker dies, when it is
no longer hidden. So delivery is at least once, and in order for one letter: a change waits until the one before it was delivered.
Recipients do not wait for each other, and change no outcome; a notice for a sink that this worker does not have stays for other
workers.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final

from redrive.engine.clock import Clock
from redrive.engine.delivery.messages import breaker_change, event_of, sunk_letter
from redrive.engine.delivery.recipients import Recipient, pause, recipients_of
from redrive.engine.error_text import error_text
from redrive.engine.outage import Outage
from redrive.engine.pipeline.lanes import Lane
from redrive.engine.runs.runs import Runs
from redrive.engine.worker.dead_letter import as_failure
from redrive.engine.worker.threads import AskStore, BlockingCall
from redrive.errors import StoreError
from redrive.redaction.process import redact
from redrive.sinks.base import wants_values
from redrive.store.protocol import Store
from redrive.store.records import LaneId, Settlement, Step
from redrive.store.statements import outbox as outbox_sql
from redrive.store.statements import runs as run_sql
from redrive.store.statements.outbox import Notice

logger = logging.getLogger("redrive.hooks")

BATCH: Final = 20
HOOK_SECONDS: Final = 30.0
"""How long a hook may take, or a sink for one letter."""
HIDDEN_SECONDS: Final = 60.0
"""How long notices are hidden from others during delivery; those not delivered within half of that are taken again."""
LOOK_SECONDS: Final = 30.0
FLUSH_SECONDS: Final = 5.0
UNRETURNED_MAX: Final = 4
"""How many calls of one recipient may be unreturned at a time; each that hangs occupies a thread."""

RECEIPT_MAX: Final = 200
"""Characters of a receipt that are kept."""

Call = Callable[[], Awaitable[object] | object]


class Delivery:
    """Delivers the notices of one worker's pipelines to their hooks and sinks."""

    def __init__(
        self,
        store: Store,
        lanes: Mapping[LaneId, Lane],
        clock: Clock,
        *,
        ask_store: AskStore,
        call: BlockingCall,
        breaker_changes: Callable[[], int] = lambda: 0,
    ) -> None:
        self._store = store
        self._recipients = recipients_of(lanes)
        self._clock = clock
        self._ask_store = ask_store
        self._call = call
        self._breaker_changes = breaker_changes
        self._changes_seen = 0
        self._unreturned: dict[Recipient, set[object]] = {each: set() for each in self._recipients}
        """An object for each call that has not returned, even if nothing waits for it any more."""

    def committed(self, done: list[Settlement]) -> None:
        """Wake the recipients if settlements with notices were committed, or may have changed a letter or a breaker."""
        if not self._recipients:
            return
        changes = self._breaker_changes()
        if changes != self._changes_seen or any(one.recipients or one.job.round > 1 for one in done):
            self._changes_seen = changes
            self.wake()

    def wake(self) -> None:
        """Look for notices at once."""
        for recipient in self._recipients:
            recipient.wake.set()

    async def run(self) -> None:
        """Deliver notices until cancelled, to each recipient at its own pace."""
        await asyncio.gather(*(self._deliver_forever(recipient) for recipient in self._recipients))

    async def _deliver_forever(self, recipient: Recipient) -> None:
        outage = Outage(logger)
        while True:
            recipient.wake.clear()
            if recipient.next_at <= self._clock.wall():
                # Otherwise it stays: a look before that time finds nothing due, and must not forget when to look again.
                recipient.next_at = math.inf
            try:
                while await self._deliver_batches(recipient):
                    pass
                outage.answered()
            except StoreError as error:
                outage.failed("delivery of notices: store unavailable: %s", error)
            except Exception as error:  # noqa: BLE001 - otherwise this recipient would never get another notice.
                logger.warning("delivery of notices failed: %s", error_text(error))
            wait = max(0.0, recipient.next_at - self._clock.wall())
            with suppress(TimeoutError):
                async with asyncio.timeout(min(LOOK_SECONDS, wait)):
                    await recipient.wake.wait()

    async def flush(self) -> None:
        """Deliver what is left before the worker ends; what cannot be delivered now stays for other workers."""
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                while await self.deliver():
                    pass
        except (StoreError, TimeoutError):
            pass
        except Exception as error:  # noqa: BLE001 - the worker's own work is already committed.
            logger.warning("notices not delivered; other workers will deliver them: %s", error_text(error))

    async def close(self) -> None:
        """Close the sinks that can be closed, such as their connections."""
        for recipient in self._recipients:
            close = getattr(recipient.sink, "close", None)
            if close is None:
                continue
            try:
                async with asyncio.timeout(FLUSH_SECONDS):
                    await self._call_recipient(recipient, close)
            except Exception as error:  # noqa: BLE001 - the worker ends anyway.
                logger.warning("sink %s not closed: %s", recipient.name, error_text(error))

    async def deliver(self) -> int:
        """Deliver one batch of notices per recipient and lane; return how many there were."""
        deliveries = (self._deliver_batches(recipient) for recipient in self._recipients)
        counts = await asyncio.gather(*deliveries, return_exceptions=True)
        for each in counts:
            if isinstance(each, BaseException):
                raise each
        return sum(each for each in counts if isinstance(each, int))

    async def _deliver_batches(self, recipient: Recipient) -> int:
        count = 0
        async with recipient.lock:
            for lane in recipient.lanes:
                now = self._clock.wall()
                if self._is_paused(recipient, now):
                    recipient.next_at = min(recipient.next_at, recipient.paused_until)
                    break
                due = outbox_sql.notices_for(lane=lane.id, recipient=recipient.name, now=now, limit=BATCH)
                notices = await self._ask_store(functools.partial(self._store.query, due))
                if notices and await self._take(notices, now + HIDDEN_SECONDS):
                    count += len(notices)
                    await self._deliver_batch(recipient, lane, notices)
        return count

    def _is_paused(self, recipient: Recipient, now: float) -> bool:
        """Return whether a recipient is paused: it failed too often, or too many of its calls have not returned."""
        unreturned = len(self._unreturned[recipient])
        if unreturned >= UNRETURNED_MAX and recipient.paused_until <= now:
            recipient.paused_until = now + HOOK_SECONDS
            logger.warning(
                "%s of pipeline %s is paused: %d calls have not returned. Give it a timeout of its own.",
                "the hook" if recipient.sink is None else f"sink {recipient.name}",
                recipient.lanes[0].pipeline.name,
                unreturned,
            )
        return recipient.paused_until > now

    async def _take(self, notices: list[Notice], hidden_until: float) -> bool:
        """Hide notices from others; return False when another worker took one of them first."""
        takes = [
            outbox_sql.take_notice(hidden_until=hidden_until, notice=each.id, tries=each.tries).touching(1)
            for each in notices
        ]
        return await self._ask_store(lambda: self._store.apply(*takes)) is not None

    async def _deliver_batch(self, recipient: Recipient, lane: Lane, notices: list[Notice]) -> None:
        """Deliver taken notices, and record the result of each."""
        began_at = self._clock.wall()
        after: list[Step] = []
        for notice in notices:
            now = self._clock.wall()
            is_late = now - began_at > HIDDEN_SECONDS - HOOK_SECONDS
            if is_late or self._is_paused(recipient, now):
                due_at = max(now, recipient.paused_until)
                # Returned with the same count of tries: it was not tried.
                after.append(_postponed(notice, due_at, tries=notice.tries))
            elif (delivered := await self._deliver_one(recipient, lane, notice)) is not None:
                recipient.failures = 0
                after += delivered
            else:
                now, tries = self._clock.wall(), notice.tries + 1
                recipient.failed(now)
                due_at = now + pause(tries)
                recipient.next_at = min(recipient.next_at, due_at)
                after.append(_postponed(notice, due_at, tries=tries))
        await self._ask_store(lambda: self._store.apply(*after))

    async def _deliver_one(self, recipient: Recipient, lane: Lane, notice: Notice) -> list[Step] | None:
        """Deliver one notice; return the steps that record it, None if it failed. What a recipient raises changes nothing else."""
        about, now = _about(notice), self._clock.wall()
        try:
            what, call = await self._prepare(recipient, lane, notice)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - otherwise the notices before it would be delivered again and again.
            logger.warning("a notice of %s cannot be delivered: %s", about, error_text(error))
            return None
        if call is None:
            return _delivered(recipient, notice, None, now)
        try:
            async with asyncio.timeout(HOOK_SECONDS):
                answer = await self._call_recipient(recipient, call)
        except Exception as error:  # noqa: BLE001 - a recipient must not change anything.
            # A sink that gets values may quote them in its error, so only the class is logged.
            gets_values = recipient.sink is not None and wants_values(recipient.sink)
            text = type(error).__name__ if gets_values else error_text(error)
            logger.warning("%s of %s raised %s", what, about, text)
            return None
        return _delivered(recipient, notice, answer, now)

    async def _prepare(self, recipient: Recipient, lane: Lane, notice: Notice) -> tuple[str, Call | None]:
        """Return the name of the recipient and the call; None when there is nothing to deliver, or the hook no longer exists."""
        sink, now = recipient.sink, self._clock.wall()
        if notice.run is not None:
            read_run = functools.partial(self._store.query, run_sql.run(run=notice.run))
            hear_run = lane.pipeline.on_run_end if await self._ask_store(read_run) else None
            if hear_run is None:
                return "hook on_run_end", None
            report = await self._ask_store(functools.partial(Runs(self._store).report, notice.run))
            return "hook on_run_end", functools.partial(hear_run, report)
        if notice.change is not None:
            change = await self._ask_store(functools.partial(breaker_change, self._store, notice, now=now))
            hear = lane.pipeline.on_breaker if sink is None else getattr(sink, "deliver_breaker", None)
            what = "hook on_breaker" if sink is None else f"sink {recipient.name}"
            return what, None if change is None or hear is None else functools.partial(hear, change)
        if sink is None:
            event = await self._ask_store(functools.partial(event_of, self._store, lane, notice))
            hook = None if event is None else lane.pipeline.hooks.get(event.kind)
            what = f"hook on_{notice.outcome}"
            return what, None if hook is None or event is None else functools.partial(hook, event)
        letter = await self._ask_store(
            functools.partial(sunk_letter, self._store, lane, notice, now=now, sink=sink)
        )
        what = f"sink {recipient.name} with the dead letter"
        return what, None if letter is None else functools.partial(sink.deliver, letter)

    async def _call_recipient(self, recipient: Recipient, call: Call) -> object:
        """Call a hook or a sink and return its answer; whatever it raises, even SystemExit, becomes an ordinary error."""
        key, unreturned = object(), self._unreturned[recipient]
        unreturned.add(key)
        try:
            pending = self._call(functools.partial(_caught, call, functools.partial(unreturned.discard, key)))
        except BaseException:
            # There is no thread for it.
            unreturned.discard(key)
            raise
        answer = await pending
        try:
            if isinstance(answer, BaseException):
                raise as_failure(answer)
            return await answer if inspect.isawaitable(answer) else answer
        except asyncio.CancelledError as exc:
            # The recipient may have waited for a task that was cancelled; only a cancellation of this task is ours.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise as_failure(exc) from None
        finally:
            # An exception raised here refers to this frame; without this, the two would keep each other alive.
            del answer, pending


def _delivered(recipient: Recipient, notice: Notice, answer: object, now: float) -> list[Step]:
    """Return the steps that drop a notice, and store what a sink answered about a letter."""
    drop = outbox_sql.drop_notice(notice=notice.id)
    if recipient.sink is None or notice.letter is None or not isinstance(answer, str):
        return [drop]
    receipt = redact(answer)[:RECEIPT_MAX]
    if not receipt:
        return [drop]
    return [drop, outbox_sql.put_receipt(letter=notice.letter, sink=recipient.name, receipt=receipt, now=now)]


def _about(notice: Notice) -> str:
    if notice.run is not None:
        return f"run {notice.run}"
    return f"job {notice.job}" if notice.change is None else f"change {notice.change} of a breaker"


def _postponed(notice: Notice, due_at: float, *, tries: int) -> Step:
    """Return the step that makes a taken notice due again; `tries` is how often it was tried so far."""
    return outbox_sql.postpone_notice(
        due_at=due_at, tries=tries, notice=notice.id, tries_before=notice.tries + 1
    )


def _caught(call: Call, returned: Callable[[], None]) -> object:
    """Call a recipient on a thread. Return what it raises: some exceptions, such as StopIteration, cannot cross to the loop."""
    try:
        return call()
    except BaseException as error:  # noqa: BLE001 - a recipient must not change anything.
        return error
    finally:
        returned()
