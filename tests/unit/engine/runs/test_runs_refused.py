# SPDX-License-Identifier: Apache-2.0
"""What a run is after something was refused or raised: as it was, or paused with the reason, and never running without anybody."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from redrive import Fail, FailureBudget, Pipeline, Redrive, RunReport, stage
from redrive.engine.runs import driver
from redrive.errors import ConfigurationError, RunError, SerializationError
from tests.unit.build import until

pytestmark = pytest.mark.usefixtures("clock")


@stage
def plain(number: object) -> object:
    if number == "bad":
        raise Fail("BAD", "bad")
    return number


SHOP = Pipeline("shop", [plain])


def broken_off(count: int) -> Iterator[int]:
    yield from range(count)
    raise OSError("the source is gone")


def broken(rd: Redrive, monkeypatch: pytest.MonkeyPatch, count: int = 6) -> RunReport:
    """Return a run whose source broke off."""
    # One at a time: what was read together with the error is not submitted, and a slow machine reads fewer together.
    monkeypatch.setattr(driver, "BATCH", 1)
    with pytest.raises(OSError, match="the source is gone"):
        rd.run(SHOP, broken_off(count))
    (report,) = rd.runs.latest()
    assert (report.status, report.total) == ("paused", count)
    return report


def paused(rd: Redrive) -> RunReport:
    """Return a run that was fed to its end and paused by its budget."""
    budget = FailureBudget(max_rate=0.1, check_every=4, on_exceeded="pause")
    report = rd.run(SHOP, ["bad", 1, 2, 3], failure_budget=budget, concurrency=1)
    assert (report.status, rd.runs.is_fed(report.id)) == ("paused", True)
    return report


def test_a_resume_that_is_refused_changes_nothing_about_the_run(
    filed: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = broken(filed, monkeypatch)

    for source in ([0, 1, 99, 3, 4, 5], [0, 1]):
        with pytest.raises(RunError, match="its source"):
            filed.run(SHOP, source, resume=before.id)

        assert filed.runs.report(before.id) == before
    assert filed.run(SHOP, range(8), resume=before.id).succeeded == 8


@pytest.mark.parametrize("at", [1, 2])
def test_a_listener_that_raises_pauses_the_run_with_the_reason(filed: Redrive, at: int) -> None:
    calls = 0

    def listen(_report: RunReport) -> None:
        nonlocal calls
        calls += 1
        if calls >= at:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised:
        filed.run(SHOP, range(3), on_progress=listen)

    (report,) = filed.runs.latest()
    assert (report.status, report.reason) == ("paused", "it was interrupted by ZeroDivisionError")
    assert f"redrive run resume {report.id}" in raised.value.__notes__[0]
    assert filed.run(SHOP, range(3), resume=report.id).status == "completed"


def test_a_listener_that_raises_at_the_end_changes_nothing_about_it(filed: Redrive) -> None:
    def listen(report: RunReport) -> None:
        if report.status == "completed":
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        filed.run(SHOP, range(3), on_progress=listen)

    assert filed.runs.latest()[0].status == "completed"


@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_worker_that_cannot_start_leaves_a_run_to_resume(
    filed: Redrive, monkeypatch: pytest.MonkeyPatch, *, is_resumed: bool
) -> None:
    is_up = False

    @asynccontextmanager
    async def client() -> AsyncIterator[bytearray]:
        if not is_up:
            raise ConnectionRefusedError(111, "refused")
        yield bytearray()

    run = broken(filed, monkeypatch, 2).id if is_resumed else None
    pipeline = Pipeline("shop", [plain], resources=[client])

    with pytest.raises(ConnectionRefusedError):
        filed.run(pipeline, range(3), resume=run)

    (report,) = filed.runs.latest()
    assert (report.status, report.reason) == ("paused", "it was interrupted by ConnectionRefusedError")
    is_up = True
    assert filed.run(pipeline, range(3), resume=report.id).succeeded == 3


@pytest.mark.parametrize(
    ("items", "why"),
    [
        (["bad", 1, 99, 3], "no longer yields the same item at position 2"),
        (["bad", 1], "ended after 2 items, but 4 were submitted before"),
        (["bad", 1, 2, 3, 4], "yields more than the 4 items it had before"),
    ],
)
def test_another_source_is_refused_also_when_the_first_was_read_to_its_end(
    filed: Redrive, items: list[object], why: str
) -> None:
    before = paused(filed)

    with pytest.raises(RunError, match=why):
        filed.run(SHOP, items, resume=before.id)

    assert filed.runs.report(before.id) == before
    assert filed.run(SHOP, ["bad", 1, 2, 3], resume=before.id).status == "partial_success"


def test_a_run_that_was_fed_to_its_end_needs_no_source(filed: Redrive) -> None:
    assert filed.run(SHOP, None, resume=paused(filed).id).status == "partial_success"


def test_a_run_that_was_not_fed_to_its_end_needs_its_source(
    filed: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = broken(filed, monkeypatch)

    with pytest.raises(RunError, match="was not read to the end"):
        filed.run(SHOP, None, resume=before.id)
    with pytest.raises(ConfigurationError, match="items"):
        filed.run(SHOP, None)

    assert filed.runs.latest() == [before]


def test_an_item_that_cannot_be_stored_is_named_and_those_before_it_are_in(filed: Redrive) -> None:
    with pytest.raises(SerializationError, match="item 2, counting from 0") as refused:
        filed.run(SHOP, [0, 1, "\ud800", 3], failure_budget=None)

    (report,) = filed.runs.latest()
    assert (report.status, report.total) == ("paused", 2)
    assert report.reason == "it was interrupted by SerializationError at item 2"
    assert refused.value.index == 2
    assert f"resume run {report.id}" in refused.value.hint
    assert filed.run(SHOP, [0, 1, None, 3], resume=report.id).succeeded == 4


def test_a_report_from_before_a_resume_does_not_pause_the_run_again(
    filed: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, plain, late = paused(filed), driver.Driver._report, [True]

    async def late_report(self: driver.Driver) -> RunReport:
        report = await plain(self)
        await until(lambda: not (late and self._is_reopened))
        late.clear()
        return report

    monkeypatch.setattr(driver.Driver, "_report", late_report)

    assert filed.run(SHOP, None, resume=before.id).status == "partial_success"
