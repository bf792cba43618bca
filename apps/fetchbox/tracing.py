# SPDX-License-Identifier: Apache-2.0
"""Traces of a worker: its attempts, and their HTTP calls below them, if somebody has configured where spans go.

The API has the middleware for it. What is asked for may be secret, so that spans have URLs without credentials and query.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from apps.fetchbox.dead_letters.messages import public_url
from redrive import telemetry

if TYPE_CHECKING:
    from opentelemetry.instrumentation.httpx import RequestInfo
    from opentelemetry.trace import Span


def trace_if_configured() -> bool:
    """Switch traces on if the libraries are installed and a provider is configured; return whether it is so."""
    if find_spec("opentelemetry") is None:
        return False
    from opentelemetry import trace as spans

    if isinstance(spans.get_tracer_provider(), spans.ProxyTracerProvider):
        return False
    telemetry.trace()
    if find_spec("opentelemetry.instrumentation") and find_spec("opentelemetry.instrumentation.httpx"):
        from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor

        HTTPXClientInstrumentor().instrument(async_request_hook=_hide)
    return True


async def _hide(span: Span, request: RequestInfo) -> None:
    url = public_url(str(request.url))
    for name in ("http.url", "url.full"):
        span.set_attribute(name, url)
