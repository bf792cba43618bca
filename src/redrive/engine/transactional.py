# SPDX-License-Identifier: Apache-2.0
"""Runs stages in transactions of the store's database, and commits what they wrote with the settlement of their job.

What succeeded, finished or was skipped is committed, behind the fence; whatever else happens is rolled back, and settled as for any
other stage. A settlement whose commit was not answered is never repeated: a failure is settled instead, and the fence refuses it if
the commit took place after all. A job that is suspected of killing workers has its transaction, too, in a process of its own.
Nothing here decides what becomes of a job.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Final, Literal, NamedTuple

from redrive.engine.daemon_threads import DaemonThreads
from redrive.engine.worker.dead_letter import FailedAttempt
from redrive.engine.worker.dispatch import ENDING, IN_PROCESS, RUNNING, SUSPECT_MIN, Dispatch
from redrive.engine.worker.processes import FailedCommitError, LostProcessError, Processes, ProcessPool
from redrive.engine.worker.runner import Runner
from redrive.engine.worker.threads import ThreadPool
from redrive.errors import StoreError
from redrive.store.callers import RefusedSettlementError, StageTransaction, StageTransactions
from redrive.store.protocol import Store
from redrive.store.records import Settlement

logger = logging.getLogger("redrive.worker")

KEPT: Final = frozenset({"ok", "skipped"})
"""Outcomes with which a stage's writes are committed."""


class Ended(NamedTuple):
    """How a transactional run ended: `settlement` is committed, or lost to another lease, or still to be committed."""

    settlement: Settlement
    how: Literal["committed", "lost", "open"]


class TransactionalRuns:
    """Runs the transactional stages of a worker."""

    def __init__(
        self,
        store: Store,
        runner: Runner,
        threads: ThreadPool,
        processes: ProcessPool,
        *,
        worker: Callable[[], str],
    ) -> None:
        self._store = store
        self._runner = runner
        self._threads = threads
        self._processes = processes
        self._worker = worker
        # Their own: a commit may wait for a lock, and must not wait for a thread.
        self._commits = DaemonThreads("redrive-transaction")

    async def run(self, dispatch: Dispatch) -> Ended:
        """Run a stage in a transaction, and end that with it."""
        processes = self._processes
        # Not every pool can keep a transaction.
        if (
            dispatch.job.suspects >= SUSPECT_MIN
            and isinstance(processes, Processes)
            and processes.can_run(dispatch.lane)
        ):
            return await self._run_alone(dispatch, processes)
        is_async = dispatch.lane.stage.is_async
        # A thread cannot be cancelled.
        dispatch.state = RUNNING if is_async else IN_PROCESS
        try:
            transaction = await self._begin(is_async=is_async)
        except StoreError as error:
            return Ended(await self._runner.decide(dispatch, error), "open")
        dispatch.context.transaction = transaction.connection
        if not is_async:
            return await self._end(dispatch, transaction, await self._run_on_thread(dispatch, transaction))
        try:
            ended = await self._runner.run_async(dispatch)
        except BaseException:
            self._roll_back(transaction)
            raise
        return await self._end(dispatch, transaction, ended)

    async def _run_alone(self, dispatch: Dispatch, processes: Processes) -> Ended:
        """Run the stage of a suspect, transaction and all, in a process of its own."""
        dispatch.state = IN_PROCESS
        try:
            return await processes.run_transaction(
                dispatch, self._transactions().database, partial(self._end, dispatch)
            )
        except LostProcessError as died:
            # It may have died after the commit: then the fence refuses this.
            dispatch.state = max(dispatch.state, ENDING)
            crashed = await self._runner.decide_crashed(dispatch, is_alone=True, exit_code=died.exit_code)
            return Ended(crashed, "open")

    def _transactions(self) -> StageTransactions:
        transactions = self._store.callers.stages
        if transactions is None:
            # `lanes_of` has refused the stage.
            raise LookupError
        return transactions

    async def _begin(self, *, is_async: bool) -> StageTransaction:
        begin = partial(self._transactions().begin, is_async=is_async)
        asked = self._commits.ask(begin)
        try:
            return await asyncio.shield(asked)
        except asyncio.CancelledError:
            asked.add_done_callback(self._undo)
            raise

    def _undo(self, begun: asyncio.Future[StageTransaction]) -> None:
        """Roll back what was begun for a stage that will not run."""
        if begun.exception() is None:
            self._roll_back(begun.result())

    async def _run_on_thread(self, dispatch: Dispatch, transaction: StageTransaction) -> bytes | Exception:
        answer: asyncio.Future[bytes | Exception] = asyncio.get_running_loop().create_future()
        # When everything is given up while it runs, whoever is last rolls back: the thread uses the connection until it returns,
        # and the loop may have ended by then.
        turn = count()

        def work(of: Dispatch) -> bytes | Exception:
            ended = self._runner.run_sync(of)
            if next(turn):
                transaction.roll_back()
            return ended

        def done(_: Dispatch, ended: bytes | Exception) -> None:
            if not answer.done():
                answer.set_result(ended)

        self._threads.start(work, dispatch, done)
        try:
            return await answer
        except BaseException:
            if next(turn):
                self._roll_back(transaction)
            raise

    async def _end(
        self, dispatch: Dispatch, transaction: StageTransaction, ended: bytes | Exception | FailedAttempt
    ) -> Ended:
        """Decide what becomes of the job, and commit or roll back what its stage wrote."""
        dispatch.state = max(dispatch.state, ENDING)
        try:
            settlement = await self._runner.decide(dispatch, ended)
        except BaseException:
            self._roll_back(transaction)
            raise
        if settlement.outcome not in KEPT:
            await self._commits.ask(transaction.roll_back)
            return Ended(settlement, "open")
        try:
            is_ours = await self._commits.ask(partial(transaction.settle, self._worker(), settlement))
        except LostProcessError:
            raise
        except FailedCommitError as error:
            return Ended(self._runner.decide_refused(settlement, dispatch.lane, error.failed), "open")
        except RefusedSettlementError as error:
            return Ended(self._runner.decide_refused(settlement, dispatch.lane, error.why), "open")
        except Exception as error:  # noqa: BLE001 - a constraint of the application may fail as late as this.
            return Ended(self._runner.decide_refused(settlement, dispatch.lane, error), "open")
        if is_ours:
            return Ended(settlement, "committed")
        logger.warning("job %s: its lease was lost, what its stage wrote is rolled back", dispatch.job.id)
        return Ended(settlement, "lost")

    def _roll_back(self, transaction: StageTransaction) -> None:
        """Roll back, without waiting for it."""
        _ = self._commits.ask(transaction.roll_back)
