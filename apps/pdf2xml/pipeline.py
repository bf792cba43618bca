# SPDX-License-Identifier: Apache-2.0
"""The pipeline: one stage, which sends a source to the gateway and keeps its answer.

All failure handling is declared: attempts, delays, breaker and codes. The stage only calls, writes and raises. A result that
is there already is the outcome of an attempt whose commit was lost, so the stage returns it and calls nobody.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import httpx
import msgspec

from apps.pdf2xml.codes import codes
from apps.pdf2xml.files import Files
from apps.pdf2xml.settings import Settings
from redrive import (
    Backoff,
    Breaker,
    Context,
    Event,
    Fail,
    Jitter,
    Pipeline,
    ReplayRules,
    RetryPolicy,
    stage,
)

logger = logging.getLogger("pdf2xml")

NAME: Final = "pdf2xml"
BREAKER: Final = "gateway"
PROBE_SECONDS: Final = 5.0
MESSAGE_MAX: Final = 4_096
"""Bytes of an answer that is no XML which are read."""
RESULT_MAX: Final = 200_000_000
"""Bytes of a result, whatever the gateway sends."""


class Upload(msgspec.Struct, frozen=True):
    """The payload: one uploaded file, and what is wanted of it."""

    name: str
    mapping: str
    sha256: str
    bytes: int
    key: str
    """The name of its source."""
    token: str
    """New for every upload: part of the name of its result, so that a result is never taken for another job's."""


class Converted(msgspec.Struct, frozen=True):
    """The result: where the XML is, below the installation's folder."""

    result_path: str
    bytes: int


class Gateway:
    """The client of the gateway. It never retries by itself: that is the policy's."""

    def __init__(self, settings: Settings, http: httpx.AsyncClient) -> None:
        self._url = settings.gateway_url.rstrip("/")
        self._http = http
        self.files = Files(settings.folder)

    async def convert(self, upload: Upload, source: Path, draft: Path, ctx: Context) -> int:
        """Send a source, and write the answer to a draft; return its size.

        Raises:
            httpx.HTTPError: there was no good answer; the gateway's own message is in the notes of the attempt.
            OSError: the source cannot be read, or the draft not be written.
            Fail: the answer is too large.
        """
        headers = {
            "Content-Type": "application/pdf",
            "Content-Length": str(upload.bytes),
            "Idempotency-Key": ctx.idempotency_key,
            # A packed answer could be many times as large as it looks.
            "Accept-Encoding": "identity",
        }
        request = self._http.build_request(
            "POST",
            f"{self._url}/convert",
            params={"mapping": upload.mapping},
            headers=headers,
            content=_chunks(source),
        )
        answer = await self._http.send(request, stream=True)
        try:
            if answer.is_error:
                ctx.note("gateway_message", await _message_of(answer))
            answer.raise_for_status()
            return await _write(answer, draft)
        finally:
            await answer.aclose()


async def _chunks(source: Path) -> AsyncGenerator[bytes]:
    with source.open("rb") as file:
        while chunk := file.read(1 << 18):
            yield chunk


async def _message_of(answer: httpx.Response) -> str:
    """Return what a problem document of the gateway has to say."""
    body = b""
    async for chunk in answer.aiter_bytes():
        body += chunk
        if len(body) > MESSAGE_MAX:
            break
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        document = msgspec.json.decode(body[:MESSAGE_MAX], type=dict[str, object])
        text = document.get("detail") or document.get("title")
        return text if isinstance(text, str) else ""
    return ""


async def _write(answer: httpx.Response, draft: Path) -> int:
    size = 0
    with draft.open("xb") as file:
        async for chunk in answer.aiter_bytes():
            size += len(chunk)
            if size > RESULT_MAX:
                raise Fail(code="GW_4XX", message="the gateway's answer is too large")
            file.write(chunk)
        file.flush()
        await asyncio.to_thread(os.fsync, file.fileno())
    return size


async def _convert(upload: Upload, gateway: Gateway, ctx: Context) -> Converted:
    files = gateway.files
    result = files.result(ctx.job_id, upload.token)
    # Relative, because the folder may be moved, and because nobody else should learn where it is.
    where = f"results/{result.name}"
    if result.exists():
        ctx.note("skipped", "the result was there")
        return Converted(where, result.stat().st_size)
    source = files.source(upload.key)
    if not files.touch(source):
        raise Fail(code="EXPIRED", message="the source is gone")
    draft = files.new_draft()
    try:
        size = await gateway.convert(upload, source, draft, ctx)
        ctx.heartbeat()
        await asyncio.to_thread(files.keep, draft, result)
    finally:
        draft.unlink(missing_ok=True)
    return Converted(where, size)


def _log(event: Event) -> None:
    """Log the technical reason of a failed attempt, which users never see; it is redacted."""
    level = logging.ERROR if event.kind == "dead" else logging.WARNING
    logger.log(
        level,
        "job %s: %s, attempt %s: %s (%s): %s",
        event.job_id,
        event.kind,
        event.attempt,
        event.code,
        event.http_status or "no status",
        event.message,
    )


def policy(settings: Settings) -> RetryPolicy:
    """Return the retry policy: 5, 15 and 45 seconds, each +-20 %."""
    backoff = Backoff.schedule(list(settings.retry_delays), jitter=Jitter.ratio(0.2))
    return RetryPolicy(settings.retry_max_attempts, backoff)


def breaker(settings: Settings) -> Breaker:
    """Return the breaker: half of the calls in two minutes failed, at least three; closed again by the health probe."""
    return Breaker(
        BREAKER,
        failure_rate=settings.breaker_rate,
        window=settings.breaker_window,
        min_calls=settings.breaker_min_calls,
        open_for=settings.breaker_open_for,
        ramp=settings.breaker_ramp,
        mode=settings.breaker_mode,
        counts={"GW_5XX", "GW_TIMEOUT"},
        probe=health_probe(settings),
    )


def health_probe(settings: Settings) -> Callable[[], Awaitable[None]]:
    """Return what asks the gateway for its health; a worker calls it while the breaker is open, so that no job has to be risked."""
    url = f"{settings.gateway_url.rstrip('/')}/health"

    async def probe() -> None:
        async with httpx.AsyncClient(timeout=PROBE_SECONDS, trust_env=False) as http:
            (await http.get(url)).raise_for_status()

    return probe


def build(settings: Settings) -> Pipeline:
    """Return the pipeline for these settings; API and worker of one installation build the same."""

    @asynccontextmanager
    async def open_gateway() -> AsyncGenerator[Gateway]:
        Files(settings.folder).prepare()
        limits = httpx.Limits(max_connections=settings.concurrency)
        # The stage's own timeout ends a call; this one is for a gateway that does not even accept it.
        timeout = httpx.Timeout(settings.gateway_timeout, connect=min(10.0, settings.gateway_timeout))
        async with httpx.AsyncClient(limits=limits, timeout=timeout, trust_env=False) as http:
            yield Gateway(settings, http)

    convert = stage(
        name="convert",
        retry=policy(settings),
        timeout=settings.gateway_timeout,
        breaker=breaker(settings),
        concurrency=settings.concurrency,
        idempotent=True,
    )(_convert)
    return Pipeline(
        NAME,
        [convert],
        resources=[open_gateway],
        codes=codes(settings.breaker_mode),
        replay=ReplayRules(owner_retry=True),
        on_retry=_log,
        on_hold=_log,
        on_dead=_log,
    )
