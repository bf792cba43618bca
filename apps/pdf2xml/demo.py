# SPDX-License-Identifier: Apache-2.0
"""All three processes from one command, and the way of the sample through them.

Each is a process of its own, as in production; this one starts and ends them, and ends if one of them dies.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import httpx

from apps.pdf2xml.settings import Settings
from redrive.engine.clock import SYSTEM_CLOCK

ROOT: Final = Path(__file__).parents[2]
END_SECONDS: Final = 15.0
CHECK_SECONDS: Final = 60.0


class Process:
    """One of the three, with the address that it announced."""

    def __init__(self, arguments: Sequence[str], environment: dict[str, str], log: Path) -> None:
        self.log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(  # noqa: S603 - our own commands.
                [sys.executable, "-u", "-m", "apps.pdf2xml", *arguments],
                cwd=ROOT,
                env={**os.environ, **environment},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                # ^C reaches this process alone, which then ends the others in order.
                start_new_session=True,
            )
        self.pid = self._process.pid
        line = self._process.stdout.readline() if self._process.stdout else ""
        self.url = line.partition(": ")[2].strip()
        if not self.url:
            problem = f"error: {arguments[0]} did not start:\n{log.read_text(encoding='utf-8')}"
            raise SystemExit(problem)

    def is_running(self) -> bool:
        """Return whether it has not ended."""
        return self._process.poll() is None

    def end(self, number: int = signal.SIGTERM) -> int:
        """End it, and return its status."""
        if self.is_running():
            self._process.send_signal(number)
        try:
            return self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
        finally:
            if self._process.stdout:
                self._process.stdout.close()


@contextmanager
def started(*arguments: str, settings: Settings) -> Generator[Process]:
    """Start a process, and end it afterwards."""
    process = Process(arguments, settings.environment(), settings.folder / f"{arguments[0]}.log")
    try:
        yield process
    finally:
        process.end()


def run_demo(folder: Path | None, *, port: int, is_check: bool, say: Callable[[str], None]) -> int:
    """Start everything, and wait for ^C; or see the sample through, and end."""
    try:
        with ExitStack() as stack:
            return _run(stack, folder, port=port, is_check=is_check, say=say)
    except KeyboardInterrupt:
        say("ended")
        return 0


def _run(
    stack: ExitStack, folder: Path | None, *, port: int, is_check: bool, say: Callable[[str], None]
) -> int:
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    stack.callback(signal.signal, signal.SIGTERM, before)
    place = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pdf2xml-")))
    place.mkdir(parents=True, exist_ok=True)
    settings = Settings(folder=place.absolute())
    converter = stack.enter_context(started("gateway", "--port", "0", settings=settings))
    settings = replace(settings, gateway_url=converter.url)
    options = ("api", "--sample", "--port", "0" if is_check else str(port))
    page = stack.enter_context(started(*options, settings=settings))
    workers = stack.enter_context(started("worker", settings=settings))
    say(f"PDF to XML is at {page.url} (files in {place})")
    if is_check:
        return _check(page.url, say)
    say("^C ends it")
    while all(each.is_running() for each in (converter, page, workers)):
        SYSTEM_CLOCK.sleep(0.5)
    say("one of the processes ended by itself")
    return 1


def _check(url: str, say: Callable[[str], None]) -> int:
    """Visit the page, and download the sample once it is complete."""
    until = SYSTEM_CLOCK.monotonic() + CHECK_SECONDS
    with httpx.Client(base_url=url, trust_env=False) as visitor:
        visitor.get("/").raise_for_status()
        while SYSTEM_CLOCK.monotonic() < until:
            jobs = visitor.get("/api/jobs").json()["jobs"]
            if jobs and all(job["status"] == "complete" for job in jobs):
                for job in jobs:
                    say(visitor.get(f"/api/jobs/{job['id']}/download").text)
                return 0
            SYSTEM_CLOCK.sleep(0.1)
    say("the sample was not converted in time")
    return 1
