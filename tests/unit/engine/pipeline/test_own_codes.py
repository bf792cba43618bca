# SPDX-License-Identifier: Apache-2.0
"""A pipeline that names its failures by an application's own codes: in attempts, letters, limits, and from other processes."""

from __future__ import annotations

import pytest

from redrive import Backoff, CodeSet, Fail, OwnCode, Pipeline, RetryPolicy, stage
from redrive.errors import ConfigurationError
from redrive.store.records import NewJob
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.unit.build import attempts, letters, work

OTHER = OwnCode("GW_UNKNOWN", takes=(), line="Something went wrong.")
CODES = CodeSet(
    "gateway",
    [
        OwnCode("GW_5XX", takes=("network", "upstream"), line="The gateway failed.", max_attempts=2),
        OwnCode("BAD_PAGE", takes=(), line="The page is bad."),
    ],
    otherwise=OTHER,
)
POLICY = RetryPolicy(5, Backoff.fixed(1))


def failing(error: BaseException) -> Pipeline:
    @stage(retry=POLICY)
    async def convert(_page: int) -> int:
        raise error

    return Pipeline("pdf", [convert], codes=CODES)


@pytest.mark.parametrize(
    ("error", "code", "tries"),
    [
        (ConnectionResetError(104, "reset"), "GW_5XX", 2),
        (Fail("BAD_PAGE", "page 3"), "BAD_PAGE", 1),
        (KeyError("x"), "GW_UNKNOWN", 1),
    ],
)
def test_failures_of_a_pipeline_carry_its_own_codes_and_limits(
    clock: VirtualClock, error: BaseException, code: str, tries: int
) -> None:
    store = SqliteStore(":memory:")
    pipeline = failing(error)
    lane = store.lanes("pdf", ["convert"])[0]
    store.submit([NewJob(lane=lane, payload=b"1", run_at=0.0)], clock.wall())

    work(store, pipeline)

    assert attempts(store, "code") == [(code,)] * tries
    assert letters(store) == [(code,)]


def test_codes_that_are_no_set_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"Pipeline\(pdf\).codes"):
        Pipeline("pdf", failing(KeyError()).stages, codes=["GW_5XX"])  # type: ignore[arg-type]


def test_a_policy_with_a_mistyped_own_code_is_refused_with_its_stage_and_the_nearest_code() -> None:
    @stage(retry=RetryPolicy(retry_on=["BAD_PAGES"]))
    def fetch(page: int) -> int:
        return page

    with pytest.raises(ConfigurationError, match="Did you mean BAD_PAGE") as refused:
        Pipeline("shop", [fetch], codes=CODES)

    assert refused.value.field == "stage(fetch).retry.retry_on"
