# SPDX-License-Identifier: Apache-2.0
"""Workers on a PostgreSQL server while something goes wrong: nothing is lost, no lease is held twice, no committed stage runs again.

These are short, and judge the account alone; `make soak-postgres` also measures how soon the work is back at its pace.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import psycopg
import pytest

from redrive import Pipeline, connect
from tests.faults.flows import Order
from tests.faults.herd import ROOT, Herd, ServerScene, until, with_pid
from tests.faults.proxy import Proxy, TlsFront
from tests.postgres_server import PostgresServer

JOBS = 300
OF_WORKERS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'redrive'"


@pytest.fixture(scope="session")
def server() -> Generator[PostgresServer]:
    made = PostgresServer()
    yield made
    made.close()


@pytest.fixture
def scene(server: PostgresServer, tmp_path: Path) -> ServerScene:
    return ServerScene(tmp_path, server=server.address)


@contextmanager
def at_work(scene: ServerScene, workers: int = 2, *flags: str, effects: int = 30) -> Generator[Herd]:
    """Workers that have begun with their jobs; in the end all jobs are done, and all promises kept."""
    scene.submit([])
    with Herd(scene, *flags, workers=workers, lease=2.0, concurrency=4) as herd:
        until(lambda: herd.has_started(workers))
        # A few of them fail once.
        scene.submit(Order(number, "flaky" if number % 20 == 0 else "", 0.005) for number in range(JOBS))
        under_way(scene, effects)
        yield herd
        until(lambda: not scene.count("status IN ('queued', 'processing')"), seconds=120, what=herd.log())
        herd.terminate()
        assert herd.wait() == 0, herd.log()
    assert scene.breaches() == []
    assert scene.count("status = 'complete'") == JOBS


def under_way(scene: ServerScene, effects: int) -> None:
    """Wait until so many effects took place."""
    until(lambda: len(scene.effects()) >= effects, what=f"{effects} effects")


def test_workers_survive_a_server_that_is_restarted_at_once(
    server: PostgresServer, scene: ServerScene
) -> None:
    with at_work(scene):
        server.stop()
        server.start()


def test_workers_that_start_before_their_server_wait_for_it(server: PostgresServer, tmp_path: Path) -> None:
    (tmp_path / "early.py").write_text(
        "from redrive import Pipeline, stage\n@stage\ndef double(number: int) -> int:\n    return 2 * number\n"
        "flow = Pipeline('early', [double])\n"
    )
    address = f"{server.address}?schema=early"
    words = [sys.executable, "-m", "redrive.cli", "worker", "early:flow", "--processes", "2"]
    connect(address).close()
    log = tmp_path / "log"
    server.stop()
    try:
        with log.open("wb") as errors:
            workers = subprocess.Popen([*words, "--database-url", address], cwd=tmp_path, stderr=errors)
        until(lambda: log.read_text().count("waiting for the database") >= 2)
    finally:
        server.start()
    with connect(address) as rd:
        until(lambda: len(rd.pipelines.workers()) == 2, what=log.read_text())
        job = rd.submit(Pipeline.ref("early", payload=int), 4)

        assert job.result(30) == 8
    workers.terminate()
    assert workers.wait(30) == 0, log.read_text()


def test_workers_survive_that_all_their_connections_are_ended_again_and_again(
    server: PostgresServer, scene: ServerScene
) -> None:
    with at_work(scene), psycopg.connect(server.address, autocommit=True) as db:
        for effects in (30, 150, 300, 450):
            under_way(scene, effects)
            db.execute(OF_WORKERS)


def test_half_of_the_workers_are_killed_again_and_again(scene: ServerScene) -> None:
    with at_work(scene, 4) as herd:
        for effects in (50, 200, 350):
            under_way(scene, effects)
            for worker in herd.workers()[:2]:
                with_pid(worker, signal.SIGKILL)

    assert herd.ends().count(-signal.SIGKILL) == 6


def test_a_network_that_is_cut_and_restored(server: PostgresServer, scene: ServerScene) -> None:
    with Proxy(server.port) as network:
        scene.through = server.address_by(network.port)
        with at_work(scene) as herd:
            network.become("cut")
            until(lambda: "no contact with the store" in herd.log())
            network.become("open")


def test_a_network_that_is_cut_again_and_again_over_tls(server: PostgresServer, scene: ServerScene) -> None:
    """libpq then reports an error of SSL, which is no refusal."""
    with TlsFront(server.port) as secure, Proxy(secure.port) as network:
        scene.through = server.address_by(network.port)
        scene.options = "&sslmode=require"
        with at_work(scene) as herd:
            for effects in (30, 150, 300, 450):
                under_way(scene, effects)
                known = len(herd.log())
                network.become("cut")
                until(partial(_has_lost_contact, herd, known))
                network.become("open")


def _has_lost_contact(herd: Herd, known: int) -> bool:
    return "no contact with the store" in herd.log()[known:]


def test_connections_that_stay_open_and_swallow_all_that_is_sent(
    server: PostgresServer, scene: ServerScene
) -> None:
    """They are never closed: only a limit of the workers' own gets them out."""
    with Proxy(server.port) as network:
        scene.through = server.address_by(network.port)
        scene.options = "&tcp_user_timeout=1000&connect_timeout=2"
        with at_work(scene) as herd:
            network.become("swallowing")
            until(lambda: "no answer for 1 s" in herd.log())
            network.become("open")


def test_a_server_that_has_no_connection_left(server: PostgresServer, scene: ServerScene) -> None:
    with at_work(scene) as herd, ExitStack() as crowd:
        # A connection that was ended is free, and whoever is first gets it.
        with psycopg.connect(server.address, autocommit=True) as db:
            until(lambda: crowded(server, crowd, db) and "too many clients" in herd.log())


def crowded(server: PostgresServer, crowd: ExitStack, db: psycopg.Connection[tuple[object, ...]]) -> bool:
    """Connect until nobody can any more, and end the connections of the workers."""
    while True:
        try:
            crowd.enter_context(psycopg.connect(server.address))
        except psycopg.OperationalError:
            db.execute(OF_WORKERS)
            return True


def test_a_server_that_fails_over_to_its_standby(tmp_path: Path) -> None:
    primary = PostgresServer("synchronous_standby_names = '*'\nsynchronous_commit = local\n")
    try:
        standby = primary.standby()
        with psycopg.connect(primary.address, autocommit=True) as db:
            db.execute("ALTER SYSTEM SET synchronous_commit = on")
            db.execute("SELECT pg_reload_conf()")
            synced = "SELECT sync_state FROM pg_stat_replication"
            until(lambda: db.execute(synced).fetchall() == [("sync",)])
        both = primary.address_by(primary.port, standby.port)
        scene = ServerScene(tmp_path, server=both)
        with at_work(scene):
            primary.stop()
            standby.promote()
            # The new one waits for nobody.
            with psycopg.connect(standby.address, autocommit=True) as db:
                db.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
                db.execute("SELECT pg_reload_conf()")
    finally:
        primary.close()


def test_a_transaction_of_somebody_else_that_stays_open(server: PostgresServer, scene: ServerScene) -> None:
    with at_work(scene), psycopg.connect(server.address) as idle:
        idle.execute(f"SELECT pg_current_xact_id(), count(*) FROM {scene.schema}.jobs")
        until(lambda: not scene.count("status IN ('queued', 'processing')"))
        assert scene.read(
            "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction' AND backend_xid IS NOT NULL"
        ) == [(1,)]


def test_workers_whose_clocks_are_an_hour_apart_take_nothing_from_each_other(
    scene: ServerScene, tmp_path: Path
) -> None:
    clocks = tmp_path / "clocks"
    clocks.write_bytes(struct.pack("2d", 0.0, 3_600.0))

    with at_work(scene, 2, "--clocks", str(clocks)):
        pass

    # Nobody takes a living worker for dead: the server's clock decides about leases.
    assert scene.outcomes("crashed") == 0


STARTED = (
    "from tests.postgres_server import PostgresServer; print(PostgresServer().data, flush=True); input()"
)


def test_a_server_of_a_test_that_is_killed_ends_with_it() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTED], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as test:
        assert test.stdout is not None
        data = Path(test.stdout.readline().strip())
        server = int((data / "postmaster.pid").read_text(encoding="utf-8").split()[0])
        test.kill()

    until(lambda: not _runs(server) and not data.exists())


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
