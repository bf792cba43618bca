# SPDX-License-Identifier: Apache-2.0
"""Stages in processes of their own: CPU-bound ones that asked for it, and jobs suspected of killing workers.

Processes are spawned, never forked. They get the stage by name (`module`, `name`) and its input as JSON, and return its output as
JSON, or a failure, classified, with its stack as text. No object of the user's is pickled. A process ends when its worker does.

The program that was started is never run again in them, as `multiprocessing` would do: without a guard it would submit its jobs
once more. So a stage of that program (`__main__`) cannot run in a process.
"""

from __future__ import annotations

import asyncio
import inspect
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from importlib import import_module
from multiprocessing import spawn
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Final, NoReturn, Protocol, TypeVar, cast

import msgspec
from msgspec import Struct

from redrive.core.signals import Finish, Signal
from redrive.engine.classifier import DEFAULT
from redrive.engine.observers import Observers, installed, set_up_process
from redrive.engine.pipeline.batch import arguments_for, results_of
from redrive.engine.pipeline.codec import codec_for, storable
from redrive.engine.pipeline.context import Context
from redrive.engine.pipeline.lanes import Lane
from redrive.engine.pipeline.resources import open_resource, resources_for
from redrive.engine.pipeline.stage import Stage
from redrive.engine.worker.dead_letter import FailedAttempt, as_failure
from redrive.engine.worker.dispatch import Dispatch
from redrive.engine.worker.job_logging import CURRENT_JOB, LogSetup, log_as, present_setup
from redrive.store.callers import RefusedSettlementError, StageTransaction, StageTransactions
from redrive.store.location import open_store
from redrive.store.protocol import Store
from redrive.store.records import Child, Settlement

T = TypeVar("T")
EndTransaction = Callable[[StageTransaction, bytes | FailedAttempt], Awaitable[T]]

ALONE_MAX: Final = 4
"""At most so many suspects run at once, each alone in its process."""


class ProcessPool(Protocol):
    """Runs stages in other processes."""

    size: int
    """How many stages run at once in processes."""

    def run(self, dispatch: Dispatch, *, is_alone: bool) -> Awaitable[bytes | Exception | FailedAttempt]:
        """Run a stage in a process; raises LostProcessError when that died."""
        ...

    def can_run(self, lane: Lane) -> bool:
        """Return whether a process can import this stage."""
        ...


class LostProcessError(Exception):
    """The process that ran a stage died."""

    def __init__(self, exit_code: int | None) -> None:
        self.exit_code = exit_code
        super().__init__(exit_code)


class FailedCommitError(Exception):
    """What a stage wrote in another process could not be committed there."""

    def __init__(self, failed: FailedAttempt) -> None:
        self.failed = failed
        super().__init__(failed)


class StageCall(Struct, frozen=True):
    """What a process is to run."""

    module: str
    function: str
    input: bytes
    context: Context
    trace: str | None = None
    """Where it is called from."""
    resources: tuple[tuple[str, str], ...] = ()
    """The functions that open the resources of its pipeline, by module and name."""
    database: str | None = None
    """Where it runs in a transaction, which stays open until `end_transaction`."""


class StageReport(Struct, frozen=True, kw_only=True):
    """What the stage returned or raised there."""

    output: bytes | None = None
    is_finish: bool = False
    """Whether the output is the job's result; this process does not know its type, the worker checks it."""
    failed: FailedAttempt | None = None
    notes: dict[str, str] = {}
    usage: dict[str, float] = {}
    children: list[Child] = []


_RESULT: Final = codec_for("result", None)
_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODE_CALL: Final = msgspec.msgpack.Decoder(StageCall).decode
_DECODE_SETTLEMENT: Final = msgspec.msgpack.Decoder(Settlement).decode
_DECODE_REPORT: Final = msgspec.msgpack.Decoder(StageReport).decode


class _Spawned(SpawnProcess):
    """A process that does not run the program that was started."""

    def start(self) -> None:
        """Start it; other threads may start processes of their own meanwhile."""
        with _STARTING:
            prepared, here = spawn.get_preparation_data, threading.get_ident()

            def without_program(name: str) -> dict[str, object]:
                found = cast("dict[str, object]", prepared(name))
                if threading.get_ident() == here:
                    found.pop("init_main_from_name", None)
                    found.pop("init_main_from_path", None)
                return found

            spawn.get_preparation_data = without_program
            try:
                super().start()
            finally:
                spawn.get_preparation_data = prepared


class _Context(SpawnContext):
    """Starts processes that do not run the program that was started."""

    Process = _Spawned


_STARTING: Final = threading.Lock()


class Processes:
    """The processes of one worker; none is started before it is needed."""

    def __init__(self, limit: int, observers: Observers | None = None) -> None:
        self._observers = observers or Observers()
        self.size = min(limit, os.cpu_count() or 1)
        """How many stages run at once in processes; more would only wait there."""
        self._shared: ProcessPoolExecutor | None = None
        self._alone: list[ProcessPoolExecutor] = []
        self._turns = asyncio.Semaphore(ALONE_MAX)

    def can_run(self, lane: Lane) -> bool:
        """Return whether a process can import this stage: it must be a name of an importable module."""
        function = lane.stage.fn
        if is_of_program(function) or _found(function.__module__, function.__name__) is not lane.stage:
            return False
        return not lane.stage.resources or None not in map(_reference_to, lane.pipeline.resources)

    async def run(self, dispatch: Dispatch, *, is_alone: bool) -> bytes | FailedAttempt:
        """Run a stage in a process; raises LostProcessError when that died."""
        if is_alone:
            async with self._own_process() as pool:
                report = await self._run(dispatch, pool)
            return _take_over(dispatch, report)
        pool = self._shared = self._shared or self._pool(self.size)
        try:
            return _take_over(dispatch, await self._run(dispatch, pool))
        except BrokenProcessPool:
            # Its other jobs come here as well, and one of them may have made a new pool already.
            if self._shared is pool:
                self._shared = None
                pool.shutdown(wait=False)
            raise LostProcessError(None) from None

    async def run_transaction(self, dispatch: Dispatch, database: str, end: EndTransaction[T]) -> T:
        """Run a transactional stage alone in a process; `end` ends its transaction. Raises LostProcessError when the process died.

        The transaction of a process that is ended is rolled back.
        """
        async with self._own_process() as pool:
            ended = _take_over(dispatch, await self._run(dispatch, pool, database))
            return await end(LoneTransaction(pool), ended)

    @asynccontextmanager
    async def _own_process(self) -> AsyncGenerator[ProcessPoolExecutor]:
        """Give a process to one suspect; it is kept for the next one if it survives."""
        async with self._turns:
            pool = self._alone.pop() if self._alone else self._pool(1)
            try:
                yield pool
            except BrokenProcessPool:
                pool.shutdown(wait=False)
                raise LostProcessError(None) from None
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            self._alone.append(pool)

    async def _run(self, dispatch: Dispatch, pool: ProcessPoolExecutor, database: str | None = None) -> bytes:
        if self._observers.of_attempts:
            dispatch.observing = self._observers.start_attempt(dispatch.facts())
        try:
            call = _ENCODE(_call_for(dispatch, self._observers.trace_of_caller(), database))
            return await asyncio.get_running_loop().run_in_executor(pool, run_stage, call)
        finally:
            if dispatch.observing:
                self._observers.end_call(dispatch.observing)

    def close(self) -> None:
        """End the processes; one that still runs a stage ends after it, or with this process."""
        for pool in (self._shared, *self._alone):
            if pool is not None:
                pool.shutdown(wait=False, cancel_futures=True)

    def _pool(self, size: int) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            size,
            mp_context=_Context(),
            initializer=_initialise,
            initargs=(list(sys.path), present_setup(), self._observers.setups()),
        )


class LoneTransaction:
    """See `StageTransaction`: that of a stage which ran in another process. Blocks until that has ended it."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    @property
    def connection(self) -> NoReturn:
        """Refuse: it is in the other process."""
        raise AttributeError

    def settle(self, worker: str, one: Settlement) -> bool:
        """See `StageTransaction.settle`."""
        try:
            report = _DECODE_REPORT(self._pool.submit(end_transaction, worker, _ENCODE(one)).result())
        except BrokenProcessPool:
            raise LostProcessError(None) from None
        if report.failed is not None:
            raise FailedCommitError(report.failed)
        if report.output is None:
            raise RefusedSettlementError(None)
        return report.output == b"true"

    def roll_back(self) -> None:
        """See `StageTransaction.roll_back`; that of a process which is gone is rolled back already."""
        with suppress(BrokenProcessPool, RuntimeError):
            self._pool.submit(end_transaction).result()


def _call_for(dispatch: Dispatch, trace: str | None = None, database: str | None = None) -> StageCall:
    stage, pipeline = dispatch.lane.stage, dispatch.lane.pipeline
    opening = map(_reference_to, pipeline.resources) if stage.resources else ()
    return StageCall(
        stage.fn.__module__,
        stage.fn.__name__,
        dispatch.job.input,
        dispatch.context,
        trace,
        tuple(each for each in opening if each is not None),
        database,
    )


def _take_over(dispatch: Dispatch, encoded: bytes) -> bytes | FailedAttempt:
    """Take over notes, children and outcome as if the stage had run here."""
    report = _DECODE_REPORT(encoded)
    dispatch.context.notes.update(report.notes)
    dispatch.context.usage.update(report.usage)
    dispatch.context.children.extend(report.children)
    failed, stage, codes = report.failed, dispatch.lane.stage, dispatch.lane.pipeline.codes
    if failed is not None:
        if codes is None:
            return failed
        # The other process knows the stage, but not its pipeline.
        failure = codes.translate(failed.failure, stage=stage.name, idempotent=stage.is_idempotent)
        return msgspec.structs.replace(failed, failure=failure)
    output = report.output or b"null"
    if report.is_finish:
        dispatch.lane.pipeline.stages[-1].output.check(output)
        dispatch.is_finish = True
    return output


def is_of_program(function: Callable[..., object]) -> bool:
    """Return whether a function is of the program that was started, which no other process can import."""
    return function.__module__ in {"__main__", "__mp_main__"}


def _reference_to(resource: object) -> tuple[str, str] | None:
    """Return module and name of a function that opens a resource; None if no process can find it.

    A function that wraps it (`functools.wraps`) is known by its name as well: so a pipeline that is built at run time can use what
    is open in this process, and another process opens its own.
    """
    module, name = getattr(resource, "__module__", ""), getattr(resource, "__qualname__", "")
    found, each = _found(module, name), resource
    while each is not None and module != "__main__":
        if each is found:
            return module, name
        each = getattr(each, "__wrapped__", None)
    return None


def _found(module: str, name: str) -> object:
    return getattr(sys.modules.get(module), name, None)


# What follows runs in the other process.


def _initialise(path: list[str], logs: LogSetup, observers: Sequence[str] = ()) -> None:
    sys.path[:] = path
    log_as(logs)
    set_up_process(observers)
    # The worker handles signals to the whole process group; this process ends with it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(os.EX_SOFTWARE)

    threading.Thread(target=watch, name="redrive-watch", daemon=True).start()


def run_stage(encoded: bytes) -> bytes:
    """Run a stage, and return what it returned or raised."""
    call = _DECODE_CALL(encoded)
    stage = cast("Stage[..., object]", getattr(import_module(call.module), call.function))
    context = call.context
    token = CURRENT_JOB.set(context)
    ends = installed().resume_trace(call.trace)
    try:
        if call.database is not None:
            context.transaction = _begin(call.database, stage)
        value = stage.input.check(call.input)
        result = asyncio.run(_run(stage, value, call))
        if isinstance(result, Finish):
            report = StageReport(output=_RESULT.encode(result.result), is_finish=True)
        else:
            report = StageReport(output=stage.output.seal(result))
    except BaseException as raised:  # noqa: BLE001 - whatever a stage raises is a failure of its attempt.
        report = _report_of(raised, stage)
    finally:
        for end in ends:
            end()
        CURRENT_JOB.reset(token)
    # The worker needs the children of a skip, and ignores those of a failure.
    return encode_report(
        msgspec.structs.replace(report, notes=context.notes, usage=context.usage, children=context.children)
    )


def _report_of(raised: BaseException, stage: Stage[..., object]) -> StageReport:
    exc = as_failure(raised)
    failure = DEFAULT.classify(exc, idempotent=stage.is_idempotent, stage=stage.name)
    stack, frames = FailedAttempt(failure, exc).traceback()
    return StageReport(failed=FailedAttempt(failure, stack=stack, frames=frames))


_open: Final[list[tuple[Store, StageTransaction, Stage[..., object]]]] = []
"""The transaction in which a stage has run here, until it is ended."""


def _begin(database: str, stage: Stage[..., object]) -> object:
    """Begin the transaction of a stage; return the connection that it gets."""
    store = open_store(database)
    try:
        transactions = cast("StageTransactions", store.callers.stages)
        transaction = transactions.begin(is_async=stage.is_async)
    except BaseException:
        store.close()
        raise
    _open.append((store, transaction, stage))
    return transaction.connection


def end_transaction(worker: str = "", settlement: bytes | None = None) -> bytes:
    """Settle a job and commit what its stage wrote here, or roll that back.

    The output of the report is whether the lease was still the worker's; without one, the row could not be stored.
    """
    report = StageReport()
    while _open:
        store, transaction, stage = _open.pop()
        try:
            if settlement is None:
                transaction.roll_back()
            else:
                is_ours = transaction.settle(worker, _DECODE_SETTLEMENT(settlement))
                report = StageReport(output=_RESULT.encode(is_ours))
        except Exception as error:  # noqa: BLE001 - a constraint of the application may fail as late as this.
            why = error.why if isinstance(error, RefusedSettlementError) else error
            report = report if why is None else _report_of(why, stage)
        finally:
            store.close()
    return encode_report(report)


def encode_report(report: StageReport) -> bytes:
    """Encode a report; what is not Unicode in it is escaped, as it would be when it is stored."""
    try:
        return _ENCODE(report)
    except UnicodeEncodeError:
        return _ENCODE(_storable(msgspec.to_builtins(report, builtin_types=(bytes,))))


def _storable(value: object) -> object:
    """Return a value whose texts can all be encoded."""
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        return {storable(name): _storable(member) for name, member in members.items()}
    if isinstance(value, list | tuple):
        return [_storable(each) for each in cast("Sequence[object]", value)]
    return storable(value) if isinstance(value, str) else value


async def _run(stage: Stage[..., object], value: object, call: StageCall) -> object:
    extras: dict[str, object] = {} if stage.context_name is None else {stage.context_name: call.context}
    if stage.batch is not None:
        # A job that runs alone is a batch of one.
        value, extras = [value], arguments_for(stage, {}, [call.context])
    async with AsyncExitStack() as stack:
        if stage.resources:
            opening = [getattr(import_module(module), name) for module, name in call.resources]
            extras |= resources_for(stage, [await open_resource(stack, each) for each in opening])
        try:
            result = stage.fn(value, **extras)
            if inspect.isawaitable(result):
                result = await asyncio.wait_for(cast("Awaitable[object]", result), stage.timeout)
            if stage.batch is not None:
                (result,) = results_of(stage, result, 1)
        except Finish as finish:
            return finish
        is_raised = isinstance(result, Signal if stage.batch is None else BaseException)
        if is_raised and not isinstance(result, Finish):
            raise cast("BaseException", result)
        return result
