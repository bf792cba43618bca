# SPDX-License-Identifier: Apache-2.0
"""Halves of pairs, as file names hold them: a stage in a process keeps its outcome, as it does on a thread."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from redrive import Redrive
from redrive.core.fingerprint import Frame
from redrive.engine.classifier import DEFAULT
from redrive.engine.pipeline.lanes import Lane
from redrive.engine.worker.dead_letter import FailedAttempt
from redrive.engine.worker.dispatch import Dispatch
from redrive.engine.worker.processes import StageReport, _call_for, _take_over, encode_report, run_stage
from redrive.engine.worker.slots import WorkerParts
from redrive.store.sqlite.store import SqliteStore
from tests.inline import InlineThreads, at_once
from tests.unit.build import attempts, jobs, letters, work

from .process_stages import NAMING


class Here:
    """Does in this process, and on the way there and back, what would be done in another one."""

    size = 1

    def can_run(self, _lane: Lane) -> bool:
        return True

    async def run(self, dispatch: Dispatch, *, is_alone: bool) -> bytes | FailedAttempt:
        order = msgspec.msgpack.encode(_call_for(dispatch))
        return _take_over(dispatch, await asyncio.get_running_loop().run_in_executor(None, run_stage, order))


def work_off_here(store: SqliteStore) -> None:
    work(store, NAMING, parts=WorkerParts(ask_store=at_once, threads=InlineThreads(), processes=Here()))


@pytest.mark.usefixtures("clock")
def test_a_retryable_failure_that_names_such_a_file_is_retried(store: SqliteStore, rd: Redrive) -> None:
    rd.submit(NAMING, "reset")
    work_off_here(store)

    assert attempts(store, "outcome, code") == [("retry", "NETWORK_RESET"), ("dead", "NETWORK_RESET")]
    assert letters(store, "message") == [(r"gone: na\udce9f.txt",)]
    ((stack,),) = letters(store, "stack")
    assert r"gone: na\udce9f.txt" in str(stack)


@pytest.mark.usefixtures("clock")
def test_a_stage_that_noted_such_a_name_is_done(store: SqliteStore, rd: Redrive) -> None:
    rd.submit(NAMING, "note")
    work_off_here(store)

    assert jobs(store) == [("complete",)]
    ((notes,),) = attempts(store, "notes")
    assert msgspec.json.decode(str(notes)) == {r"file \udce9": r"na\udce9f.txt"}


@pytest.mark.usefixtures("clock")
def test_a_stage_that_gives_up_over_such_a_name_fails_as_it_meant(store: SqliteStore, rd: Redrive) -> None:
    rd.submit(NAMING, "fail")
    work_off_here(store)

    assert letters(store, "code, message") == [("NOT_FOUND", r"na\udce9f.txt")]


def test_every_text_of_a_failure_comes_across() -> None:
    plain = DEFAULT.classify(ConnectionResetError("gone"))
    texts = ("message", "exception", "rule", "provider_code", "request_id", "line", "hint")
    halves = msgspec.structs.replace(plain, lineage=("a\udce9",), **dict.fromkeys(texts, "a\udce9"))

    failed = FailedAttempt(halves, stack="a\udce9", frames=(Frame("a\udce9", "a\udce9", 1, True),))
    decoded = decoded_report(StageReport(failed=failed)).failed

    assert decoded is not None
    assert {getattr(decoded.failure, name) for name in texts} == {decoded.stack} == {r"a\udce9"}
    assert (decoded.failure.lineage, decoded.frames) == (
        (r"a\udce9",),
        (Frame(r"a\udce9", r"a\udce9", 1, True),),
    )
    assert decoded.failure.category is plain.category


def decoded_report(report: StageReport) -> StageReport:
    return msgspec.msgpack.decode(encode_report(report), type=StageReport)
