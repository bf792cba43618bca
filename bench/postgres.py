# SPDX-License-Identifier: Apache-2.0
"""redrive on PostgreSQL next to queues and durable engines on PostgreSQL, and to bare SQL: a real server with fsync on.

Nanoseconds are per job: a payload of 200 bytes, no-op stages, worker processes of their own. The first line of each group is the
yardstick. Peers are described in `bench/peers/postgres/` and run in an environment of their own (`make setup-bench`); one that is not
there is named above the figures. Celery and dramatiq keep no jobs in PostgreSQL: they run on Redis (`redis-server` on the path).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from bench import ours_postgres as ours
from bench.measure import Figure, figures_of
from bench.peers.postgres.server import Databases, served
from bench.processes import Contender, measured, race

ROUNDS = 3
PEERS_PYTHON = Path("build/bench-peers/bin/python")
LIMIT = "bare SQL: claim, complete, audit"
BATCHES = (512, 1_024, 512, 1_024)
"""Jobs of a commit of bare SQL; as with workers, the best counts."""
Ways = Mapping[str, Sequence[Contender]]


def run() -> list[Figure]:
    """Run every group; takes about six minutes."""
    has_peers = PEERS_PYTHON.exists()
    if not has_peers:
        sys.stdout.write("not measured: all peers; install them with: make setup-bench\n")
    figures: list[Figure] = []
    with served() as databases:
        groups: dict[str, Ways] = {
            "one stage, 1 worker": _one_stage(databases, 1),
            "one stage, 2 workers": _one_stage(databases, 2),
            "three stages": _three_stages(databases),
            "fails once": _fails_once(databases),
            "submit, 1,000 per commit": _submit(databases),
        }
        for group, ways in groups.items():
            here = {name: way for name, way in ways.items() if has_peers or not name.startswith(PEERS)}
            figures += [figure for figure in race(group, here) if figure.amount < float("inf")]
        figures += _pickup(databases, has_peers=has_peers)
    return figures


PEERS = ("pgqueuer", "absurd", "DBOS", "procrastinate", "chancy", "awa", "Celery", "dramatiq")


def _one_stage(on: Databases, workers: int) -> Ways:
    ways: dict[str, Sequence[Contender]] = {}
    if workers == 1:
        ways[LIMIT] = _limit(on, 30_000)
    ways["redrive"] = _redrive(on, 30_000 * workers, workers=workers)
    peer = partial(_peers, on, workers=workers)
    return ways | {
        "pgqueuer": peer("pgqueuers", 15_000 * workers, (100, 250, 100)),
        "awa": peer("awas", 6_000, (64, 256)),
        "chancy": peer("chancies", 4_000, (100,)),
        "absurd": peer("absurds", 600, (32, 100)),
        "DBOS": peer("dboses", 400, (100,)),
        "procrastinate": peer("procrastinates", 600, (10, 100)),
        "Celery, on Redis": peer("celeries", 6_000, (4, 100)),
        "dramatiq, on Redis": peer("dramatiqs", 6_000, (8,)),
    }


def _limit(on: Databases, jobs: int, **asked: object) -> Sequence[Contender]:
    return [partial(_on, on, ours.limit, jobs=jobs, batch=batch, **asked) for batch in BATCHES]


def _redrive(on: Databases, jobs: int, **asked: object) -> Sequence[Contender]:
    # A commit carries what has ended since the last one: with more at a time there are fewer.
    return [
        partial(_on, on, ours.drain, jobs=jobs, concurrency=concurrency, **asked)
        for concurrency in (256, 1_024, 256, 1_024)
    ]


def _three_stages(on: Databases) -> Ways:
    return {
        "bare SQL: the same, three times": _limit(on, 10_000, stages=3),
        "redrive": _redrive(on, 15_000, stages=3),
        "absurd, steps": _peers(on, "absurds", 300, (32, 100), stages=3),
        "DBOS, steps": _peers(on, "dboses", 200, (100,), stages=3),
    }


def _fails_once(on: Databases) -> Ways:
    return {
        "bare SQL: retry, complete, two audits": _limit(on, 10_000, fails_once=True),
        "redrive": _redrive(on, 30_000, fails_once=True),
        "pgqueuer": _peers(on, "pgqueuers", 1_500, (100, 250), fails_once=True),
        "procrastinate": _peers(on, "procrastinates", 400, (100,), fails_once=True),
        "Celery, on Redis": _peers(on, "celeries", 1_500, (100,), fails_once=True),
        "dramatiq, on Redis": _peers(on, "dramatiqs", 1_500, (8,), fails_once=True),
        "DBOS, step retries (not stored)": _peers(on, "dboses", 250, (100,), fails_once=True),
    }


def _submit(on: Databases) -> Ways:
    return {
        "bare COPY": [partial(_on, on, ours.copy, jobs=50_000)] * ROUNDS,
        "redrive, submit_many": [partial(_on, on, ours.submit, jobs=50_000)] * ROUNDS,
        "redrive, submit_many with keys": [partial(_on, on, ours.submit, jobs=50_000, has_keys=True)]
        * ROUNDS,
    }


def _pickup(on: Databases, *, has_peers: bool) -> list[Figure]:
    found = {"redrive": measured(partial(_on, on, ours.pickup))}
    if has_peers:
        for name, module in (
            ("pgqueuer", "pgqueuers"),
            ("procrastinate", "procrastinates"),
            ("absurd, looks every 10 ms", "absurds"),
            ("DBOS, looks every 10 ms", "dboses"),
        ):
            found[name] = _peer(on, "pickup", module, {"jobs": 0, "batch": 10})
    percentiles = {
        f"{name}, {percentile}": figures[place]
        for name, figures in found.items()
        for place, percentile in enumerate(("p50", "p99"))
    }
    return figures_of("submit to start, idle worker", percentiles)


def _on(on: Databases, contender: object, folder: Path, **asked: object) -> object:
    """Run one of our contenders on a database of its own."""
    return contender(folder, url=on.new(), **asked)  # type: ignore[operator]


def _peers(
    on: Databases,
    module: str,
    jobs: int,
    batches: Sequence[int],
    *,
    workers: int = 1,
    stages: int = 1,
    fails_once: bool = False,
) -> Sequence[Contender]:
    asked = {"jobs": jobs, "workers": workers, "stages": stages, "fails_once": fails_once}
    return [partial(_only, on=on, module=module, asked={**asked, "batch": batch}) for batch in batches]


def _only(_: Path, *, on: Databases, module: str, asked: Mapping[str, object]) -> float:
    """Return what a peer needs for a job; what does not run here is reported and left out."""
    try:
        return _peer(on, "drain", module, asked)[0]
    except RuntimeError as error:
        sys.stdout.write(f"not measured: {module} with {asked}: {str(error).splitlines()[-1]}\n")
        sys.stdout.flush()
        return float("inf")


def _peer(on: Databases, what: str, module: str, asked: Mapping[str, object]) -> list[float]:
    given = json.dumps({"url": on.new(), **asked})
    done = subprocess.run(
        [str(PEERS_PYTHON), "-m", "bench.peers.postgres", what, module, given],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{module}: {done.stderr[-2_000:]}")
    figures: list[float] = json.loads(done.stdout.splitlines()[-1])
    return figures
