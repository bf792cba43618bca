# SPDX-License-Identifier: Apache-2.0
"""A worker inside another program: an event or a function stops it, and what runs is settled first."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from redrive import ConfigurationError, Pipeline, connect, stage
from tests.databases import Address
from tests.unit.build import bounded


def flow_of(going: threading.Event, may_end: threading.Event) -> Pipeline:
    @stage
    def work(number: int) -> int:
        going.set()
        assert may_end.wait(30)
        return number

    return Pipeline("shop", [work])


@pytest.mark.parametrize("form", ["event", "function"])
def test_an_event_or_a_function_stops_a_worker_on_a_thread(address: Address, form: str) -> None:
    going, may_end, stop = threading.Event(), threading.Event(), threading.Event()
    flow, endings = flow_of(going, may_end), list[str]()
    with connect(address("jobs")) as rd:
        first = rd.submit(flow, 1)
        signal = stop if form == "event" else stop.is_set
        worker = threading.Thread(target=lambda: endings.append(rd.work([flow], concurrency=1, stop=signal)))
        worker.start()
        assert going.wait(30)
        stop.set()
        may_end.set()
        worker.join(30)

        assert endings == ["stopped"]
        assert first.result(0) == 1


def test_an_event_of_asyncio_stops_a_worker_on_the_callers_loop(address: Address) -> None:
    async def scene() -> str:
        async with connect(address("jobs")) as rd:
            stop = asyncio.Event()
            working = asyncio.ensure_future(
                rd.work([flow_of(threading.Event(), threading.Event())], stop=stop)
            )
            await asyncio.sleep(0)
            stop.set()
            return await working

    assert bounded(scene()) == "stopped"


def test_a_function_that_fails_stops_the_worker_and_is_logged(
    address: Address, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> bool:
        raise RuntimeError("no idea")

    with connect(address("jobs")) as rd, caplog.at_level(logging.ERROR):
        assert rd.work([flow_of(threading.Event(), threading.Event())], stop=broken) == "stopped"

    assert "stop= failed" in caplog.text


def test_what_is_neither_an_event_nor_a_function_is_refused(address: Address) -> None:
    with connect(address("jobs")) as rd, pytest.raises(ConfigurationError, match="must be an event"):
        rd.work([flow_of(threading.Event(), threading.Event())], stop=True)  # type: ignore[arg-type]
