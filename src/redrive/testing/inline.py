# SPDX-License-Identifier: Apache-2.0
"""`run_inline`: a pipeline in a test, with a real worker on a store in memory and virtual time.

`inline_worker` runs the job; here are the sync and the async function. In sync tests it has its own loop, on which async stages
run and all time is virtual, while sync stages run in this thread without a running loop, as they would in a worker. In async
tests it uses their loop, so that clients made there work, and sync stages run on a thread.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from redrive.engine.pipeline.pipeline import Pipeline, check_pipeline
from redrive.engine.pipeline.submission import encoded_payload
from redrive.engine.runtime import CURRENT, Runtime
from redrive.errors import ConfigurationError
from redrive.testing.clock import VirtualClock, virtual_time
from redrive.testing.faults import INLINE, Faults
from redrive.testing.inline_worker import run_job
from redrive.testing.loop import VirtualLoop
from redrive.testing.results import InlineResult

Resources = Sequence[object] | Literal["open"]
"""Objects for the stages, or the word that opens the real ones."""


def run_inline(
    pipeline: Pipeline, payload: object, *, faults: Faults | None = None, resources: Resources = ()
) -> InlineResult:
    """Run a pipeline's stages on one payload, one after the other in this thread, and return everything that happened.

    A real worker claims, decides, retries, holds and makes dead letters, on a store in memory; only waiting is virtual, for async
    stages also their own `asyncio.sleep` and the stage's timeout. Sinks get nothing; jobs that stages submit are not run.
    Inside `virtual_time()` that clock and its chance are used; otherwise fresh ones. `resources` are passed to stages by type
    instead of those of the pipeline; `resources="open"` opens the real ones, which nothing else does.

    Raises:
        SerializationError: the payload does not fit the first stage.
        ConfigurationError: a fault or a resource does not fit the pipeline, or this is async code.
    """
    _refuse_on_a_loop()
    check_pipeline("run_inline(pipeline)", pipeline)
    check_resources(pipeline, resources)
    pipeline = pipeline if faults is None else faults.on(pipeline)
    encoded = encoded_payload(pipeline, payload)
    with _virtual() as (runtime, clock), _loop_on(clock) as loop:
        caller = _CallerThread()
        running = loop.run(
            _started(run_job(pipeline, encoded, runtime, resources=resources, call=caller.call))
        )
        while (waiting := loop.run(caller.next_call(running))) is not None:
            work, answer = waiting
            # What is not a failure of a stage (an interrupt, a test that fails inside) is raised from here.
            try:
                answer.set_result(contextvars.copy_context().run(work))
            except Exception as error:  # noqa: BLE001 - raised where it is waited for.
                answer.set_exception(error)
        return running.result()


async def arun_inline(
    pipeline: Pipeline, payload: object, *, faults: Faults | None = None, resources: Resources = ()
) -> InlineResult:
    """Do what `run_inline` does, on the running loop.

    Sync stages run on a thread. redrive's own waits are virtual; waits of the loop are real, so `asyncio.sleep` in a stage takes
    its time, and a stage's timeout counts both.
    """
    check_pipeline("arun_inline(pipeline)", pipeline)
    check_resources(pipeline, resources)
    pipeline = pipeline if faults is None else faults.on(pipeline)
    encoded = encoded_payload(pipeline, payload)
    with _virtual() as (runtime, _):
        return await run_job(pipeline, encoded, runtime, resources=resources, call=asyncio.to_thread)


def check_resources(pipeline: Pipeline, resources: Resources) -> None:
    """Refuse to open real clients and pools in a test that has not asked for them."""
    if not resources and any(callable(each) for each in pipeline.resources):
        raise ConfigurationError(
            field="run_inline(resources)",
            value=f"the resources of {pipeline.name}",
            rule="would be opened for real",
            fix='Pass objects of the test, resources=[FakeClient()], or resources="open".',
        )


def _loop_on(clock: VirtualClock) -> asyncio.Runner:
    return asyncio.Runner(loop_factory=functools.partial(VirtualLoop, clock))


@contextmanager
def _virtual() -> Generator[tuple[Runtime, VirtualClock]]:
    """Use the current virtual time, or start one; set `INLINE`, so that an injected crash does not end the process."""
    runtime = CURRENT.get()
    token = INLINE.set(True)
    try:
        if isinstance(runtime.clock, VirtualClock):
            yield runtime, runtime.clock
            return
        with virtual_time() as clock:
            yield CURRENT.get(), clock
    finally:
        INLINE.reset(token)


async def _started(job: Coroutine[object, object, InlineResult]) -> asyncio.Task[InlineResult]:
    """Return a task that continues whenever the loop runs, so that one task opens and closes the resources."""
    return asyncio.ensure_future(job)


_SyncCall = tuple[Callable[[], object], asyncio.Future[object]]
"""A sync function that the job waits for, and where its answer goes."""


class _CallerThread:
    """Passes sync functions from the loop to the thread that runs it, between two of its iterations."""

    def __init__(self) -> None:
        self._calls: asyncio.Queue[_SyncCall] = asyncio.Queue()

    async def call(self, work: Callable[[], Any]) -> Any:
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._calls.put_nowait((work, answer))
        return await answer

    async def next_call(self, running: asyncio.Task[InlineResult]) -> _SyncCall | None:
        """Return the next function to call; None when the job has ended."""
        waiting = asyncio.ensure_future(self._calls.get())
        await asyncio.wait({waiting, running}, return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            return waiting.result()
        waiting.cancel()
        return None


def _refuse_on_a_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigurationError(
        field="run_inline",
        value="a running event loop",
        rule="cannot be called from async code",
        fix="Write: await arun_inline(...).",
    )
