# SPDX-License-Identifier: Apache-2.0
"""Namesakes: pipelines and breakers are known by their names, so two different ones of one name are refused."""

from __future__ import annotations

import asyncio

import pytest

from redrive import Breaker, ConfigurationError, Pipeline, Redrive, stage
from tests.unit.build import one_stage


def plain(number: int) -> int:
    return number


def behind(breaker: Breaker, name: str) -> object:
    return stage(breaker=breaker, name=name)(plain)


def piped(pipeline: str, *stages: object) -> Pipeline:
    return Pipeline(pipeline, stages)  # type: ignore[arg-type]


def test_two_pipelines_of_one_name_are_refused_by_name(rd: Redrive) -> None:
    twice = [one_stage(plain, "shop"), one_stage(plain, "other"), one_stage(plain, "shop", name="another")]
    with pytest.raises(ConfigurationError, match=r"work\(pipelines\) must have distinct names, got 'shop'"):
        rd.work(twice, until_idle=True)


def test_two_pipelines_of_one_name_are_refused_in_async_code_too(rd: Redrive) -> None:
    async def scene() -> None:
        async with rd as connection:
            await connection.work([one_stage(plain, "shop"), one_stage(plain, "shop")], until_idle=True)

    with pytest.raises(ConfigurationError, match="'shop'"):
        asyncio.run(scene())


def test_two_breakers_of_one_name_in_a_pipeline_are_refused_with_what_differs_and_where() -> None:
    first = Breaker("api", consecutive=5, open_for=30)
    second = Breaker("api", consecutive=5, open_for=60, mode="fail_fast")
    with pytest.raises(ConfigurationError) as refused:
        piped("shop", behind(first, "fetch"), one_stage(plain).stages[0], behind(second, "charge"))

    said = str(refused.value)
    assert "Breaker(api)" in said
    assert "stage(fetch) of Pipeline(shop) and stage(charge) of Pipeline(shop)" in said
    assert "open_for 30.0 and 60.0, mode hold and fail_fast" in said
    assert "consecutive" not in said


def test_two_breakers_of_one_name_in_pipelines_of_one_worker_are_refused(rd: Redrive) -> None:
    def alive() -> None: ...

    one = piped("one", behind(Breaker("api", consecutive=5), "fetch"))
    two = piped("two", behind(Breaker("api", consecutive=5, probe=alive), "call"))
    with pytest.raises(ConfigurationError) as refused:
        rd.work([one, two], until_idle=True)

    assert "stage(fetch) of Pipeline(one) and stage(call) of Pipeline(two)" in str(refused.value)
    assert "probe None and test_two_breakers" in str(refused.value)


def test_breakers_with_the_same_settings_are_one(rd: Redrive) -> None:
    pipelines = [piped(name, behind(Breaker("api", consecutive=5), "fetch")) for name in ("one", "two")]

    assert rd.work(pipelines, until_idle=True) == "idle"
