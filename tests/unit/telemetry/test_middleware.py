# SPDX-License-Identifier: Apache-2.0
"""The ASGI middleware: metrics under one path, a span per request, and jobs that belong to the request that submitted them."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from redrive import Pipeline, connect, stage, telemetry
from redrive.engine.observers import installed
from redrive.errors import MissingExtraError
from redrive.telemetry import TelemetryMiddleware
from redrive.telemetry.middleware import Application
from tests.unit.telemetry.spans import Spans, is_below, spans_in_memory

REMOTE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@stage
async def double(number: int) -> int:
    return number * 2


SHOP = Pipeline("shop", [double])


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Generator[Spans]:
    with spans_in_memory(monkeypatch) as made:
        yield made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


def service(path: Path) -> FastAPI:
    app = FastAPI()

    @app.post("/orders/{number}")
    async def order(number: int) -> int:
        async with connect(path) as rd:
            return (await rd.submit(SHOP, number)).id

    @app.get("/broken")
    async def broken() -> None:
        raise OSError("a secret of ours")

    return app


def ask(app: Application, *requests: tuple[str, str], **headers: str) -> list[httpx.Response]:
    """Send requests to an application that starts and ends around them."""

    async def send() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop", headers=headers) as client:
            answers = [await client.request(*request) for request in requests]
        await _end(app)
        return answers

    return asyncio.run(send())


async def _end(app: Application) -> None:
    messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def receive() -> dict[str, object]:
        return dict(next(messages))

    async def send(_message: object) -> None:
        pass

    await app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, receive, send)


def test_the_metrics_are_under_their_path_and_everything_else_is_the_applications(path: Path) -> None:
    app = TelemetryMiddleware(service(path), path, traces=False)

    ordered, scraped, head, posted, lost = ask(
        app,
        ("POST", "/orders/4"),
        ("GET", "/metrics"),
        ("HEAD", "/metrics"),
        ("POST", "/metrics"),
        ("GET", "/x"),
    )

    assert ordered.json() == 1
    assert 'queue_depth{pipeline="shop",stage="double"} 1.0' in scraped.text
    assert scraped.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert (head.status_code, head.content) == (200, b"")
    assert (posted.status_code, lost.status_code) == (405, 404)
    assert not installed(), "it is closed with the application"


def test_a_job_belongs_to_the_trace_of_the_request_that_submitted_it(spans: Spans, path: Path) -> None:
    app = service(path)
    app.add_middleware(TelemetryMiddleware, database=path)

    (ordered,) = ask(app, ("POST", "/orders/4"), traceparent=REMOTE)
    with connect(path) as rd:
        rd.work([SHOP], until_idle=True)

    assert ordered.status_code == 200
    request, attempt = spans.one("POST"), spans.one("shop.double")
    assert is_below(attempt, request)
    assert request.parent is not None
    assert f"00-{request.parent.trace_id:032x}-{request.parent.span_id:016x}-01" == REMOTE
    assert dict(request.attributes or {}) == {
        "http.request.method": "POST",
        "url.path": "/orders/4",
        "http.response.status_code": 200,
    }


def test_a_request_that_fails_is_an_error_without_its_message(spans: Spans, path: Path) -> None:
    (broken,) = ask(TelemetryMiddleware(service(path), metrics=None), ("GET", "/broken"))

    assert broken.status_code == 500
    assert spans.one("GET").status.is_ok is False
    assert "a secret of ours" not in spans.one("GET").to_json()


def test_a_span_that_another_instrumentation_made_is_used(spans: Spans, path: Path) -> None:
    inner = TelemetryMiddleware(service(path), metrics=None)

    async def outer(scope: object, receive: object, send: object) -> None:
        with spans.caller():
            await inner(scope, receive, send)  # type: ignore[arg-type]

    (ordered,) = ask(outer, ("POST", "/orders/4"))

    assert ordered.status_code == 200
    assert spans.named("POST") == []


def test_what_is_no_request_is_passed_on(spans: Spans) -> None:
    seen: list[str] = []

    async def app(scope: dict[str, str], receive: object, send: object) -> None:
        seen.append(scope["type"])

    async def connect_to() -> None:
        await TelemetryMiddleware(app, metrics=None)({"type": "websocket"}, None, None)  # type: ignore[arg-type]

    asyncio.run(connect_to())

    assert seen == ["websocket"]
    assert spans.all() == []


def test_without_an_extra_it_is_refused_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "find_spec", lambda _library: None)

    with pytest.raises(MissingExtraError, match="Metrics needs prometheus_client"):
        TelemetryMiddleware(service(path), path)
    with pytest.raises(MissingExtraError, match="trace needs opentelemetry"):
        TelemetryMiddleware(service(path), metrics=None)
