# SPDX-License-Identifier: Apache-2.0
"""The nouns for async code: the same names and signatures as the sync ones, and the loop never asks the store itself."""

from __future__ import annotations

import inspect
import threading
from typing import TypeVar

import pytest

from redrive import Pipeline, Redrive, ReplayRules, RetryPolicy, connect, stage
from redrive.client import letters
from redrive.client.async_connection import AsyncRedrive
from redrive.client.awaited import AsyncFace
from redrive.client.job import AsyncJob, Job
from redrive.client.letters import AsyncLetters, Letters
from redrive.client.replays import AsyncReplays, Replays
from redrive.errors import EvidenceMissingError, RunError
from redrive.store.protocol import Store
from redrive.store.records import Call
from tests.databases import Address
from tests.unit.build import bounded

T = TypeVar("T")
DRIVING = {"reopen", "resumable", "next_ordinal", "end", "pause_items", "cancel_items", "end_source"}
"""Methods of the sync run book by which a run is driven; nobody but its driver needs them."""


@stage(retry=RetryPolicy(1))
def pay(order: dict[str, int]) -> int:
    if order["amount"] < 0:
        raise PermissionError("no credit")
    return order["amount"]


SHOP = Pipeline("shop", [pay], replay=ReplayRules())


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def names_of(kind: type) -> set[str]:
    return {name for name, member in inspect.getmembers(kind, callable) if not name.startswith("_")}


NOUNS = "jobs letters replays runs schedules pipelines breakers limits events reports".split()


@pytest.mark.untraced
@pytest.mark.parametrize("name", NOUNS)
def test_every_method_of_a_sync_noun_can_be_awaited_with_the_same_arguments(
    address: Address, name: str
) -> None:
    with connect(address("jobs")) as rd:
        sync, face = getattr(rd, name), getattr(AsyncRedrive(rd), name)

    wanted = names_of(type(sync)) - (DRIVING if name == "runs" else set())
    assert names_of(type(face)) == wanted
    for each in wanted:
        there, here = (inspect.signature(getattr(kind, each)) for kind in (type(sync), type(face)))
        assert list(here.parameters.values())[1:] == list(there.parameters.values())[1:], each
        assert getattr(face, each).__doc__


def test_a_face_for_async_code_is_made_for_each_noun(address: Address) -> None:
    with connect(address("jobs")) as rd:
        nouns = AsyncRedrive(rd)
        faces = {type(getattr(nouns, name)) for name in NOUNS}

    assert set(AsyncFace.__subclasses__()) == {*faces, AsyncRedrive, AsyncJob}
    assert {name for name in vars(nouns) if name != "face" and not name.startswith("_")} == set(NOUNS)
    assert names_of(Redrive) - names_of(AsyncRedrive) == {"close"}
    assert public(Job) - public(AsyncJob) == {"warn_if_unserved"}


def test_the_whole_way_back_from_async_code(address: Address) -> None:
    async def scene() -> None:
        async with connect(address("jobs")) as rd:
            ids = await rd.submit_many(SHOP, [{"amount": -1}, {"amount": -2}])
            await rd.work([SHOP], until_idle=True, concurrency=1)
            (group,) = await rd.letters.groups(pipeline="shop")
            chosen = await rd.letters.choose(group=group.fingerprint)
            with pytest.raises(EvidenceMissingError):
                await rd.replays.start(pipeline="shop")
            await rd.letters.remediate(
                chosen, evidence="amounts are corrected", is_safe=True, diagnosis="data", actor="ann"
            )
            await rd.letters.edit(1, value=b'{"amount": 7}', pipeline=SHOP)
            await rd.letters.edit(2, value=b'{"amount": 8}', pipeline=SHOP)
            back = await rd.jobs.retry(ids[0], actor="ann", reason="first one")
            begun = await rd.replays.start(pipeline="shop", reason="the rest")
            await rd.work([SHOP], until_idle=True, concurrency=1)

            assert back.status == "queued"
            assert await (await rd.job(ids[0])).result(0) == 7
            assert (await rd.replays.status(begun.id)).status == "done"
            assert [each.id for each in await rd.replays.list()] == [begun.id]
            page = await rd.letters.list(state="resolved", limit=1)
            assert (len(page.letters), page.next_cursor is not None) == (1, True)

    bounded(scene())


def test_an_export_is_given_line_by_line_however_many_steps_it_takes(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letters, "STEP", 2)

    async def scene() -> tuple[list[bytes], int]:
        async with connect(address("jobs")) as rd:
            await rd.submit_many(SHOP, [{"amount": -1}] * 5)
            await rd.work([SHOP], until_idle=True, concurrency=1)
            lines = [line async for line in rd.letters.export(pipeline="shop")]
        async with connect(address("other")) as rd:
            taken = await rd.letters.import_(lines)
        return lines, taken.made

    lines, made = bounded(scene())

    assert (len(lines), made) == (5, 5)


def test_runs_and_schedules_are_looked_at_from_async_code(address: Address) -> None:
    async def scene() -> None:
        async with connect(address("jobs")) as rd:
            report = await rd.run(SHOP, [{"amount": 1}, {"amount": 2}])
            assert await rd.runs.report(report.id) == report
            assert await rd.runs.latest(limit=5) == [report]
            assert await rd.runs.is_fed(report.id)
            assert (await rd.runs.options(report.id)).hold_max == 3_600
            with pytest.raises(RunError):
                await rd.runs.report(99)

            await rd.schedules.add("nightly", SHOP, {"amount": 1}, cron="0 3 * * *", zone="Europe/Berlin")
            assert [each.name for each in await rd.schedules.list()] == ["nightly"]
            assert await rd.schedules.drop("nightly")
            assert await rd.schedules.list() == []

    bounded(scene())


def test_the_store_is_asked_on_a_thread_and_never_on_the_loop(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking: set[int] = set()

    def watch(store: Store) -> None:
        query = store.query

        def watched(call: Call[object]) -> list[object]:
            asking.add(threading.get_ident())
            return query(call)

        monkeypatch.setattr(store, "query", watched)

    async def scene() -> None:
        async with connect(address("jobs")) as rd:
            await rd.submit(SHOP, {"amount": -1})
            await rd.work([SHOP], until_idle=True, concurrency=1)
            watch(rd.face.store)
            await rd.letters.list()
            await rd.letters.show(1)
            assert len([line async for line in rd.letters.export()]) == 1
            assert (await rd.letters.validate(pipelines=[SHOP])).letters == 1
            await rd.runs.latest()
            await rd.schedules.list()
            assert (await rd.jobs.explain(1)).status == "failed"
            assert len(await rd.reports.errors(pipeline="shop")) == 1
            monkeypatch.undo()

    bounded(scene())

    assert asking
    assert threading.get_ident() not in asking


def test_the_words_of_a_sync_method_are_those_of_the_async_one() -> None:
    assert AsyncLetters.choose.__doc__ == Letters.choose.__doc__
    assert AsyncReplays.pause.__doc__ == Replays.pause.__doc__
