# SPDX-License-Identifier: Apache-2.0
"""A demonstration on embedded defaults: a broker, the API and a worker as processes, and a sample job with a few failures.

It needs no network: the resources come from a small server of its own, which also fails on purpose.
"""

from __future__ import annotations

import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import httpx

READY_SECONDS: Final = 30.0
PAUSE: Final = 0.05
PAGES: Final = {"/one.txt": b"one\n", "/two.txt": b"two\n" * 1_000, "/large.bin": b"\0" * 5_000_000}
Echo = Callable[[str], None]


class _Origin(http.server.BaseHTTPRequestHandler):
    """Serves the sample; `/flaky.txt` fails twice, `/gone.txt` is not there."""

    seen: Final[dict[str, int]] = {}

    def do_GET(self) -> None:
        self.seen[self.path] = self.seen.get(self.path, 0) + 1
        if self.path == "/flaky.txt" and self.seen[self.path] <= 2:
            self.send_error(503)
            return
        body = PAGES.get(self.path, b"at last\n" if self.path == "/flaky.txt" else None)
        if body is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name.
        """Log nothing."""


def run_demo(*, is_once: bool, echo: Echo) -> None:
    """Start everything, post the sample job, show what becomes of it, and wait for ^C unless it is to end by itself."""
    with tempfile.TemporaryDirectory(prefix="fetchbox-") as folder, ExitStack() as stack:
        origin = stack.enter_context(_served())
        # The sample's own server is on this machine, which FetchBox would refuse to fetch from.
        environment = {
            **os.environ,
            "FETCHBOX_FOLDER": folder,
            "FETCHBOX_ALLOW_PRIVATE": "true",
            "FETCHBOX_BACKOFF_SECONDS": "0.2",
        }
        broker = _broker(stack, Path(folder))
        if broker:
            environment["FETCHBOX_NATS_URL"] = broker
        url = _started(stack, environment, "serve", "--port", "0").removeprefix("listening on ").strip()
        _started(stack, environment, "worker", "--log-level", "error")
        echo(f"API: {url}   objects: {folder}/objects   broker: {broker or 'none'}")
        job = _post_sample(url, origin)
        echo(f"posted a manifest with 5 resources: {url}/jobs/{job}")
        snapshot = _ended(url, job)
        echo(json.dumps(snapshot, indent=2))
        for line in httpx.get(f"{url}/jobs/{job}/log").json()["lines"]:
            echo(
                f"  {line['task_id']:10} {line['stage']:9} attempt {line['attempt']} {line['outcome']:6} {line['code'] or ''}"
            )
        echo(f"\ncurl {url}/jobs/{job}/errors\ncurl {url}/healthz")
        echo(f"redrive dlq list --database-url {folder}/fetchbox.db")
        if not is_once:
            echo("^C ends it and removes the folder.")
            try:
                threading.Event().wait()
            except KeyboardInterrupt:
                echo("")


@contextmanager
def _served() -> Generator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Origin)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def _broker(stack: ExitStack, folder: Path) -> str:
    """Start a NATS server if one is installed; return its address."""
    beside = Path(sys.executable).with_name("nats-server")
    program = str(beside) if beside.exists() else shutil.which("nats-server")
    if program is None:
        return ""
    where = folder / "nats"
    where.mkdir()
    command = [program, "-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(where)]
    command += ["--ports_file_dir", str(where), "-l", str(where / "log")]
    process = stack.enter_context(_process(command, os.environ))
    ports = where / f"{Path(program).name}_{process.pid}.ports"
    give_up_at = time.monotonic() + READY_SECONDS
    while time.monotonic() < give_up_at:
        try:
            return str(json.loads(ports.read_text())["nats"][0])
        except (OSError, ValueError):
            threading.Event().wait(PAUSE)
    return ""


def _started(stack: ExitStack, environment: dict[str, str], *arguments: str) -> str:
    """Start a command of FetchBox; return its first line, which it prints when it is ready."""
    command = [sys.executable, "-m", "apps.fetchbox", *arguments]
    process = stack.enter_context(_process(command, environment))
    line = process.stdout.readline() if process.stdout else ""
    if not line:
        problem = f"{' '.join(arguments)} did not start"
        raise RuntimeError(problem)
    return line


@contextmanager
def _process(
    command: list[str], environment: os._Environ[str] | dict[str, str]
) -> Generator[subprocess.Popen[str]]:
    # In a group of its own: ^C ends this process first, which then ends them in order.
    process = subprocess.Popen(  # noqa: S603 - fixed commands.
        command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(READY_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout:
            process.stdout.close()


def _post_sample(url: str, origin: str) -> str:
    names = ["one.txt", "two.txt", "large.bin", "flaky.txt", "gone.txt"]
    manifest = {
        "version": 1,
        "storage": {"prefix": "sample"},
        "resources": [{"id": name, "url": f"{origin}/{name}"} for name in names],
    }
    answer = httpx.post(f"{url}/jobs", json=manifest)
    answer.raise_for_status()
    return str(answer.json()["job_id"])


def _ended(url: str, job: str) -> dict[str, object]:
    give_up_at = time.monotonic() + 2 * READY_SECONDS
    while True:
        snapshot: dict[str, object] = httpx.get(f"{url}/jobs/{job}").json()
        is_published = snapshot["resources_failed"] == 0 or snapshot["dead_letter"] is not None
        if (
            snapshot["status"] != "running" and snapshot["resources_open"] == 0 and is_published
        ) or time.monotonic() > give_up_at:
            return snapshot
        threading.Event().wait(PAUSE)
