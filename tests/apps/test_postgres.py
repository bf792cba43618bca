# SPDX-License-Identifier: Apache-2.0
"""Every application with its jobs on PostgreSQL: its main way from beginning to end. `make app-tests-postgres` runs all of its tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.databases import Schemas

ROOT = Path(__file__).parents[2]
TESTS = (
    "criticizer/tests/test_cli.py::test_what_is_queued_is_done_by_a_watch",
    "collabiq/tests/test_cli.py::test_a_run_reads_what_is_new_and_keeps_what_failed",
    "forge/tests/test_accounting.py::test_a_bad_sample_becomes_a_dead_letter_and_the_others_go_on",
    "fetchbox/tests/test_operations.py::test_a_worker_that_is_killed_in_the_middle_loses_nothing_and_doubles_nothing",
    "pdf2xml/tests/test_kills.py::test_a_result_that_was_written_before_the_worker_died_is_not_made_again",
)


def test_every_application_works_with_its_jobs_on_a_server(schemas: Schemas) -> None:
    """In a process of their own: what they share for a session is made for one database."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-n",
            "0",
            "-p",
            "no:cacheprovider",
            *(f"apps/{test}" for test in TESTS),
        ],
        cwd=ROOT,
        env={**plain, "REDRIVE_TEST_STORES": "postgres", "REDRIVE_TEST_DATABASE_URL": schemas.server},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert f"{len(TESTS)} passed" in ended.stdout, ended.stdout[-5_000:] + ended.stderr[-2_000:]
