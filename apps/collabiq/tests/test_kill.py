# SPDX-License-Identifier: Apache-2.0
"""A worker that is killed in each stage: another one goes on, and a mail has one page."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from apps.collabiq.pipeline import MailRef, open_clients, pipeline_of
from apps.collabiq.settings import PREFIX, Settings
from apps.collabiq.tests.driving import mail, write_mailbox
from apps.collabiq.tests.services import Gemini, Gmail, Notion
from apps.collabiq.tests.wire import Asked, Service
from redrive import Redrive
from tests.embedded import changing

ROOT = Path(__file__).parents[3]
LONGEST_S = 60


def start(settings: Settings) -> subprocess.Popen[str]:
    told = {PREFIX + name.upper(): str(value) for name, value in asdict(settings).items()}
    return subprocess.Popen(
        [sys.executable, "-m", "apps.collabiq", "run"],
        cwd=ROOT,
        env={**os.environ, **told},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


class Held:
    """Holds back the answer of the first request of a kind to each service, until everything is over."""

    def __init__(self) -> None:
        self.reached = threading.Semaphore(0)
        self.over = threading.Event()

    def hold_first(self, service: Service, request_line: str) -> None:
        left = [True]

        def hold(asked: Asked) -> None:
            # The request was carried out, and its answer never leaves: nobody but the service knows.
            if f"{asked.method} {asked.path}".startswith(request_line) and left and left.pop():
                self.reached.release()
                self.over.wait(LONGEST_S)

        service.on_request = hold


@pytest.mark.req("CQ-5.1")
def test_after_a_kill_in_every_stage_there_is_one_page_for_each_mail(
    remote: Settings, gmail: Gmail, gemini: Gemini, notion: Notion
) -> None:
    """Of three mails one is in each stage."""
    remote = replace(remote, lease=1.0)
    gmail.mails = {f"19a3f3f856f0b4d{number}": mail(f"Mail {number}") for number in range(3)}
    held = Held()
    held.hold_first(gmail, "GET /gmail/v1/users/me/messages/")
    held.hold_first(gemini, "POST /v1beta/models/")
    held.hold_first(notion, "POST /v1/pages")
    first = start(remote)
    try:
        assert all(held.reached.acquire(timeout=LONGEST_S) for _ in range(3))
    finally:
        os.kill(first.pid, signal.SIGKILL)
        first.communicate()
        held.over.set()
    second = start(remote)
    told, _ = second.communicate(timeout=LONGEST_S)

    assert second.returncode == 0, told
    assert "3 mails" in told
    assert "0 among the dead letters" in told
    titles = sorted(notion.title_of(page) for page in notion.pages)
    assert titles == ["Mail 0", "Mail 1", "Mail 2"]


DEADLY = """
import os
from email import feedparser

read = feedparser.BytesFeedParser.feed

def feed(self, data):
    if b"deadly" in data:
        os._exit(9)
    read(self, data)

feedparser.BytesFeedParser.feed = feed
"""


def test_a_mail_that_kills_its_worker_is_given_up(
    settings: Settings, rd: Redrive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers have died of it, and of the mail beside it; only processes of their own read what is deadly here."""
    write_mailbox(settings, [mail("Good"), mail("deadly")])
    (tmp_path / "sitecustomize.py").write_text(DEADLY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for name, value in asdict(settings).items():
        monkeypatch.setenv(PREFIX + name.upper(), str(value))
    with open_clients(rd, settings) as clients:
        pipeline = pipeline_of(settings, clients)
        jobs = [rd.submit(pipeline, MailRef(each), key=each) for each in clients.source.ids()]
        with changing(rd) as db:
            db.execute("UPDATE jobs SET suspect_count = 2")
        rd.work([pipeline], until_idle=True)

    assert sorted(job.status for job in jobs) == ["complete", "failed"]
    assert [letter.code for letter in rd.letters.list().letters] == ["WORKER_CRASH"]
