# SPDX-License-Identifier: Apache-2.0
"""The judge: compares the store with the ledger of effects outside it, and says which promise was broken.

Every job submitted is complete, dead, cancelled or open; every committed stage had its effect; an effect happened more often than it
was committed only where an attempt on record crashed; no committed stage ran again; a failed job has one open dead letter.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable

from tests.embedded import Tables

Effect = tuple[int, str]
OPEN = {"queued", "processing"}


def breaches(db: Tables, effects: Iterable[Effect], submitted: set[int]) -> list[str]:
    """Say what the store and the ledger disagree about; nothing when every promise was kept."""
    return [
        *_file_breaches(db),
        *_account_breaches(db, submitted),
        *_attempt_breaches(db),
        *_effect_breaches(db, Counter(effects)),
    ]


def _file_breaches(db: Tables) -> list[str]:
    if not isinstance(db, sqlite3.Connection):
        return []
    found = [str(row[0]) for row in db.execute("PRAGMA integrity_check") if row[0] != "ok"]
    return found + [f"a row refers to nothing: {row}" for row in db.execute("PRAGMA foreign_key_check")]


def _account_breaches(db: Tables, submitted: set[int]) -> list[str]:
    found = []
    statuses = dict(db.execute("SELECT id, status FROM jobs WHERE parent_id IS NULL"))
    if set(statuses) != submitted:
        found.append(f"lost: {submitted - set(statuses)}; from nowhere: {set(statuses) - submitted}")
    counted = Counter(status for (status,) in db.execute("SELECT status FROM jobs"))
    tallied = dict(db.execute("SELECT status, sum(jobs) FROM tallies GROUP BY status HAVING sum(jobs) > 0"))
    ended = {status: jobs for status, jobs in counted.items() if status not in OPEN}
    if tallied != ended:
        found.append(f"the tally says {tallied}, the jobs say {ended}")
    letters = Counter(
        dict(db.execute("SELECT job_id, count(*) FROM dead_letters WHERE state = 'open' GROUP BY 1"))
    )
    failed = Counter(job for (job,) in db.execute("SELECT id FROM jobs WHERE status = 'failed'"))
    if letters != failed:
        found.append(f"open dead letters of {letters}, failed jobs {failed}")
    return found


def _attempt_breaches(db: Tables) -> list[str]:
    again = db.execute(
        "SELECT later.job_id, later.lane_id FROM attempts early JOIN attempts later USING (job_id, lane_id, round)"
        " WHERE early.outcome = 'ok' AND later.dispatch > early.dispatch"
    ).fetchall()
    burned = db.execute(
        "SELECT job_id, outcome FROM attempts WHERE burned = 1 AND outcome IN ('hold', 'crashed')"
    ).fetchall()
    unsaid = db.execute(
        "SELECT id FROM jobs WHERE status = 'complete' AND (SELECT count(*) FROM attempts WHERE job_id = id AND outcome = 'ok')"
        " <> (SELECT count(*) FROM lanes WHERE lanes.pipeline = jobs.pipeline)"
    ).fetchall()
    return [
        *(f"a committed stage ran again: {row}" for row in again),
        *(f"a hold or a crash burned an attempt: {row}" for row in burned),
        *(f"complete without every stage on record: {row}" for row in unsaid),
    ]


def _effect_breaches(db: Tables, effects: Counter[Effect]) -> list[str]:
    names = dict(db.execute("SELECT id, stage FROM lanes"))
    rows = db.execute(
        "SELECT job_id, lane_id, outcome FROM attempts WHERE outcome IN ('ok', 'crashed')"
    ).fetchall()
    ok = Counter((job, names[lane]) for job, lane, outcome in rows if outcome == "ok")
    crashed = Counter((job, names[lane]) for job, lane, outcome in rows if outcome == "crashed")
    running = {
        (job, names[lane])
        for job, lane in db.execute("SELECT id, lane_id FROM jobs WHERE status = 'processing'")
    }
    found = [f"{key} is committed without its effect" for key in ok if not effects[key]]
    for key, times in effects.items():
        if times > ok[key] + crashed[key] + (key in running):
            found.append(f"{key}: {times} effects, {ok[key]} commits and {crashed[key]} crashes on record")
    return found
