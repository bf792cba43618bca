# SPDX-License-Identifier: Apache-2.0
"""How many jobs a second are completed durably, next to peers and to bare sqlite3; and how many are stored.

Nanoseconds are per job: a payload of 200 bytes, no-op stages. The first line of each group is the limit, and the ratio says how
many times its cost a contender takes. Peers are described in `bench/peers/`; the goals stand in `bench/goals.py`. The lines that
begin with "cursor" are queues without a claim: one consumer reads on and deletes what it has read. They are shown because they are
faster, and are no part of the goals because they keep no job that several workers could share, retry or account for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from bench import limit, ours
from bench.measure import Figure
from bench.peers import dboses, hueys, lite, persist
from bench.processes import Contender, race

ROUNDS = 5
LIMIT = "bare sqlite3: claim 256, complete, audit"
Ways = Mapping[str, Sequence[Contender]]


def run() -> list[Figure]:
    """Run every group; takes about four minutes."""
    groups: dict[str, Ways] = {
        "one stage, FULL": _one_stage_full(),
        "one stage, NORMAL": _one_stage_normal(),
        "three stages, FULL": _three_stages(),
        "fails once, FULL": _fails_once(),
        "submit": _submit(),
    }
    return [figure for group, ways in groups.items() for figure in race(group, ways)]


def _rounds(way: Contender) -> Sequence[Contender]:
    return [way] * ROUNDS


def _one_stage_full() -> Ways:
    return {
        LIMIT: _rounds(limit.drain),
        "redrive, async": _rounds(partial(ours.drain, is_async=True)),
        "redrive, sync": _rounds(partial(ours.drain, is_async=False)),
        "Huey": _huey(),
        "persist-queue, ack": _rounds(persist.drain_acked),
        "DBOS": _dbos(),
        "cursor: persist-queue, task_done for each": [partial(persist.drain_deleted, batch=1, jobs=2_500)],
        "cursor: persist-queue, task_done for 256": [partial(persist.drain_deleted, batch=256, jobs=8_000)],
    }


def _one_stage_normal() -> Ways:
    return {
        LIMIT: _rounds(partial(limit.drain, synchronous="NORMAL")),
        "redrive, async": _rounds(partial(ours.drain, is_async=True, synchronous="NORMAL")),
        "redrive, sync": _rounds(partial(ours.drain, is_async=False, synchronous="NORMAL")),
        "Huey": _huey(synchronous="NORMAL", jobs=4_000),
    }


def _three_stages() -> Ways:
    return {
        "bare sqlite3: the same, three times": _rounds(partial(limit.drain, stages=3, jobs=6_000)),
        "redrive, async": _rounds(partial(ours.drain, is_async=True, stages=3, jobs=8_000)),
        "redrive, sync": _rounds(partial(ours.drain, is_async=False, stages=3, jobs=8_000)),
        "Huey, then": _huey(stages=3, jobs=350),
        "DBOS, steps": _dbos(stages=3, jobs=120),
    }


def _fails_once() -> Ways:
    return {
        "bare sqlite3: retry, complete, two audits": _rounds(partial(limit.drain, fails_once=True)),
        "redrive, async": _rounds(partial(ours.drain, is_async=True, fails_once=True, jobs=8_000)),
        "redrive, sync": _rounds(partial(ours.drain, is_async=False, fails_once=True, jobs=8_000)),
        "Huey, retries": _huey(fails_once=True, jobs=600),
        "DBOS, step retries (not stored)": _dbos(fails_once=True, jobs=250),
    }


def _submit() -> Ways:
    return {
        "bare sqlite3: the rows, 1,000 per commit": _rounds(limit.submit),
        "redrive, submit_many": _rounds(ours.submit),
        "redrive, submit": [ours.submit_each],
        "litequeue, NORMAL": [lite.submit] * 2,
        "Huey, NORMAL": [hueys.submit] * 2,
    }


def _huey(
    *, synchronous: str = "FULL", stages: int = 1, fails_once: bool = False, jobs: int = 1_500
) -> Sequence[Contender]:
    drain = partial(hueys.drain, synchronous=synchronous, stages=stages, fails_once=fails_once, jobs=jobs)
    # The loop is its fastest way in most groups, and gets a second round.
    return [partial(drain, workers=workers) for workers in (0, 1, 4, 0)]


def _dbos(*, stages: int = 1, fails_once: bool = False, jobs: int = 300) -> Sequence[Contender]:
    drain = partial(dboses.drain, stages=stages, fails_once=fails_once, jobs=jobs)
    return [partial(drain, is_queued=is_queued) for is_queued in (False, True, False)]
