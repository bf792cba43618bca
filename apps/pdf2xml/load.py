# SPDX-License-Identifier: Apache-2.0
"""How the list of jobs does while many people upload at once: `python -m apps.pdf2xml.load [UPLOADS]`.

It starts all three processes, measures `GET /api/jobs` while nothing else happens, then uploads everything at the same time
and measures again until all is converted. Nothing may be answered with a 5xx, and everything must complete.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import httpx

from apps.pdf2xml.cli import NICENESS
from apps.pdf2xml.demo import ROOT, started
from apps.pdf2xml.sample import sample_pdf
from apps.pdf2xml.settings import Settings
from redrive.engine.clock import SYSTEM_CLOCK

UPLOADS: Final = 500
COOKIE: Final = "pdf2xml"
IDLE_REQUESTS: Final = 300
RATIO_MAX: Final = 20.0
PATIENCE: Final = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What was measured; times in seconds."""

    uploads: int
    idle_p99: float
    busy_p99: float
    busy_requests: int
    upload_seconds: float
    all_seconds: float
    server_errors: int
    completed: int

    @property
    def ratio(self) -> float:
        """How much longer a list takes while others upload."""
        return self.busy_p99 / self.idle_p99

    @property
    def is_good(self) -> bool:
        """Whether it is within its limits."""
        return self.ratio <= RATIO_MAX and self.server_errors == 0 and self.completed == self.uploads

    def __str__(self) -> str:
        """Return the figures as a table."""
        return "\n".join(
            (
                f"uploads                       {self.uploads}, all at once",
                f"p99 of GET /api/jobs, idle    {1000 * self.idle_p99:.1f} ms",
                f"p99 of GET /api/jobs, busy    {1000 * self.busy_p99:.1f} ms ({self.busy_requests} requests)",
                f"ratio                         {self.ratio:.1f} (at most {RATIO_MAX:g})",
                f"all uploads answered after    {self.upload_seconds:.1f} s",
                f"all files converted after     {self.all_seconds:.1f} s",
                f"5xx                           {self.server_errors}",
                f"complete                      {self.completed} of {self.uploads}",
            )
        )


def p99(times: list[float]) -> float:
    """Return the 99th percentile."""
    return sorted(times)[max(0, int(0.99 * len(times)) - 1)]


def _client(url: str) -> httpx.AsyncClient:
    every = httpx.Limits(max_connections=None)
    return httpx.AsyncClient(base_url=url, limits=every, timeout=PATIENCE, trust_env=False)


async def upload_all(url: str, cookie: str, uploads: int) -> int:
    """Upload so many different files at once; return how many were answered with a 5xx."""
    async with _client(url) as client:
        client.cookies.set(COOKIE, cookie)

        async def upload(number: int) -> int:
            data = sample_pdf([[f"file {number}"]])
            files = {"file": (f"{number}.pdf", data, "application/pdf")}
            return (await client.post("/api/upload", data={"mapping": "text"}, files=files)).status_code

        os.write(1, b"ready\n")
        statuses = await asyncio.gather(*(upload(number) for number in range(uploads)))
    return sum(status >= 500 for status in statuses)


async def _watch(url: str, uploads: int) -> Figures:
    """Look at the list again and again, while another process uploads: its own delays are not the service's."""
    errors = 0

    async def look() -> float:
        nonlocal errors
        before = SYSTEM_CLOCK.monotonic()
        errors += (await visitor.get("/api/jobs")).status_code >= 500
        return SYSTEM_CLOCK.monotonic() - before

    async with _client(url) as visitor:
        (await visitor.get("/")).raise_for_status()
        idle = [await look() for _ in range(IDLE_REQUESTS)]
        arguments = ("-m", "apps.pdf2xml.load", str(uploads), url, visitor.cookies[COOKIE])
        uploader = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        if uploader.stdout is not None:
            await uploader.stdout.readline()
        began_at = SYSTEM_CLOCK.monotonic()
        ended = asyncio.create_task(uploader.wait())
        busy: list[float] = []
        answered_at = 0.0
        statuses = ["queued"]
        while not answered_at or {"queued", "processing"} & set(statuses):
            busy.append(await look())
            if ended.done() and not answered_at:
                answered_at = SYSTEM_CLOCK.monotonic()
            # Reading all pages is more work than looking, so it is done now and then.
            if answered_at and len(busy) % 20 == 0:
                statuses = await _statuses(visitor)
        all_seconds = SYSTEM_CLOCK.monotonic() - began_at
    return Figures(
        uploads=uploads,
        idle_p99=p99(idle),
        busy_p99=p99(busy),
        busy_requests=len(busy),
        upload_seconds=answered_at - began_at,
        all_seconds=all_seconds,
        server_errors=errors + await ended,
        completed=statuses.count("complete"),
    )


async def _statuses(visitor: httpx.AsyncClient) -> list[str]:
    """Return the status of every job, page by page."""
    found: list[str] = []
    before = ""
    while page := (await visitor.get(f"/api/jobs{before}")).json()["jobs"]:
        found += [job["status"] for job in page]
        before = f"?before={page[-1]['id']}"
    return found


def measure(folder: Path, uploads: int = UPLOADS) -> Figures:
    """Run the three processes in a folder, and measure."""
    with ExitStack() as stack:
        settings = Settings(folder=folder.absolute())
        converter = stack.enter_context(started("gateway", "--port", "0", settings=settings))
        settings = replace(settings, gateway_url=converter.url)
        page = stack.enter_context(started("api", "--port", "0", settings=settings))
        stack.enter_context(started("worker", settings=settings))
        return asyncio.run(_watch(page.url, uploads))


def main() -> None:
    """Print the figures; end with 1 when they are not within the limits. With an address and a cookie, only upload."""
    if len(sys.argv) == 4:
        # Real users have machines of their own: this process leaves the processors to the service and to the visitor who measures.
        os.nice(NICENESS)
        sys.exit(asyncio.run(upload_all(sys.argv[2], sys.argv[3], int(sys.argv[1]))))
    with tempfile.TemporaryDirectory(prefix="pdf2xml-load-") as folder:
        figures = measure(Path(folder), int(sys.argv[1]) if len(sys.argv) > 1 else UPLOADS)
    os.write(1, f"{figures}\n".encode())
    sys.exit(0 if figures.is_good else 1)


if __name__ == "__main__":
    main()
