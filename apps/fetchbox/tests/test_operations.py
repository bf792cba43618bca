# SPDX-License-Identifier: Apache-2.0
"""What operators meet: a broker that is away, a worker that is killed, replays from the stream, retention, wrong configurations."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from grpc_tools import protoc

from apps.fetchbox.handlers import load_handlers
from apps.fetchbox.pipeline import pipeline_of
from apps.fetchbox.settings import Config, JobType, Pool, Settings, tokens_of
from apps.fetchbox.tests.box import Box, task, until
from apps.fetchbox.transfer.proxies import proxies_of
from redrive import ConfigurationError, connect


def run(box: Box, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "apps.fetchbox", *arguments]
    return subprocess.run(
        command, env=box.environment, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.req("FB-6.1")
def test_letters_wait_while_the_broker_is_away_and_arrive_when_it_is_back(box: Box) -> None:
    box.done("/status/404/before")
    box.broker.stop()
    try:
        job = box.accepted("/status/404/during")
        away = box.ended(job, is_published=False)
        ready = box.client.get("/readyz")
        health = box.client.get("/healthz").json()
    finally:
        box.broker.start()

    back = box.ended(job)

    assert (away["status"], away["dead_letter"]) == ("failed", None)
    assert (ready.status_code, ready.json()["code"]) == (503, "SYSTEM_UNAVAILABLE")
    assert health["components"]["broker"]["status"] == "failed"
    assert box.letter(back["dead_letter"]["offset"]).job_id == job


def test_the_consumer_counts_by_code_and_replays(box: Box) -> None:
    # What other tests have left in the stream is not replayed.
    run(box, "consume")
    flaky = box.accepted("heals=/flaky/404/1/consumed")
    box.ended(flaky)

    counted = run(box, "consume", "--replay")
    healed = until(lambda: found if (found := box.snapshot(flaky))["resources_completed"] == 1 else None)
    again = run(box, "consume")

    assert counted.returncode == 0, counted.stderr
    assert "DOWNLOAD_HTTP_4XX" in counted.stdout
    assert counted.stdout.endswith("1 read, 1 replayed, 0 not replayable, 0 unreadable\n")
    assert healed["resources_failed"] == 0
    assert again.stdout.endswith("0 read, 0 replayed, 0 not replayable, 0 unreadable\n")


def test_a_worker_that_is_killed_in_the_middle_loses_nothing_and_doubles_nothing(
    box: Box, tmp_path: Path, database_url: str | None
) -> None:
    environment = {
        **box.environment,
        "REDRIVE_DATABASE_URL": database_url or "",
        "FETCHBOX_FOLDER": str(tmp_path / "data"),
        "FETCHBOX_TIMEOUT_SECONDS": "20",
        "FETCHBOX_LEASE": "1",
        "FETCHBOX_CONFIG": "",
        "FETCHBOX_NATS_URL": "",
    }
    settings = Settings.read(environment)
    pipeline = pipeline_of(settings)
    settings.root.mkdir()
    paths = ["/slow/killed", "/file/killed"]
    tasks = [task(url=box.origin.url + path, key=path.strip("/")) for path in paths]
    command = [sys.executable, "-m", "apps.fetchbox", "worker"]
    with connect(settings.database) as rd:
        rd.submit_many(pipeline, tasks)
        first = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until(lambda: box.origin.requests["/slow/killed"] == 1 and rd.jobs.counts().get("complete") == 1)
        first.send_signal(signal.SIGKILL)
        first.wait()
        second = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until(lambda: box.origin.requests["/slow/killed"] == 2)
        second.terminate()
        second.kill()
        second.wait()

        counts = rd.jobs.counts()

    assert counts["complete"] == 1
    assert sum(counts.values()) == 2
    assert box.origin.requests["/file/killed"] == 1
    assert (tmp_path / "data/objects/file/killed").read_bytes() == b"killed" * 100


def test_a_dead_origin_does_not_hold_the_downloads_from_others(box: Box, tmp_path: Path) -> None:
    settings = Settings(
        folder=str(tmp_path / "data"),
        allow_private=True,
        concurrency=8,
        origin_concurrency=4,
        timeout_seconds=20,
    )
    pipeline = pipeline_of(settings)
    settings.root.mkdir()
    dead = [task(url=f"{box.origin.url}/slow/{n}", key=f"slow{n}") for n in range(40)]
    other = f"http://localhost:{box.origin.port}"
    fine = [task(url=f"{other}/file/{n}", key=f"fine{n}") for n in range(20)]

    async def scene() -> dict[str, int]:
        async with connect(settings.database) as rd:
            await rd.submit_many(pipeline, [*dead, *fine])
            working = asyncio.ensure_future(rd.work([pipeline], concurrency=settings.concurrency))
            async with asyncio.timeout(30):
                while (counts := await rd.jobs.counts()).get("complete", 0) < len(fine):
                    await asyncio.to_thread(threading.Event().wait, 0.02)
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            return counts

    counts = asyncio.run(scene())

    assert counts["complete"] == 20
    assert counts["processing"] <= 4


def test_the_breaker_of_a_dead_origin_holds_its_own_tasks_only(box: Box, tmp_path: Path) -> None:
    settings = Settings(
        folder=str(tmp_path / "data"),
        allow_private=True,
        concurrency=2,
        backoff_seconds=0.001,
        breaker_min_calls=4,
    )
    pipeline = pipeline_of(settings)
    settings.root.mkdir()
    dead = [task(url=f"{box.origin.url}/status/503/breaker/{n}", key=f"dead{n}") for n in range(20)]
    other = f"http://localhost:{box.origin.port}"
    fine = [task(url=f"{other}/file/breaker/{n}", key=f"fine{n}") for n in range(20)]

    async def scene() -> list[str]:
        async with connect(settings.database) as rd:
            await rd.submit_many(pipeline, [*dead, *fine])
            working = asyncio.ensure_future(rd.work([pipeline], concurrency=settings.concurrency))
            async with asyncio.timeout(30):
                while (await rd.jobs.counts()).get("complete", 0) < len(fine):
                    await asyncio.to_thread(threading.Event().wait, 0.02)
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            return [each.name for each in await rd.breakers.list() if each.phase == "open"]

    assert asyncio.run(scene()) == [f"origin[{box.origin.url}]"]
    asked = sum(
        count for path, count in box.origin.requests.items() if path.startswith("/status/503/breaker")
    )
    assert 4 <= asked < len(dead)


def test_retention_is_a_schedule_of_the_engine(box: Box) -> None:
    with connect(box.database) as rd:
        (schedule,) = rd.schedules.list()

    day = 86_400.0
    assert schedule.prunes == {
        "complete": 7 * day,
        "cancelled": 7 * day,
        "skipped": 7 * day,
        "failed": 90 * day,
        "runs": 30 * day,
    }


POOL = Pool(tiers=[["http://p"]])


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (Config(types={"a": JobType(pool="eu")}, pools={"us": POOL}), "types.a.pool"),
        (Config(pools={"eu": Pool(tiers=[["http://p"]], fallback="asia")}), "pools.eu.fallback"),
        (Config(pools={"eu": Pool(tiers=[["http://p"]], fallback="eu")}), "eu -> eu"),
        (
            Config(
                pools={
                    "a": Pool([["http://p"]], "b"),
                    "b": Pool([["http://p"]], "c"),
                    "c": Pool([["http://p"]], "a"),
                }
            ),
            "a -> b -> c -> a",
        ),
        (Config(pools={"eu": Pool(tiers=[])}), "pools.eu.tiers"),
        (Config(pools={"eu": Pool(tiers=[["socks5://user:pw@p"]])}), "pools.eu.tiers"),
    ],
)
def test_pools_that_are_unknown_or_lead_in_a_circle_are_refused_at_start(config: Config, words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        config.checked()

    assert words in str(caught.value)
    assert "user:pw" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("not toml", "FETCHBOX_CONFIG"),
        ("[types.a]\ncolour = 1", "FETCHBOX_CONFIG"),
        ('[types.a]\nhandler = "nobody"', "types.a.handler"),
        ('[types.a]\npool = "nobody"', "types.a.pool"),
        ('[tenants.a]\ntoken_env = "NOT_SET"', "tenants.a.token_env"),
    ],
)
def test_a_wrong_file_stops_the_start_with_a_reason(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "c.toml").write_text(text)
    environment = {
        "PATH": os.environ["PATH"],
        "FETCHBOX_CONFIG": str(tmp_path / "c.toml"),
        "FETCHBOX_FOLDER": str(tmp_path / "data"),
    }

    with pytest.raises(ConfigurationError) as caught:
        config = Settings.read(environment).load_config()
        load_handlers(config)
        tokens_of(config, environment)

    assert words in str(caught.value)


def test_the_process_ends_with_2_and_the_reason(tmp_path: Path) -> None:
    environment = {**os.environ, "FETCHBOX_FODLER": "x"}

    ended = subprocess.run(
        [sys.executable, "-m", "apps.fetchbox", "worker"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 2
    assert "FETCHBOX_FODLER" in ended.stderr
    assert "Did you mean FETCHBOX_FOLDER?" in ended.stderr


def test_proxies_come_tier_by_tier_then_from_the_fallback_each_task_at_its_own_turn() -> None:
    pools = {"eu": Pool([["http://1", "http://2"], ["http://3"]], "us"), "us": Pool([["http://4"]])}

    first, second = (proxies_of(pools, "eu", turn) for turn in (0, 1))

    assert [each.name for each in first] == ["proxies/eu#1", "proxies/eu#2", "proxies/eu#3", "proxies/us#1"]
    assert [each.url for each in second] == ["http://2", "http://1", "http://3", "http://4"]
    assert [each.pool for each in first] == ["eu", "eu", "eu", "us"]


def test_the_generated_module_is_current(tmp_path: Path) -> None:
    folder = Path(__file__).parents[1] / "dead_letters"
    arguments = [
        "protoc",
        f"-I{folder}",
        f"--python_out={tmp_path}",
        f"--pyi_out={tmp_path}",
        str(folder / "deadletter.proto"),
    ]
    assert protoc.main(arguments) == 0

    for name in ("deadletter_pb2.py", "deadletter_pb2.pyi"):
        made, kept = (tmp_path / name).read_text(), (folder / name).read_text()
        assert kept.partition("\n")[2] == made, "make fetchbox-proto writes it anew"


def test_the_demo_shows_a_job_and_ends_by_itself() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "apps.fetchbox", "demo", "--once"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    assert '"status": "failed"' in ended.stdout
    assert '"resources_completed": 4' in ended.stdout
    assert '"offset": 1' in ended.stdout
    assert "redrive dlq list" in ended.stdout
