# SPDX-License-Identifier: Apache-2.0
"""A run that also works on the pipelines of its children."""

from __future__ import annotations

import asyncio

import pytest

from redrive import Context, Pipeline, connect, stage
from redrive.errors import ConfigurationError
from tests.databases import Address


@stage
def leaf_stage(number: int) -> int:
    return number


LEAF = Pipeline("leaf", [leaf_stage])


@stage
def split(number: int, ctx: Context) -> int:
    ctx.submit(LEAF, number, join_run=True)
    return number


TREE = Pipeline("tree", [split])


def test_children_that_join_the_run_are_worked_on_and_awaited(address: Address) -> None:
    with connect(address("jobs")) as rd:
        report = rd.run(TREE, [1, 2, 3], serve=[LEAF])

        assert (report.status, report.total, report.children, report.open) == ("completed", 6, 3, 0)
        assert {each.status for each in rd.jobs.list(pipeline="leaf")} == {"complete"}


def test_the_same_in_async_code(address: Address) -> None:
    async def scene() -> tuple[str, int]:
        async with connect(address("jobs")) as rd:
            report = await rd.run(TREE, [1], serve=[LEAF])
            return report.status, report.total

    assert asyncio.run(scene()) == ("completed", 2)


def test_a_pipeline_is_served_once(address: Address) -> None:
    with connect(address("jobs")) as rd, pytest.raises(ConfigurationError, match=r"run\(serve\)"):
        rd.run(TREE, [1], serve=[TREE])
