# SPDX-License-Identifier: Apache-2.0
"""The deep checks, which read the whole database: file integrity, references, and every counter against a recount.

Changes nothing. Counters may differ for a moment while workers write.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast

from redrive.ops.checkup.findings import REPORT, Finding, fine, problem
from redrive.ops.jobs.inspect import counts
from redrive.store.protocol import Store

LISTED_MAX: Final = 5


def check_integrity(store: Store) -> Iterator[Finding]:
    """Yield the findings of all deep checks."""
    wrong = [str(row[0]) for row in store.query("integrity") if row[0] != "ok"]
    if wrong:
        yield problem(
            "integrity",
            f"the database is damaged: {'; '.join(wrong[:3])}",
            "Stop the workers, keep a copy of all its files, and restore the last backup.",
        )
    else:
        yield fine("integrity", "no page or index is damaged")
    for table, parent, count in store.query("broken_references"):
        yield problem("integrity", f"{count} rows of {table} refer to no row of {parent}", REPORT)
    yield _job_counters(store)
    yield _letter_counters(store)
    yield _lost_letters(store)


def _job_counters(store: Store) -> Finding:
    recounted: dict[tuple[str, str], dict[str, int]] = {}
    for pipeline, stage, status, found in store.query("recount"):
        recounted.setdefault((str(pipeline), str(stage)), {})[str(status)] = cast("int", found)
    counters = counts(store)
    wrong = [
        f"{pipeline}.{stage} {status}: counter {counter.get(status, 0)}, recount {actual.get(status, 0)}"
        for pipeline, stage in sorted(recounted.keys() | counters.keys())
        for counter in (counters.get((pipeline, stage), {}),)
        for actual in (recounted.get((pipeline, stage), {}),)
        for status in sorted(counter.keys() | actual.keys())
        if counter.get(status, 0) != actual.get(status, 0)
    ]
    if wrong:
        return problem(
            "counters",
            f"counters differ from the jobs: {'; '.join(wrong[:LISTED_MAX])}",
            "Run it again while no worker runs; if they still differ, report it.",
        )
    return fine("counters", "every counter equals its recount")


def _letter_counters(store: Store) -> Finding:
    wrong = [
        f"group {group} {state}: counter {counter or 0}, recount {found or 0}"
        for group, state, counter, found in store.query("wrong_letter_tallies", LISTED_MAX)
    ]
    wrong += [
        f"replay {replay}: counter {counter or 0}, recount {found or 0}"
        for replay, counter, found in store.query("wrong_replay_tallies", LISTED_MAX)
    ]
    if wrong:
        return problem("letter counters", f"counters differ from the letters: {'; '.join(wrong)}", REPORT)
    return fine("letter counters", "every counter of dead letters equals its recount")


def _lost_letters(store: Store) -> Finding:
    lost = [str(row[0]) for row in store.query("jobs_without_letter", LISTED_MAX)]
    if lost:
        return problem(
            "letters", f"jobs whose dead letters do not match their state: {', '.join(lost)}", REPORT
        )
    return fine("letters", "every failed job has exactly one dead letter, and no other job has one")
