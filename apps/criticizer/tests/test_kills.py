# SPDX-License-Identifier: Apache-2.0
"""kill -9 of a real worker in the middle of each stage: the next one takes over, and people are told once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from apps.criticizer.pipeline import flow
from apps.criticizer.tests.scenes import KEY, order
from apps.criticizer.tests.servers import Fault, Mailbox, Upstream
from apps.database import database_of
from redrive import connect

ROOT = Path(__file__).parents[3]
PATIENCE = 60.0
PATHS = {"fetch": "/change.patch", "llm": "/v1/chat/completions", "notify": "/hook"}


class Workers:
    """Real `criticizer watch` processes on one database."""

    def __init__(self, database: Path | str, log: Path, environment: dict[str, str]) -> None:
        self._command = [sys.executable, "-m", "apps.criticizer", "watch", "--until-idle", "--lease", "1"]
        self._command += ["--database-url", str(database), "--log-level", "debug"]
        self._environment = environment
        self._log = log
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            made = subprocess.Popen(
                self._command, cwd=ROOT, env={**os.environ, **self._environment}, stdout=log, stderr=log
            )
        self.started.append(made)
        return made

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")


@pytest.fixture
def database(tmp_path: Path) -> Path | str:
    return database_of(tmp_path / "jobs.db")


@pytest.fixture
def workers(database: Path | str, tmp_path: Path, upstream: Upstream, mailbox: Mailbox) -> Generator[Workers]:
    environment = {
        "CRITICIZER_LLM_KEY": KEY,
        "CRITICIZER_LLM_URL": f"{upstream.url}/v1",
        "CRITICIZER_WEBHOOK_URL": f"{upstream.url}/hook",
        "CRITICIZER_SMTP_URL": f"smtp://127.0.0.1:{mailbox.port}",
        "CRITICIZER_HOSTS": upstream.address,
    }
    made = Workers(database, tmp_path / "jobs.log", environment)
    yield made
    for each in made.started:
        each.kill()
        each.wait()


def test_after_kill_9_in_every_stage_people_are_told_once(
    database: Path | str, workers: Workers, upstream: Upstream
) -> None:
    """Of three jobs one is in each stage; its request was carried out, and its answer never comes."""
    with connect(database) as rd:
        jobs = [rd.submit(flow, order(upstream)).id for _ in PATHS]
    for path in PATHS.values():
        upstream.fail(path, Fault(how="gate"))

    doomed = workers.start()
    assert all(upstream.at_gate.acquire(timeout=PATIENCE) for _ in PATHS)
    doomed.kill()
    doomed.wait()
    upstream.gate.set()
    assert workers.start().wait(PATIENCE) == 0, workers.log

    crashed: set[str] = set()
    with connect(database) as rd:
        for job in jobs:
            done = rd.job(job)
            assert done.status == "complete"
            ended = [(str(each.stage), str(each.outcome)) for each in done.attempts()]
            (stage,) = (name for name, outcome in ended if outcome == "crashed")
            expected = [(name, "ok") for name in PATHS]
            expected.insert(expected.index((stage, "ok")), (stage, "crashed"))
            assert ended == expected
            crashed.add(stage)
    assert crashed == set(PATHS)
    assert [upstream.calls(path) for path in PATHS.values()] == [len(jobs) + 1] * 3
    assert sorted(key.rpartition("-")[2] for key in upstream.effects) == [f"{job}:notify" for job in jobs]
    assert {asked.headers["idempotency-key"] for asked in upstream.asked["/hook"]} == set(upstream.effects)


def test_after_kill_9_a_mail_that_was_taken_is_sent_again_under_the_same_id(
    database: Path | str, workers: Workers, upstream: Upstream, mailbox: Mailbox
) -> None:
    """SMTP has no idempotency key; whoever receives the mail twice knows by its Message-ID."""
    with connect(database) as rd:
        rd.submit(flow, order(upstream, "smtp:team@example.org"))
    mailbox.is_held = True

    doomed = workers.start()
    assert mailbox.at_gate.wait(PATIENCE)
    doomed.kill()
    doomed.wait()
    mailbox.gate.set()
    assert workers.start().wait(PATIENCE) == 0, workers.log

    assert len(mailbox.messages) == 2
    assert len({message["Message-ID"] for message in mailbox.messages}) == 1
