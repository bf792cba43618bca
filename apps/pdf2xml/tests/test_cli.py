# SPDX-License-Identifier: Apache-2.0
"""The commands, as a user runs them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from apps.pdf2xml.tests.pdfs import pdf
from apps.pdf2xml.tests.site import PATIENCE, Site, Visitor, code_of

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "apps.pdf2xml"]


def test_the_demo_converts_its_sample_and_ends(tmp_path: Path) -> None:
    run = subprocess.run(
        [*COMMAND, "demo", "--check", "--folder", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )

    assert run.returncode == 0, run.stdout + run.stderr
    assert "PDF to XML is at http://127.0.0.1:" in run.stdout
    assert '<document mapping="text" pages="2">' in run.stdout
    assert '<document mapping="layout" pages="2">' in run.stdout


def test_the_demo_runs_until_it_is_interrupted(tmp_path: Path) -> None:
    command = [*COMMAND, "demo", "--port", "0", "--folder", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        assert "http://127.0.0.1:" in demo.stdout.readline()
        assert demo.stdout.readline() == "^C ends it\n"
        demo.send_signal(signal.SIGINT)

        assert demo.wait(PATIENCE) == 0


def test_wrong_settings_end_a_command_with_2_and_one_line(tmp_path: Path) -> None:
    run = subprocess.run(
        [*COMMAND, "worker"],
        cwd=ROOT,
        env={**os.environ, "PDF2XML_LEASES": "3"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 2
    assert run.stderr.startswith("error: PDF2XML_LEASES is not a setting")


def test_an_age_needs_its_unit(tmp_path: Path) -> None:
    run = subprocess.run(
        [*COMMAND, "purge", "--older-than", "30"],
        cwd=ROOT,
        env={**os.environ, "PDF2XML_FOLDER": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 2
    assert "--older-than must be a duration with a unit, got '30'" in run.stderr


def test_purge_deletes_what_is_older_than_the_retention(site: Site, visitor: Visitor) -> None:
    job = visitor.submit(pdf())
    visitor.wait(job, "complete")

    environment = {**os.environ, **site.settings.environment()}
    for age, code in (("1h", 200), ("0s", 404)):
        run = subprocess.run(
            [*COMMAND, "purge", "--older-than", age],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert "files deleted" in run.stdout
        assert visitor.download(job).status_code == code
    assert code_of(visitor.download(job)) == (404, "EXPIRED")
    assert visitor.submit(pdf()) != job
