# SPDX-License-Identifier: Apache-2.0
"""An installation as three processes, and visitors who use it over HTTP."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from apps.pdf2xml.demo import Process
from apps.pdf2xml.pipeline import BREAKER
from apps.pdf2xml.settings import Settings
from redrive import connect
from redrive.ops.audit import Actor
from redrive.ops.breakers import breakers, move
from redrive.store.protocol import Store

PATIENCE = 90.0
Answer = dict[str, Any]


def until(condition: Callable[[], object], what: str = "") -> Any:
    """Look again and again until a condition holds, and return what it returned; fail when it never does."""
    end_at = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end_at, f"this never came: {what or condition}"
        threading.Event().wait(0.02)
    return found


class Site:
    """Gateway, API and worker on one folder. The worker is started anew when a test wants other settings."""

    def __init__(self, folder: Path, environment: dict[str, str], **settings: Any) -> None:
        self._environment = environment
        folder.mkdir(parents=True, exist_ok=True)
        plain = Settings(
            folder=folder,
            retry_delays=(0.01, 0.02, 0.03),
            breaker_min_calls=1000,
            breaker_ramp=0.0,
            lease=2.0,
            **settings,
        )
        self.gateway = self._start("gateway", "--port", "0", "--faults", settings=plain)
        self.settings = replace(plain, gateway_url=self.gateway.url)
        self.api = self._start("api", "--port", "0", settings=self.settings)
        self._worker: tuple[Settings, Process] | None = None
        self._admin = httpx.Client(base_url=self.gateway.url, timeout=PATIENCE, trust_env=False)

    def _start(self, *arguments: str, settings: Settings) -> Process:
        return Process(
            arguments, settings.environment() | self._environment, settings.folder / f"{arguments[0]}.log"
        )

    @property
    def store(self) -> Store:
        return connect(self.settings.database).store

    def worker(self, **changes: Any) -> Process:
        """Have exactly one worker run, with these settings; return it."""
        wanted = replace(self.settings, **changes)
        if self._worker is not None and self._worker[0] == wanted and self._worker[1].is_running():
            return self._worker[1]
        self.no_worker()
        made = self._start("worker", settings=wanted)
        self._worker = (wanted, made)
        return made

    def no_worker(self, number: int = signal.SIGTERM) -> None:
        if self._worker is not None:
            self._worker[1].end(number)
            self._worker = None

    def restart_gateway(self) -> None:
        """Start the gateway again at the same address."""
        port = self.gateway.url.rpartition(":")[2]
        self.gateway = self._start("gateway", "--port", port, "--faults", settings=self.settings)

    def restart_api(self) -> None:
        port = self.api.url.rpartition(":")[2]
        self.api = self._start("api", "--port", port, settings=self.settings)

    def fault(self, mode: str, **how: object) -> None:
        """Make the gateway fail from now on, or recover."""
        self._admin.post("/admin/fault", json={"mode": mode, **how}).raise_for_status()

    def asked(self, job: int) -> int:
        """Return how often the gateway was asked to convert for a job."""
        counts: dict[str, int] = self._admin.get("/admin/asked").json()
        # The key names the database as well.
        return sum(count for key, count in counts.items() if key.endswith(f"-{job}:convert"))

    def phase(self) -> str:
        """Return the state of the gateway's breaker."""
        store = self.store
        found = [one.phase for one in breakers(store) if one.name == BREAKER]
        store.close()
        return found[0] if found else "closed"

    def reset(self) -> None:
        """A good gateway and a closed breaker."""
        if not self.gateway.is_running():
            self.restart_gateway()
        if not self.api.is_running():
            self.restart_api()
        self.fault("ok")
        store = self.store
        # Also a closed one: it would remember the calls of earlier tests, and not open at a few failures.
        move(store, BREAKER, "close", Actor("test", None), is_new=True)
        store.close()

    def log(self, name: str) -> str:
        return (self.settings.folder / f"{name}.log").read_text(encoding="utf-8")

    @contextmanager
    def visitor(self) -> Generator[Visitor]:
        with httpx.Client(base_url=self.api.url, timeout=PATIENCE, trust_env=False) as client:
            yield Visitor(client)

    def end(self) -> None:
        self.no_worker()
        self._admin.close()
        self.api.end()
        self.gateway.end()


class Visitor:
    """Somebody with a session of their own."""

    def __init__(self, client: httpx.Client) -> None:
        self.http = client
        client.get("/").raise_for_status()

    def upload(self, data: bytes, *, name: str = "file.pdf", mapping: str = "text") -> httpx.Response:
        return self.http.post(
            "/api/upload", data={"mapping": mapping}, files={"file": (name, data, "application/pdf")}
        )

    def submit(self, data: bytes, **how: str) -> int:
        answer = self.upload(data, **how)
        assert answer.status_code in {200, 201}, answer.text
        return int(answer.json()["id"])

    def job(self, job: int) -> Answer:
        answer = self.http.get(f"/api/jobs/{job}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def jobs(self) -> list[Answer]:
        return list(self.http.get("/api/jobs").json()["jobs"])

    def wait(self, job: int, *statuses: str) -> Answer:
        """Wait until a job is in one of these states."""

        def look() -> Answer | None:
            found = self.job(job)
            return found if found["status"] in statuses else None

        return dict(until(look, f"job {job} becomes {' or '.join(statuses)}; it is {self.job(job)}"))

    def download(self, job: int) -> httpx.Response:
        return self.http.get(f"/api/jobs/{job}/download")

    def retry(self, job: int) -> httpx.Response:
        return self.http.post(f"/api/jobs/{job}/retry")


def code_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, str(answer.json()["code"])
