# SPDX-License-Identifier: Apache-2.0
"""Resources: opened once per worker, given to stages by type, closed when the worker ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from redrive import Context, Pipeline, Redrive, stage
from redrive.errors import ConfigurationError


class Client:
    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.log = log


class Cache(dict[str, str]):
    """Something else to share."""


def opening(name: str, log: list[str]) -> Callable[[], object]:
    @asynccontextmanager
    async def open_client() -> AsyncIterator[Client]:
        log.append(f"open {name}")
        try:
            yield Client(name, log)
        finally:
            log.append(f"close {name}")

    return open_client


def caching(log: list[str]) -> Callable[[], object]:
    @contextmanager
    def open_cache() -> Iterator[Cache]:
        log.append("open cache")
        try:
            yield Cache()
        finally:
            log.append("close cache")

    return open_cache


@stage
async def call(number: int, client: Client, ctx: Context) -> str:
    client.log.append(f"call {number}")
    return f"{client.name} {ctx.attempt}"


@stage
def store_it(text: str, cache: Cache, client: Client, retries: int = 3) -> str:
    cache[text] = client.name
    return f"{text} {client.name} {retries}"


def test_resources_are_opened_once_given_by_type_and_closed_in_reverse(filed: Redrive) -> None:
    log: list[str] = []
    pipeline = Pipeline("shop", [call, store_it], resources=[opening("api", log), caching(log)])
    ids = filed.submit_many(pipeline, [1, 2])
    filed.work([pipeline], until_idle=True)

    assert [filed.job(each).result() for each in ids] == ["api 1 api 3"] * 2
    assert log[:2] == ["open api", "open cache"]
    assert log[-2:] == ["close cache", "close api"]
    assert sorted(log[2:-2]) == ["call 1", "call 2"]


def test_a_resource_that_pipelines_share_is_opened_once(filed: Redrive) -> None:
    log: list[str] = []
    shared = opening("api", log)
    one, two = (Pipeline(name, [call], resources=[shared]) for name in ("one", "two"))
    filed.submit(one, 1)
    filed.submit(two, 2)
    filed.work([one, two], until_idle=True)

    assert (log.count("open api"), log.count("close api")) == (1, 1)
    assert filed.jobs.counts() == {"complete": 2}


def test_a_stage_gets_the_resource_of_its_own_pipeline(filed: Redrive) -> None:
    log: list[str] = []
    one, two = (Pipeline(name, [call], resources=[opening(name, log)]) for name in ("one", "two"))
    first, second = filed.submit(one, 1), filed.submit(two, 2)
    filed.work([one, two], until_idle=True)

    assert (first.result(), second.result()) == ("one 1", "two 1")


def test_a_stage_may_ask_for_a_base_class(filed: Redrive) -> None:
    class Special(Client):
        """A client with more to it."""

    @contextmanager
    def open_special() -> Iterator[Special]:
        yield Special("special", [])

    pipeline = Pipeline("shop", [call], resources=[open_special])
    job = filed.submit(pipeline, 1)
    filed.work([pipeline], until_idle=True)

    assert job.result() == "special 1"


def test_a_resource_that_nobody_opens_is_refused_before_anything_runs_and_the_others_are_closed(
    filed: Redrive,
) -> None:
    log: list[str] = []
    pipeline = Pipeline("shop", [call, store_it], resources=[opening("api", log)])
    job = filed.submit(pipeline, 1)

    with pytest.raises(ConfigurationError, match="Cache") as refused:
        filed.work([pipeline], until_idle=True)

    assert "store_it" in refused.value.field
    assert log == ["open api", "close api"]
    assert job.status == "queued"


def test_a_resource_of_another_pipeline_does_not_count(filed: Redrive) -> None:
    log: list[str] = []
    has, lacks = Pipeline("has", [call], resources=[opening("api", log)]), Pipeline("lacks", [call])

    with pytest.raises(ConfigurationError, match="does not open"):
        filed.work([has, lacks], until_idle=True)


def test_a_resource_that_cannot_be_opened_ends_the_work_with_its_own_error(filed: Redrive) -> None:
    @contextmanager
    def open_nothing() -> Iterator[Client]:
        raise ConnectionRefusedError(111, "refused")
        yield

    with pytest.raises(ConnectionRefusedError):
        filed.work([Pipeline("shop", [call], resources=[open_nothing])], until_idle=True)


@pytest.mark.parametrize("options", [{"on_breaker": 3}, {"on_dead": "me"}])
def test_what_is_no_function_is_refused_when_the_pipeline_is_declared(options: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match="must be a function"):
        Pipeline("shop", [call], **options)  # type: ignore[arg-type]


def test_a_parameter_that_is_no_class_cannot_be_a_resource() -> None:
    with pytest.raises(ConfigurationError, match="exactly one input"):
        stage(lambda number, other: number)


def test_a_ready_object_is_given_as_it_is_and_stays_open(rd: Redrive) -> None:
    ready = ReadyClient()

    def ask(_number: int, client: ReadyClient) -> str:
        return client.name

    flow = Pipeline("shop", [stage(ask)], resources=[ready])
    job = rd.submit(flow, 1)
    assert rd.work([flow], until_idle=True) == "idle"

    assert (job.result(), ready.is_closed) == ("ready", False)


class ReadyClient:
    name = "ready"
    is_closed = False

    def __exit__(self, *_error: object) -> None:
        self.is_closed = True
