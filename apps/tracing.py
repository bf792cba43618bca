# SPDX-License-Identifier: Apache-2.0
"""Traces of an application's processes: requests, attempts, and HTTP calls below them, if somebody has configured where spans go.

Every command line calls it when it starts. What is asked for may be secret, so that spans have URLs without credentials and query.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from redrive import telemetry

if TYPE_CHECKING:
    from opentelemetry.instrumentation.httpx import RequestInfo
    from opentelemetry.trace import Span

_CLIENTS: Final = {"httpx": "HTTPXClientInstrumentor", "httpx2": "HTTPX2ClientInstrumentor"}
"""The libraries that make the calls, some of them below an SDK, and what observes each."""


def trace_if_configured() -> bool:
    """Switch traces on if the libraries are installed and a provider is configured; return whether it is so."""
    if find_spec("opentelemetry") is None:
        return False
    from opentelemetry import trace as spans

    if isinstance(spans.get_tracer_provider(), spans.ProxyTracerProvider):
        return False
    telemetry.trace()
    if find_spec("opentelemetry.instrumentation") and find_spec("opentelemetry.instrumentation.httpx"):
        from opentelemetry.instrumentation import httpx as clients

        for library, name in _CLIENTS.items():
            instrumentor = getattr(clients, name, None)
            if instrumentor is not None and find_spec(library) is not None:
                instrumentor().instrument(request_hook=_hide, async_request_hook=_hide_later)
    return True


def public_url(url: str) -> str:
    """Return a URL without user, password, query and fragment."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return ""
    host = f"[{parts.hostname}]" if parts.hostname and ":" in parts.hostname else parts.hostname or ""
    return f"{parts.scheme}://{host}{port}{parts.path}"


def _hide(span: Span, request: RequestInfo) -> None:
    url = public_url(str(request.url))
    for name in ("http.url", "url.full"):
        span.set_attribute(name, url)


async def _hide_later(span: Span, request: RequestInfo) -> None:
    _hide(span, request)
