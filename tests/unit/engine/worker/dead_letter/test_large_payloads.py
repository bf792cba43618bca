# SPDX-License-Identifier: Apache-2.0
"""A job with a large payload that fails: its values are read on a thread, so that the other jobs are not kept waiting."""

from __future__ import annotations

import threading

import pytest

from redrive import Batch, Fail, Pipeline, Redrive, RetryPolicy, stage
from redrive.engine.pipeline.stage import Stage
from redrive.engine.worker import settlements
from redrive.engine.worker.dead_letter import LARGE_BYTES
from redrive.store.sqlite.store import SqliteStore
from tests.unit.build import work

pytestmark = pytest.mark.usefixtures("clock")

ONCE = RetryPolicy(1)
LARGE, SMALL = ["a long enough value"] * (LARGE_BYTES // 16), ["a long enough value"]


@stage(retry=ONCE)
async def on_loop(words: list[str]) -> str:
    raise Fail("REJECTED", f"no {words[0]}")


@stage(retry=ONCE)
def on_thread(words: list[str]) -> str:
    raise Fail("REJECTED", f"no {words[0]}")


@stage(retry=ONCE, batch=Batch(size=2))
def in_batch(words: list[list[str]]) -> list[str]:
    raise Fail("REJECTED", f"no {words[0][0]}")


@stage
def shorten(words: list[str]) -> list[str]:
    return words[:1]


@pytest.fixture
def decided_on(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The threads on which failures are decided."""
    noted: list[threading.Thread] = []
    decide = settlements.settlement_of_failure

    def decide_noted(*args: object) -> object:
        noted.append(threading.current_thread())
        return decide(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(settlements, "settlement_of_failure", decide_noted)
    return noted


@pytest.mark.untraced
@pytest.mark.parametrize("function", [on_loop, on_thread, in_batch])
@pytest.mark.parametrize(("payload", "is_apart"), [(LARGE, True), (SMALL, False)], ids=["large", "small"])
def test_the_values_of_a_large_failure_are_read_on_a_thread(
    store: SqliteStore,
    rd: Redrive,
    decided_on: list[threading.Thread],
    function: Stage[..., object],
    payload: list[str],
    *,
    is_apart: bool,
) -> None:
    flow = Pipeline("shop", [function])
    job = rd.submit(flow, payload)

    work(store, flow)

    assert job.status == "failed"
    assert rd.letters.list().letters[0].message.startswith("no <payload:$[")
    # On the loop it may have been decided at once, by another name.
    assert {each is not threading.current_thread() for each in decided_on} <= {is_apart}
    assert decided_on or not is_apart


@pytest.mark.untraced
def test_the_values_of_all_jobs_of_a_call_and_their_payloads_count(
    store: SqliteStore, rd: Redrive, decided_on: list[threading.Thread]
) -> None:
    """Two values of half the size each, in a later stage that itself is given little."""
    flow = Pipeline("shop", [shorten, in_batch])
    rd.submit_many(flow, [LARGE[: len(LARGE) // 2]] * 2)

    work(store, flow)

    assert rd.jobs.counts() == {"failed": 2}
    assert decided_on
    assert threading.current_thread() not in decided_on


@pytest.mark.untraced
def test_a_large_payload_counts_in_a_later_stage_that_is_given_little(
    store: SqliteStore, rd: Redrive, decided_on: list[threading.Thread]
) -> None:
    flow = Pipeline("shop", [shorten, on_thread])
    job = rd.submit(flow, LARGE)

    work(store, flow)

    assert job.status == "failed"
    assert decided_on
    assert threading.current_thread() not in decided_on
