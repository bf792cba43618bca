# SPDX-License-Identifier: Apache-2.0
"""What operators see: metrics, the runbook, and how the service does under load."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import httpx
import pytest

from apps.pdf2xml.demo import Process
from apps.pdf2xml.load import measure
from apps.pdf2xml.tests.pdfs import pdf
from apps.pdf2xml.tests.site import Site, Visitor, until

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
NAMES = (
    "jobs_failed_total",
    "job_processing_duration_seconds",
    "queue_depth",
    "jobs_active",
    "manual_retry_total",
)


def value(text: str, name: str, labels: str = "") -> float:
    found = [
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith(name) and labels in line
    ]
    return sum(found)


def scraped(port: int) -> str:
    """Return the metrics on a port; nothing while nobody listens there."""
    try:
        return httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text
    except httpx.ConnectError:
        return ""


@pytest.mark.req("PX-10.2")
def test_the_api_and_the_worker_serve_the_metrics(site: Site, visitor: Visitor) -> None:
    before = visitor.http.get("/metrics").text
    visitor.upload(b"no pdf")
    site.fault("status", status=400)
    job = visitor.submit(pdf())
    visitor.wait(job, "failed")
    site.fault("slow")
    asked = visitor.retry(job)
    assert asked.status_code == 202, asked.text
    visitor.wait(job, "processing")

    after = visitor.http.get("/metrics").text
    for code in ("NOT_PDF", "GW_4XX"):
        label = f'error_code="{code}"'
        assert value(after, "jobs_failed_total", label) - value(before, "jobs_failed_total", label) == 1
    assert value(after, "jobs_active") == 1
    assert value(after, "queue_depth") == 0
    assert value(after, "manual_retry_total") - value(before, "manual_retry_total") == 1
    site.fault("ok")
    visitor.wait(job, "complete")
    last = visitor.http.get("/metrics").text
    count = "job_processing_duration_seconds_count"
    assert value(last, count) > value(before, count)

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    log = site.settings.folder / "second.log"
    second = Process(("worker", "--health-port", str(port)), site.settings.environment(), log)
    try:
        text = str(until(lambda: scraped(port), "the worker answers"))
    finally:
        assert second.end() == 0
    assert [name for name in NAMES if name not in text] == []


@pytest.mark.req("PX-10.3")
def test_the_runbook_answers_what_operators_ask() -> None:
    runbook = README.partition("## Runbook")[2]

    headings = re.findall(r"^### (.+)$", runbook, re.MULTILINE)
    assert headings == [
        "Many GW_5XX or GW_TIMEOUT",
        "Mostly GW_4XX",
        "IO_ERROR spikes",
        "Leases stuck: processing for too long",
    ]
    assert [name for name in NAMES if name not in runbook] == []


def test_many_uploads_at_once_keep_the_list_of_jobs_quick_and_all_complete(tmp_path: Path) -> None:
    figures = measure(tmp_path, 60)

    assert (figures.server_errors, figures.completed) == (0, 60), figures
    assert figures.ratio < 100, figures
