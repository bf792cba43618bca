# SPDX-License-Identifier: Apache-2.0
"""Faults of a PostgreSQL server under load: `python -m tests.faults.soak_postgres` prints how soon the work is back at its pace.

For each fault, four workers are kept busy. What they do is counted in windows of ten seconds: three before the fault, six after its end.
The median of those after it, from the first one on that is back, has to be 90 % of the median before. Then everything ends, and the
ledger is judged: nothing lost, no lease held twice, no committed stage run again.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psycopg

from tests.faults.flows import Order
from tests.faults.herd import Herd, ServerScene, until, with_pid
from tests.faults.proxy import Proxy
from tests.postgres_server import PostgresServer

WORKERS: Final = 4
BEFORE: Final = 3
AFTER: Final = 6
BACK: Final = 0.9
QUEUE_MAX: Final = 4_000
BATCH: Final = 1_000
"""One transaction: of several, those before a fault would be stored, and their ids not returned."""
FAULT_SECONDS: Final = 10.0
OF_WORKERS: Final = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'redrive'"
)


@dataclass
class Load:
    """Workers under load, and the network and the server that they need."""

    server: PostgresServer
    standby: PostgresServer | None
    network: Proxy
    scene: ServerScene
    herd: Herd
    fed: int = 0
    _ended: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def fed_always(self) -> Generator[None]:
        """Keep the queue filled."""
        feeder = threading.Thread(target=self._feed)
        feeder.start()
        try:
            yield
        finally:
            self._ended.set()
            feeder.join()

    def _feed(self) -> None:
        while not self._ended.wait(0.1):
            try:
                # Counting the jobs that are queued would read the dead rows of those that were, more with every second.
                ended = self.scene.read("SELECT coalesce(sum(jobs), 0) FROM tallies")[0][0]
                if self.fed - int(str(ended)) < QUEUE_MAX:
                    orders = [Order(number) for number in range(self.fed, self.fed + BATCH)]
                    self.scene.submit(orders)
                    self.fed += BATCH
            except Exception:
                continue

    def pace(self, window: float) -> float:
        """Return how many effects per second there are, over a window."""
        before, begun = self.scene.ledger.stat().st_size, time.monotonic()
        threading.Event().wait(window)
        grown = self.scene.ledger.stat().st_size - before
        with self.scene.ledger.open("rb") as ledger:
            ledger.seek(before)
            lines = ledger.read(grown).count(b"\n")
        return lines / (time.monotonic() - begun)


def restart(load: Load) -> None:
    load.server.stop()
    load.server.start()


def end_connections(load: Load) -> None:
    with psycopg.connect(load.server.address, autocommit=True) as db:
        for _ in range(20):
            db.execute(OF_WORKERS)
            threading.Event().wait(0.5)


def kill_half(load: Load) -> None:
    for _ in range(5):
        for worker in load.herd.workers()[: WORKERS // 2]:
            with_pid(worker, signal.SIGKILL)
        threading.Event().wait(2)


def cut(load: Load) -> None:
    load.network.become("cut")
    threading.Event().wait(FAULT_SECONDS)
    load.network.become("open")


def swallow(load: Load) -> None:
    load.network.become("swallowing")
    threading.Event().wait(FAULT_SECONDS)
    load.network.become("open")


def crowd(load: Load) -> None:
    end_at = time.monotonic() + FAULT_SECONDS
    with ExitStack() as others, psycopg.connect(load.server.address, autocommit=True) as db:
        while time.monotonic() < end_at:
            try:
                others.enter_context(psycopg.connect(load.server.address))
            except psycopg.OperationalError:
                db.execute(OF_WORKERS)


def fail_over(load: Load) -> None:
    load.server.stop()
    assert load.standby is not None
    load.standby.promote()
    with psycopg.connect(load.standby.address, autocommit=True) as db:
        db.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
        db.execute("SELECT pg_reload_conf()")


def stay_in_transaction(load: Load) -> None:
    with psycopg.connect(load.server.address) as idle:
        idle.execute(f"SELECT pg_current_xact_id(), count(*) FROM {load.scene.schema}.jobs")
        threading.Event().wait(3 * FAULT_SECONDS)


def wrong_clocks(_load: Load) -> None:
    """Every worker's clock is wrong from the beginning; nothing more happens."""


FAULTS: Final[dict[str, Callable[[Load], None]]] = {
    "restart": restart,
    "connections": end_connections,
    "kills": kill_half,
    "cut": cut,
    "swallow": swallow,
    "crowd": crowd,
    "failover": fail_over,
    "idle": stay_in_transaction,
    "clocks": wrong_clocks,
}


@contextmanager
def loaded(here: Path, fault: str) -> Generator[Load]:
    """Start a server with workers, and feed them."""
    is_double = fault == "failover"
    conf = "synchronous_standby_names = '*'\nsynchronous_commit = local\n" if is_double else ""
    with closing(PostgresServer(conf)) as server:
        standby = server.standby() if is_double else None
        if is_double:
            with psycopg.connect(server.address, autocommit=True) as db:
                db.execute("ALTER SYSTEM SET synchronous_commit = on")
                db.execute("SELECT pg_reload_conf()")
        ports = [server.port] if standby is None else [server.port, standby.port]
        with Proxy(server.port) as network:
            scene = ServerScene(here, server=server.address_by(*ports))
            if fault in {"cut", "swallow"}:
                scene.through = server.address_by(network.port)
                scene.options = "&tcp_user_timeout=3000&connect_timeout=3"
            flags: list[str] = []
            if fault == "clocks":
                clocks = here / "clocks"
                clocks.write_bytes(struct.pack("4d", 0.0, 3_600.0, 0.0, 3_600.0))
                flags = ["--clocks", str(clocks)]
            scene.submit([])
            with Herd(scene, *flags, workers=WORKERS, lease=5.0, concurrency=32) as herd:
                until(lambda: herd.has_started(WORKERS))
                load = Load(server, standby, network, scene, herd)
                with load.fed_always():
                    until(scene.ledger.exists)
                    yield load


def soak(here: Path, fault: str, window: float) -> list[str]:
    """Measure before and after a fault, let everything end, and judge; return what was wrong."""
    with loaded(here, fault) as load:
        load.pace(window)
        before = [load.pace(window) for _ in range(BEFORE)]
        FAULTS[fault](load)
        after = [load.pace(window) for _ in range(AFTER)]
        load._ended.set()
        until(lambda: not load.scene.count("status IN ('queued', 'processing')"), seconds=600)
        load.herd.terminate()
        ended = load.herd.wait()
        wrong = load.scene.breaches()[:10]
        jobs = load.scene.count("status = 'complete'")
    least = BACK * statistics.median(before)
    back = next((place for place, pace in enumerate(after) if pace >= least), AFTER)
    steady = statistics.median(after[back:] or [0.0])
    sys.stdout.write(
        f"{fault}: {jobs} jobs; effects/s before {_paces(before)}, after {_paces(after)}; back after "
        f"{back * window:.0f} to {(back + 1) * window:.0f} s at {steady / statistics.median(before):.0%}\n"
    )
    sys.stdout.flush()
    if ended:
        wrong.append(f"the workers ended with {ended}")
    if steady < least:
        wrong.append(f"not back at {BACK:.0%} within {AFTER * window:.0f} s")
    return [f"{fault}: {each}"[:300] for each in wrong]


def _paces(paces: list[float]) -> str:
    return " ".join(f"{pace:.0f}" for pace in paces)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("faults", nargs="*", choices=[*FAULTS, []], help="all, unless named")
    parser.add_argument("--window", type=float, default=10.0)
    options = parser.parse_args()
    wrong: list[str] = []
    for fault in options.faults or FAULTS:
        with tempfile.TemporaryDirectory() as folder:
            wrong += soak(Path(folder), fault, options.window)
    for each in wrong:
        sys.stdout.write(f"{each}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
