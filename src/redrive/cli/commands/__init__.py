# SPDX-License-Identifier: Apache-2.0
"""The commands, one file per noun, and what the help and the completion of `redrive` say about them.

The texts are those of the commands themselves; a test compares them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

WORK: Final = "Run work"
LOOK: Final = "Inspect"
BACK: Final = "Recover failed jobs"
KEEP: Final = "Maintain the database"


class Entry(NamedTuple):
    """One command, or group of commands, of the first level."""

    panel: str
    module: str
    """Where it is: the `app` of a group, or the function of the command's name."""
    help: str
    added_by: tuple[str, ...] = ()
    """Modules that add their commands to the group when they are imported."""


TREE: Final = {
    "submit": Entry(WORK, "submit", "Submit jobs to a pipeline."),
    "worker": Entry(WORK, "worker", "Run the jobs of some pipelines until stopped by a signal."),
    "events": Entry(
        LOOK,
        "events",
        "Show the latest attempts with outcome and reason, and changes of breakers with their cause, oldest first.",
    ),
    "stats": Entry(
        LOOK,
        "events",
        "Count jobs by state, and show what is held, since when, and by which breaker, and what waits for a limit.",
    ),
    "doctor": Entry(
        KEEP,
        "upkeep",
        "Check the database, its schema, clock, disk, workers, leases and breakers, and advise what to do.",
    ),
    "backup": Entry(
        KEEP, "upkeep", "Copy the database into a new file while workers keep running, and check the copy."
    ),
    "prune": Entry(
        KEEP,
        "upkeep",
        "Delete jobs that ended long ago, a thousand per transaction; failed ones only with --failed.",
    ),
    "migrate": Entry(
        KEEP, "upkeep", "Migrate the database to the schema of this redrive, or create a new one."
    ),
    "transfer": Entry(
        KEEP,
        "upkeep",
        "Move a stopped installation from a file to a PostgreSQL server, and compare all counts.",
    ),
    "demo": Entry(
        WORK,
        "demo",
        "Run jobs against a faulty upstream, kill a worker, account for every job, and replay some that failed.",
    ),
    "run": Entry(WORK, "run", "Run many items through a pipeline and account for each."),
    "schedule": Entry(WORK, "schedule", "Submit jobs, or prune, repeatedly by a cron expression."),
    "job": Entry(LOOK, "job", "Inspect jobs; cancel, retry and erase them."),
    "dlq": Entry(
        BACK,
        "dlq",
        "Inspect, triage, edit and move dead letters.",
        added_by=("dlq_edit", "dlq_transfer", "dlq_triage"),
    ),
    "replay": Entry(BACK, "replay", "Replay dead letters; follow, pause, cancel and close replays."),
    "pipeline": Entry(LOOK, "pipeline", "List pipelines; pause and resume them."),
    "breaker": Entry(LOOK, "breaker", "List breakers; open, close or isolate them."),
    "limit": Entry(LOOK, "limit", "List limits; set, pause or resume them."),
    "report": Entry(LOOK, "report", "Report retries, errors, stages and the account of jobs."),
    "lab": Entry(LOOK, "lab", "Choose a retry policy by evidence."),
}
