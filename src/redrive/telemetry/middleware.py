# SPDX-License-Identifier: Apache-2.0
"""Telemetry for a web service, as one ASGI middleware: serves the metrics, and makes a span of every request.

It works in every ASGI framework, whether the service embeds a worker or only submits. A job that is submitted inside a request
belongs to the trace of that request. It looks at no body, and answers no path but the one of the metrics.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import TYPE_CHECKING, Any, cast

from redrive import telemetry

if TYPE_CHECKING:
    from redrive.client.async_connection import AsyncRedrive
    from redrive.client.connection import Redrive

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]


class TelemetryMiddleware:
    """Wraps an ASGI application: `app.add_middleware(TelemetryMiddleware, database="jobs.db")`, or around it by hand.

    `metrics` is the path of the metrics of that database, and of a worker in this process; None for no metrics. `traces` makes a
    span of each request unless another instrumentation has made one, and switches on those of attempts.

    Raises:
        MissingExtraError: a library for one of them is not installed.
    """

    def __init__(
        self,
        app: Application,
        database: Redrive | AsyncRedrive | str | os.PathLike[str] | None = None,
        *,
        metrics: str | None = "/metrics",
        traces: bool = True,
    ) -> None:
        self._app = app
        self._path = metrics
        self._metrics = None if metrics is None else telemetry.Metrics(database)
        self._is_traced = traces
        if traces:
            telemetry.trace()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one request, or one lifespan."""
        if scope["type"] == "lifespan":
            try:
                await self._app(scope, receive, send)
            finally:
                if self._metrics is not None:
                    self._metrics.close()
        elif scope["type"] != "http":
            await self._app(scope, receive, send)
        elif self._metrics is not None and scope["path"] == self._path:
            await self._answer(scope["method"], send, self._metrics.text)
        elif self._is_traced:
            await self._traced(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _answer(self, method: str, send: Send, text: Callable[[], bytes]) -> None:
        from redrive.telemetry.metrics import CONTENT_TYPE

        is_allowed = method in {"GET", "HEAD"}
        # Off the loop: it reads the store.
        body = await asyncio.to_thread(text) if is_allowed else b"method not allowed\n"
        headers = [(b"content-type", CONTENT_TYPE.encode()), (b"content-length", str(len(body)).encode())]
        status = 200 if is_allowed else 405
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if method == "HEAD" else body})

    async def _traced(self, scope: Message, receive: Receive, send: Send) -> None:
        from opentelemetry import trace as spans
        from opentelemetry.trace import SpanKind, Status, StatusCode

        from redrive.telemetry.tracing import span_context, tracer

        if spans.get_current_span().get_span_context().is_valid:
            await self._app(scope, receive, send)
            return
        asked = {"http.request.method": str(scope["method"]), "url.path": str(scope["path"])}
        parent = span_context(_header(scope, b"traceparent"))
        # What an exception says may be secret: that there was one is enough.
        with tracer().start_as_current_span(
            asked["http.request.method"],
            parent,
            SpanKind.SERVER,
            asked,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:

            async def sent(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                    if message["status"] >= 500:
                        span.set_status(Status(StatusCode.ERROR))
                await send(message)

            try:
                await self._app(scope, receive, sent)
            except BaseException:
                span.set_status(Status(StatusCode.ERROR))
                raise


def _header(scope: Message, name: bytes) -> str | None:
    headers = cast("Iterable[tuple[bytes, bytes]]", scope.get("headers", ()))
    return next((value.decode("latin-1") for key, value in headers if key == name), None)
