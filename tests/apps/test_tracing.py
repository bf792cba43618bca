# SPDX-License-Identifier: Apache-2.0
"""Traces of the five applications as processes: each HTTP call of a stage hangs below the span of its attempt, without its query.

The provider is found by the name in OTEL_PYTHON_TRACER_PROVIDER, as in production.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from apps.collabiq.tests.driving import mail
from apps.collabiq.tests.services import Gemini, Gmail, Notion
from apps.criticizer.tests.scenes import FINDING, KEY, PATCH, answer
from apps.criticizer.tests.servers import Upstream
from apps.fetchbox.tests.servers import Origin, Process
from tests.apps.spans import SpanFile

TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE}-b7ad6b7169203331-01"


@pytest.fixture
def spans(tmp_path: Path) -> SpanFile:
    return SpanFile(tmp_path)


def run(app: str, *arguments: str, environment: dict[str, str]) -> str:
    """Run an application to its end; return what it printed."""
    ended = subprocess.run(
        [sys.executable, "-m", f"apps.{app}", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_fetchbox_has_one_trace_from_the_request_over_its_task_to_the_dead_letter(
    spans: SpanFile, tmp_path: Path
) -> None:
    origin = Origin()
    environment = spans.environment | {
        "FETCHBOX_FOLDER": str(tmp_path / "data"),
        "FETCHBOX_ALLOW_PRIVATE": "true",
    }
    api = Process(
        [sys.executable, "-m", "apps.fetchbox", "serve", "--port", "0"], environment, tmp_path / "log"
    )
    try:
        url = api.line.removeprefix("listening on ")
        resources = [{"id": "a", "url": f"{origin.url}/status/404/traced?token=secret"}]
        asked = {"version": 1, "resources": resources}
        posted = httpx.post(f"{url}/jobs", json=asked, headers={"traceparent": TRACEPARENT})
        run("fetchbox", "worker", "--until-idle", environment=environment)
        own = httpx.post(f"{url}/jobs", json=asked)
        errors = httpx.get(f"{url}/jobs/{posted.json()['job_id']}/errors").json()["errors"]
    finally:
        api.close()
        origin.close()

    # FastAPI makes the spans of requests itself, if it can.
    request, fresh = (span for span in spans if span.kind == "SERVER" and span.name.startswith("POST"))
    (attempt,) = spans.named("fetchbox.download")
    assert (request.trace, request.parent) == (TRACE, "b7ad6b7169203331")
    assert attempt.trace == TRACE
    assert request in spans.above(attempt)
    assert spans.calls() == [("fetchbox.download", "status/404/traced")]
    assert errors[0]["context"]["trace_id"] == TRACE
    assert origin.seen("/status/404/traced")[0]["traceparent"].split("-")[1] == TRACE
    # A request without a trace begins one, which is its id as well.
    assert own.headers["x-request-id"] == fresh.trace != TRACE


def test_pdf_to_xml_s_conversion_hangs_below_the_visit_that_submitted_it(spans: SpanFile) -> None:
    run("pdf2xml", "demo", "--check", environment=spans.environment)

    attempt, *_ = spans.named("pdf2xml.convert")
    assert ("GET", "SERVER") in {(span.name.split()[0], span.kind) for span in spans.above(attempt)}
    assert ("pdf2xml.convert", "convert") in spans.calls()


def test_criticizer_s_calls_hang_below_its_attempts(spans: SpanFile, tmp_path: Path) -> None:
    with Upstream() as upstream:
        upstream.patch = PATCH
        upstream.say(answer(FINDING))
        settings = {
            "CRITICIZER_LLM_KEY": KEY,
            "CRITICIZER_LLM_URL": f"{upstream.url}/v1",
            "CRITICIZER_WEBHOOK_URL": f"{upstream.url}/hook",
            "CRITICIZER_HOSTS": upstream.address,
            "REDRIVE_DATABASE_URL": str(tmp_path / "jobs.db"),
        }
        order = ("submit-url", f"{upstream.url}/change.patch", "--notify", "webhook")
        run("criticizer", *order, environment=spans.environment | settings)

    assert spans.calls() == [
        ("criticizer.fetch", "change.patch"),
        ("criticizer.llm", "v1/chat/completions"),
        ("criticizer.notify", "hook"),
    ]


def test_collabiq_s_calls_hang_below_its_attempts(spans: SpanFile, tmp_path: Path) -> None:
    gmail, gemini, notion = Gmail(), Gemini(), Notion()
    gmail.mails["m1"] = mail()
    services = {"GMAIL": gmail, "GEMINI": gemini, "NOTION": notion}
    settings = {
        **{f"COLLABIQ_{name}_URL": service.url for name, service in services.items()},
        "COLLABIQ_FOLDER": str(tmp_path / "data"),
        "COLLABIQ_SOURCE": "gmail",
        "COLLABIQ_EXTRACTOR": "gemini",
        "COLLABIQ_SINK": "notion",
        "COLLABIQ_NOTION_DATA_SOURCE": "11112222-3333-4444-5555-666677778888",
        **dict.fromkeys(("GMAIL_TOKEN", "GEMINI_API_KEY", "NOTION_TOKEN"), "made-up-token"),
    }
    try:
        run("collabiq", "run", environment=spans.environment | settings)
    finally:
        for service in services.values():
            service.close()

    # Mail is listed before there is a job.
    listing, *rest = sorted(spans.calls(), key=lambda call: call[0] != "nothing")
    assert listing == ("nothing", "gmail/v1/users/me/messages")
    assert {(parent, path.split("/")[1]) for parent, path in rest} == {
        ("collabiq.gemini_extract", "models"),
        ("collabiq.gmail_fetch", "v1"),
        ("collabiq.notion_write", "data_sources"),
        ("collabiq.notion_write", "pages"),
    }


def test_forge_s_calls_hang_below_its_attempts(spans: SpanFile, tmp_path: Path) -> None:
    run("forge", "demo", "--out", str(tmp_path / "run"), "--count", "3", environment=spans.environment)

    assert spans.calls() == [("forge-example.label", "v1/chat/completions")]
