# SPDX-License-Identifier: Apache-2.0
"""The deep checks, which read the whole database: file integrity, references, and every counter against a recount.

Changes nothing. Counters may differ for a moment while workers write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from redrive.ops.checkup.findings import REPORT, Finding, fine, problem
from redrive.store.protocol import Store
from redrive.store.reader import Reader
from redrive.store.statements import jobs as job_sql
from redrive.store.statements import replays as replay_sql
from redrive.store.statements import upkeep as upkeep_sql

LISTED_MAX: Final = 5


def check_integrity(store: Store) -> Iterator[Finding]:
    """Yield the findings of all deep checks."""
    wrong = [found for found in store.query(upkeep_sql.integrity()) if found != "ok"]
    if wrong:
        yield problem(
            "integrity",
            f"the database is damaged: {'; '.join(wrong[:3])}",
            "Stop the workers, keep a copy of all its files, and restore the last backup.",
        )
    else:
        yield fine("integrity", "no page or index is damaged")
    for table, parent, count in store.query(upkeep_sql.broken_references()):
        yield problem("integrity", f"{count} rows of {table} refer to no row of {parent}", REPORT)
    with store.reading() as moment:
        # Of one moment: a job that moves between two counts would be a difference.
        yield from [_job_counters(moment), _letter_counters(moment), _lost_letters(moment)]


def _job_counters(store: Reader) -> Finding:
    counters, recounted = (
        Counter({row[:3]: row.jobs for row in store.query(asked)})
        for asked in (job_sql.counts(), job_sql.recount())
    )
    wrong = [
        f"{pipeline}.{stage} {status}: counter {counters[lane]}, recount {recounted[lane]}"
        for lane in sorted(counters.keys() | recounted.keys())
        for pipeline, stage, status in (lane,)
        if counters[lane] != recounted[lane]
    ]
    if wrong:
        return problem(
            "counters",
            f"counters differ from the jobs: {'; '.join(wrong[:LISTED_MAX])}",
            "Run it again while no worker runs; if they still differ, report it.",
        )
    return fine("counters", "every counter equals its recount")


def _letter_counters(store: Reader) -> Finding:
    wrong = [
        f"group {group} {state}: counter {counter or 0}, recount {found or 0}"
        for group, state, counter, found in store.query(upkeep_sql.wrong_letter_tallies(limit=LISTED_MAX))
    ]
    wrong += [
        f"replay {replay}: counter {counter or 0}, recount {found or 0}"
        for replay, counter, found in store.query(replay_sql.wrong_replay_tallies(limit=LISTED_MAX))
    ]
    if wrong:
        return problem("letter counters", f"counters differ from the letters: {'; '.join(wrong)}", REPORT)
    return fine("letter counters", "every counter of dead letters equals its recount")


def _lost_letters(store: Reader) -> Finding:
    lost = [str(job) for job in store.query(upkeep_sql.jobs_without_letter(limit=LISTED_MAX))]
    if lost:
        return problem(
            "letters", f"jobs whose dead letters do not match their state: {', '.join(lost)}", REPORT
        )
    return fine("letters", "every failed job has exactly one dead letter, and no other job has one")
