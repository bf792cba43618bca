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

from apps.collabiq.settings import PREFIX, Settings
from apps.collabiq.tests.driving import mail
from apps.collabiq.tests.services import Gemini, Gmail, Notion
from apps.collabiq.tests.wire import Asked, Service

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


@pytest.mark.req("CQ-5.1")
@pytest.mark.parametrize(
    ("service", "request_line"),
    [
        ("gmail", "GET /gmail/v1/users/me/messages/"),
        ("gemini", "POST /v1beta/models/"),
        ("notion", "POST /v1/pages"),
    ],
)
def test_after_a_kill_in_any_stage_there_is_one_page_for_each_mail(
    remote: Settings, gmail: Gmail, gemini: Gemini, notion: Notion, service: str, request_line: str
) -> None:
    remote = replace(remote, lease=1.0)
    gmail.mails = {"19a3f3f856f0b4d4": mail("One"), "19a3f3f856f0b4d5": mail("Two")}
    reached, over = threading.Event(), threading.Event()

    def hold(asked: Asked) -> None:
        # The request was carried out, and its answer never leaves: nobody but the service knows.
        if f"{asked.method} {asked.path}".startswith(request_line) and not over.is_set():
            reached.set()
            over.wait(LONGEST_S)

    holding: Service = {"gmail": gmail, "gemini": gemini, "notion": notion}[service]
    holding.on_request = hold
    first = start(remote)
    try:
        assert reached.wait(LONGEST_S)
    finally:
        os.kill(first.pid, signal.SIGKILL)
        first.communicate()
        over.set()
    second = start(remote)
    told, _ = second.communicate(timeout=LONGEST_S)

    assert second.returncode == 0, told
    assert "2 mails" in told
    assert "0 among the dead letters" in told
    titles = sorted(notion.title_of(page) for page in notion.pages)
    assert titles == ["One", "Two"]
