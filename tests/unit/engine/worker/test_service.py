# SPDX-License-Identifier: Apache-2.0
"""A worker with everything around it: the health port over a real socket, the log, signals, and how all of it ends."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from redrive import Context, Pipeline, Redrive, RetryPolicy, connect, stage
from redrive.engine.worker.health import CONNECTIONS_MAX, health_port
from redrive.engine.worker.job_logging import jobs_in_log_records
from redrive.engine.worker.service import Options, serve
from redrive.errors import ConfigurationError, StoreUnavailableError
from redrive.store.sqlite.store import SqliteStore
from redrive.store.statements import workers as worker_sql
from tests.unit.build import STUCK_SECONDS, bounded, one_stage

logger = logging.getLogger("shop")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def ask(port: int, request: bytes = b"GET /health HTTP/1.0\r\n\r\n") -> tuple[str, dict[str, object]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    await writer.drain()
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return head.decode(), json.loads(body) if body else {}


@pytest.mark.parametrize(("line", "word"), [("200 OK", "ok"), ("503 Service", "unwell")])
def test_the_port_reports_how_the_worker_is(line: str, word: str) -> None:
    async def scene() -> tuple[str, dict[str, object]]:
        port = free_port()
        async with health_port("127.0.0.1", port, lambda: {"status": word, "worker": "w1"}):
            return await ask(port)

    head, body = bounded(scene())
    assert line in head
    assert "application/json" in head
    assert body == {"status": word, "worker": "w1"}


@pytest.mark.parametrize("request_bytes", [b"x" * 20_000, b"GET / HTT"])
def test_a_request_that_is_none_gets_no_answer_and_hurts_nobody(request_bytes: bytes) -> None:
    async def scene() -> tuple[bytes, str]:
        port = free_port()
        async with health_port("127.0.0.1", port, lambda: {"status": "ok"}):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request_bytes)
            writer.write_eof()
            try:
                answer = await reader.read()
            except ConnectionResetError:
                answer = b""
            writer.close()
            return answer, (await ask(port))[0]

    answer, after = bounded(scene())
    assert answer == b""
    assert "200 OK" in after


def test_a_port_that_is_taken_is_refused_by_name(filed: Redrive) -> None:
    pipeline = one_stage(lambda number: number, name="plain")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = taken.getsockname()
        with pytest.raises(ConfigurationError, match="cannot be listened on") as refused:
            filed.work([pipeline], until_idle=True, health=address)

    assert refused.value.field == "health"
    assert filed.store.query(worker_sql.workers()) == []


def test_a_worker_is_well_while_its_heartbeat_reaches_the_store_and_unwell_after_a_lease_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path / "jobs.db")

    def unreachable(*_args: object) -> object:
        raise StoreUnavailableError(database="x", cause="gone")

    async def scene() -> list[tuple[str, dict[str, object]]]:
        port, options = free_port(), {"concurrency": 3, "lease": 0.05}
        pipeline = one_stage(lambda number: number, name="plain")
        running = asyncio.ensure_future(
            serve(store, [pipeline], Options(health=("127.0.0.1", port), **options))  # type: ignore[arg-type]
        )
        answers = [await _first_answer(port)]
        monkeypatch.setattr(store, "renew", unreachable)
        while "503" not in (answer := await ask(port))[0]:
            pass
        answers.append(answer)
        monkeypatch.undo()
        while "200" not in (answer := await ask(port))[0]:
            pass
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return answers

    well, unwell = bounded(scene())
    store.close()
    assert "200" in well[0]
    assert well[1]["concurrency"] == 3
    assert str(well[1]["worker"]).startswith("worker-")
    assert unwell[1]["status"] == "unwell"
    assert float(str(unwell[1]["seconds_since_contact"])) >= 0.05


async def _first_answer(port: int) -> tuple[str, dict[str, object]]:
    while True:
        try:
            return await ask(port)
        except ConnectionRefusedError:
            await asyncio.sleep(0)


class Lines(logging.Handler):
    """Keeps what was logged as a format would show it."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter(form))
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


def logged(
    run: Callable[[], object], form: str = "%(job_id)s %(pipeline)s %(stage)s %(attempt)s %(message)s"
) -> list[str]:
    lines = Lines(form)
    logger.addHandler(lines)
    try:
        run()
    finally:
        logger.removeHandler(lines)
    return lines.lines


def test_every_line_that_a_stage_logs_names_its_job(filed: Redrive) -> None:
    @stage
    def one(number: int) -> int:
        logger.warning("sync")
        return number

    @stage
    async def two(number: int) -> int:
        logger.warning("async")
        return number

    pipeline = Pipeline("shop", [one, two])
    job = filed.submit(pipeline, 1)
    lines = logged(lambda: filed.work([pipeline], until_idle=True))

    assert lines == [f"{job.id} shop one 1 sync", f"{job.id} shop two 1 async"]


def test_outside_a_stage_the_names_are_there_and_empty_and_in_short_all_is_one_word() -> None:
    context = Context(job_id=7, pipeline="shop", stage="one", attempt=2)
    from redrive.engine.worker.job_logging import CURRENT_JOB

    def talk() -> None:
        with jobs_in_log_records():
            logger.warning("nobody")
            token = CURRENT_JOB.set(context)
            logger.warning("somebody")
            CURRENT_JOB.reset(token)

    assert logged(talk, "%(job)s%(job_id)s|%(message)s") == [
        "|nobody",
        "[job 7 shop.one attempt 2] 7|somebody",
    ]


def test_a_record_factory_of_somebody_else_is_left_alone() -> None:
    class Own(logging.LogRecord):
        """A record of the application's own."""

    logging.setLogRecordFactory(Own)
    try:
        with jobs_in_log_records():
            assert logging.getLogRecordFactory() is Own
        assert logging.getLogRecordFactory() is Own
    finally:
        logging.setLogRecordFactory(logging.LogRecord)


def test_when_one_of_two_workers_ends_the_records_of_the_other_still_name_their_job() -> None:
    first, second = jobs_in_log_records(), jobs_in_log_records()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    try:
        assert logged(lambda: logger.warning("hello"), "%(job)s%(message)s") == ["hello"]
    finally:
        second.__exit__(None, None, None)
    assert logging.getLogRecordFactory() is logging.LogRecord


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_what_runs_end_and_starts_nothing_more(filed: Redrive, number: signal.Signals) -> None:
    assert threading.current_thread() is threading.main_thread()
    ran: list[int] = []

    def stop(given: int) -> int:
        ran.append(given)
        os.kill(os.getpid(), number)
        return given

    pipeline = one_stage(stop)
    filed.submit_many(pipeline, range(5))

    assert filed.work([pipeline], concurrency=1) == "stopped"
    assert filed.jobs.counts()["complete"] == len(ran) < 5
    assert filed.store.query(worker_sql.workers()) == []


def test_after_the_work_signals_mean_what_they_meant_before(filed: Redrive) -> None:
    pipeline = one_stage(lambda number: number, name="plain")

    async def scene() -> tuple[object, object]:
        before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
        async with connect(filed.store._path) as rd:  # type: ignore[attr-defined]
            await rd.work([pipeline], until_idle=True)
        return before, [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]

    before, after = bounded(scene())
    assert after == before


def test_work_can_be_done_on_a_thread_that_gets_no_signals(filed: Redrive) -> None:
    pipeline = one_stage(lambda number: number, name="plain")
    filed.submit(pipeline, 1)
    endings: list[str] = []
    thread = threading.Thread(target=lambda: endings.append(filed.work([pipeline], until_idle=True)))
    thread.start()
    thread.join(STUCK_SECONDS)

    assert endings == ["idle"]


def test_a_worker_is_registered_with_what_it_is_while_it_works(filed: Redrive) -> None:
    seen: list[tuple[object, ...]] = []

    def look(number: int) -> int:
        seen.extend(filed.store.query(worker_sql.workers()))
        return number

    pipeline = one_stage(look)
    filed.submit(pipeline, 1)
    filed.work([pipeline], until_idle=True, concurrency=5)

    ((name, host, process, pipelines, concurrency, *_, held),) = seen
    assert str(name).startswith("worker-")
    assert (host != "", process, pipelines, concurrency, held) == (True, os.getpid(), '["shop"]', 5, 1)
    assert filed.store.query(worker_sql.workers()) == []


def test_what_a_heartbeat_brings_reaches_the_running_stage(filed: Redrive) -> None:
    def endless(_number: int, ctx: Context) -> None:
        filed.jobs.cancel(ctx.job_id)
        while True:
            ctx.heartbeat()

    pipeline = one_stage(endless)
    job = filed.submit(pipeline, 1)
    filed.work([pipeline], until_idle=True, lease=0.1)

    assert job.status == "cancelled"


def test_a_worker_leaves_the_process_as_it_found_it(tmp_path: Path) -> None:
    seen: list[tuple[float, int]] = []

    @stage
    def look(number: int) -> int:
        seen.append((sys.getswitchinterval(), gc.get_threshold()[0]))
        return number

    pipeline = Pipeline("looks", [look])
    before = sys.getswitchinterval(), gc.get_threshold()
    with connect(tmp_path / "looks.db") as rd:
        rd.submit(pipeline, 1)
        rd.work([pipeline], until_idle=True)

    assert (sys.getswitchinterval(), gc.get_threshold()) == before
    assert seen[0][0] < before[0]
    assert seen[0][1] > before[1][0]


class Refusal(Exception):
    """A failure that could hold an open connection."""


def refuse(number: int) -> int:
    raise Refusal(number)


async def refuse_later(number: int) -> int:
    await asyncio.sleep(0)
    raise Refusal(number)


@pytest.mark.untraced
@pytest.mark.parametrize("function", [refuse, refuse_later])
def test_a_failure_that_was_settled_leaves_no_cyclic_garbage(
    tmp_path: Path, function: Callable[[int], object]
) -> None:
    pipeline = Pipeline("refuses", [stage(retry=RetryPolicy(1))(function)])
    gc.disable()
    try:
        with connect(tmp_path / "refuses.db") as rd:
            rd.submit_many(pipeline, range(3))
            rd.work([pipeline], until_idle=True)
            alive = [thing for thing in gc.get_objects() if issubclass(type(thing), Refusal)]
    finally:
        gc.enable()

    assert alive == []


def test_a_process_that_collects_nothing_keeps_to_that(tmp_path: Path) -> None:
    seen: list[int] = []

    @stage
    def look(number: int) -> int:
        seen.append(gc.get_threshold()[0])
        return number

    pipeline = Pipeline("looks", [look])
    before = gc.get_threshold()
    gc.set_threshold(0)
    try:
        with connect(tmp_path / "looks.db") as rd:
            rd.submit(pipeline, 1)
            rd.work([pipeline], until_idle=True)
        assert (seen, gc.get_threshold()[0]) == ([0], 0)
    finally:
        gc.set_threshold(*before)


def test_idle_connections_neither_use_up_descriptors_nor_keep_the_supervisor_out() -> None:
    async def scene() -> tuple[str, int]:
        port = free_port()
        async with health_port("127.0.0.1", port, lambda: {"status": "ok"}):
            idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS_MAX + 8)]
            head, _ = await ask(port)
            ends = asyncio.gather(*(reader.read() for reader, _ in idle[:9]), return_exceptions=True)
            closed = await asyncio.wait_for(ends, 5)
            for _, writer in idle:
                writer.close()
        return head.split()[1], len(closed)

    assert bounded(scene()) == ("200", 9)
