# SPDX-License-Identifier: Apache-2.0
"""The HTTP API of the gateway: `POST /convert?mapping=text` takes a PDF and answers with XML; `GET /health` for probes.

A file that cannot be converted is answered with a 4xx and a message that is fit for users; anything else that fails is a 5xx.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse
from starlette.background import BackgroundTask

from apps.pdf2xml.gateway.child import Order
from apps.pdf2xml.gateway.converter import Converter
from apps.pdf2xml.gateway.faults import Faults, switch
from apps.pdf2xml.gateway.mappings import MAPPINGS
from redrive.web import JsonResponse, Problem, ProblemError, install_problems, save_stream, stream_limited


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayLimits:
    """What one conversion may take."""

    max_bytes: int = 60_000_000
    seconds: float = 60.0
    memory: int = 1_500_000_000
    """Bytes of address space."""
    processes: int = max(1, os.cpu_count() or 1)


def gateway(limits: GatewayLimits | None = None, *, has_switch: bool = False) -> FastAPI:
    """Return the application."""
    known = limits or GatewayLimits()
    faults = Faults()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        converter = Converter(processes=known.processes, seconds=known.seconds, memory=known.memory)
        with tempfile.TemporaryDirectory(prefix="pdf2xml-gateway-") as folder:
            app.state.converter = converter
            app.state.folder = Path(folder)
            yield
            converter.close()

    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    install_problems(app, unexpected=Problem.of_status(500))

    @app.get("/health")
    async def health() -> Response:
        if not faults.is_well:
            raise ProblemError(Problem.of_status(503))
        return JsonResponse({"status": "ok", "mappings": sorted(MAPPINGS)})

    @app.post("/convert")
    async def convert(request: Request, mapping: str = "text") -> Response:
        if has_switch:
            await faults.meet(request.headers.get("idempotency-key", ""))
        return await _converted(request, mapping, known)

    if has_switch:
        app.include_router(switch(faults))
    return app


async def _converted(request: Request, mapping: str, limits: GatewayLimits) -> Response:
    folder: Path = request.app.state.folder
    converter: Converter = request.app.state.converter
    name = secrets.token_hex(16)
    source, target = folder / f"{name}.pdf", folder / f"{name}.xml"
    try:
        await save_stream(stream_limited(request, limits.max_bytes), source)
        answer = await converter.convert(Order(str(source), str(target), mapping))
    finally:
        await asyncio.to_thread(source.unlink, missing_ok=True)
    if answer.status != 200:
        await asyncio.to_thread(target.unlink, missing_ok=True)
        raise ProblemError(Problem.of_status(answer.status, detail=answer.message))
    done = BackgroundTask(target.unlink)
    return FileResponse(
        target, media_type="application/xml", headers={"X-Pages": str(answer.pages)}, background=done
    )
