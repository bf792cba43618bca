# SPDX-License-Identifier: Apache-2.0
"""Checks of dead letters and replays: whether somebody has to look at a replay, and whether every counter is right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from redrive.engine.replay.campaign import counts_of, replay_of
from redrive.ops.checkup.findings import Finding, fine, problem, warning
from redrive.ops.replay.progress import waits_for
from redrive.store.protocol import Store

SHOWN: Final = 5
LOOKED_AT: Final = 100
REPORT: Final = "Report this with the output of `redrive doctor --deep -o json`."


def check_replays(store: Store) -> Iterator[Finding]:
    """Say which replays wait for somebody."""
    found = [replay_of(row) for row in store.query("replays", 2**62, None, LOOKED_AT)]
    live = [replay for replay in found if replay.ended_at is None]
    for replay in live:
        waiting = waits_for(store, replay, counts_of(store, replay.id))
        if replay.status in {"paused", "stopped"}:
            yield warning(
                "replays",
                f"replay {replay.id} of {replay.pipeline} waits for {waiting}",
                f"redrive replay status {replay.id}, then resume or cancel it.",
            )
        elif waiting is not None and waiting.startswith("a worker"):
            yield warning(
                "replays",
                f"replay {replay.id} waits for {waiting}",
                f"Start a worker for {replay.pipeline}.",
            )
    if not live:
        yield fine("replays", "none is under way")


def recount_letters(store: Store) -> Iterator[Finding]:
    """Compare every counter of dead letters and replays with a recount, and failed jobs with their letters."""
    wrong = [
        f"group {group} {state}: {told or 0} told, {found or 0} there"
        for group, state, told, found in store.query("wrong_letter_tallies", SHOWN)
    ]
    wrong += [
        f"replay {replay}: {told or 0} told, {found or 0} there"
        for replay, told, found in store.query("wrong_replay_tallies", SHOWN)
    ]
    if wrong:
        yield problem("letter counters", f"counters differ from the letters: {'; '.join(wrong)}", REPORT)
    else:
        yield fine("letter counters", "every counter of dead letters agrees with a recount")
    lost = [str(row[0]) for row in store.query("jobs_without_letter", SHOWN)]
    if lost:
        yield problem(
            "letters", f"failed jobs and dead letters do not belong together: jobs {', '.join(lost)}", REPORT
        )
    else:
        yield fine("letters", "every failed job has its one dead letter, and no other job has one")
