# SPDX-License-Identifier: Apache-2.0
"""The pipeline: download a resource into the spool, upload it as an object.

All failure handling is declared: how often each stage is tried, with which delays, and what each failure is called. The stages
call and raise. A task whose object is there already, with the same SHA-256, is done.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Final, cast
from urllib.parse import urlsplit

from msgspec import Struct

from apps.fetchbox.codes import CODES
from apps.fetchbox.dead_letters.sink import letter_sink
from apps.fetchbox.handlers import Handler, HandlerRefusedError, load_handlers
from apps.fetchbox.manifest import Task, bad_header, url_problem
from apps.fetchbox.metrics import DOWNLOADS
from apps.fetchbox.settings import Config, JobType, Settings
from apps.fetchbox.transfer.download import Body, Downloader, Part, sweep
from apps.fetchbox.transfer.proxies import ProxiesExhaustedError, is_of_proxy, proxies_of
from apps.fetchbox.transfer.storage import Buckets
from redrive import (
    Backoff,
    Breaker,
    Context,
    Fail,
    Finish,
    Jitter,
    Limit,
    Pipeline,
    ReplayRules,
    RetryPolicy,
    stage,
)
from redrive.engine.limits.keys import JobView
from redrive.engine.pipeline.stage import Stage

NAME: Final = "fetchbox"
BACKOFF_MAX: Final = 60.0
ATTEMPT_SECONDS: Final = 20
"""Time limit of an attempt, as a multiple of the limit of a single read."""

SPOOL_SECONDS: Final = 86_400.0
SWEEP_SECONDS: Final = 3_600.0


class Fetched(Struct, frozen=True):
    """The output of the download: the task, and what is in its file in the spool."""

    task: Task
    body: Body


class Stored(Struct, frozen=True):
    """The result of a task."""

    key: str
    size: int
    sha256: str
    is_skipped: bool = False
    """True if the object was there already."""


@dataclass(frozen=True, slots=True)
class Clients:
    """What the stages of one worker share."""

    settings: Settings
    config: Config
    handlers: Mapping[str, Handler]
    downloader: Downloader
    buckets: Buckets

    @property
    def spool(self) -> Path:
        """The folder of files on their way."""
        return self.settings.root / "spool"

    def part(self, ctx: Context) -> Part:
        """Return the file of a task."""
        return Part(self.spool, f"{ctx.job_id}.part")

    def type_of(self, task: Task) -> JobType:
        """Return the type of a task; a task of an unknown one should never have been stored."""
        if task.type not in self.config.types:
            raise Fail(code="AUTH_UNKNOWN_TYPE", message=f"the worker has no job type {task.type!r}")
        return self.config.types[task.type]


async def download(task: Task, clients: Clients, ctx: Context) -> Fetched:
    """Download a resource into the spool."""
    kind = clients.type_of(task)
    bucket = clients.buckets.of(kind.bucket)
    if task.sha256 is not None and await bucket.has(task.key, task.sha256):
        raise Finish(Stored(task.key, 0, task.sha256, is_skipped=True))
    part = clients.part(ctx)
    with part.held() as file:
        return Fetched(task, await _fetched(task, part, file, clients, ctx))


async def upload(fetched: Fetched, clients: Clients, ctx: Context) -> Stored:
    """Upload the file as an object, unless it is there; a file that is gone, or not whole, is downloaded again."""
    task, kind = fetched.task, clients.type_of(fetched.task)
    bucket = clients.buckets.of(kind.bucket)
    part, body = clients.part(ctx), fetched.body
    with part.held() as file:
        is_there = await bucket.has(task.key, body.sha256)
        if not is_there:
            if os.fstat(file.fileno()).st_size != body.size:
                body = await _fetched(task, part, file, clients, ctx)
            await bucket.put_file(task.key, part.path, sha256=body.sha256, content_type=body.content_type)
        part.remove()
    return Stored(task.key, body.size, body.sha256, is_skipped=is_there)


async def _fetched(task: Task, part: Part, file: FileIO, clients: Clients, ctx: Context) -> Body:
    """Download a resource into the part, whose file is held."""
    kind = clients.type_of(task)
    if (wrong := url_problem(task.url, clients.settings.limits.url_max)) is not None:
        raise Fail(code="VALIDATION_INVALID_URL", message=f"the URL {wrong}")
    proxies = proxies_of(clients.config.pools, kind.pool, ctx.job_id)
    proxy = proxies[(ctx.attempt - 1) % len(proxies)] if proxies else None
    ctx.note("proxy", "direct" if proxy is None else proxy.name)
    headers = _headers(task, kind, clients)
    pool = "direct" if proxy is None else proxy.pool
    try:
        body = await clients.downloader.fetch(task.url, headers, part, file, proxy)
    except Exception as error:
        DOWNLOADS.labels(pool=pool, outcome="failed").inc()
        if proxies and ctx.attempt >= len(proxies) and is_of_proxy(error):
            raise ProxiesExhaustedError(kind.pool, len(proxies), error) from error
        raise
    DOWNLOADS.labels(pool=pool, outcome="ok").inc()
    ctx.note("status", body.status)
    if task.sha256 is not None and body.sha256 != task.sha256:
        part.remove()
        raise Fail(code="DOWNLOAD_CHECKSUM", message=f"its SHA-256 is {body.sha256}")
    return body


def _headers(task: Task, kind: JobType, clients: Clients) -> dict[str, str]:
    """Return the headers of a request: of the type, of the task, and what the handler adds now."""
    try:
        added = dict(clients.handlers[kind.handler].headers(task))
    except HandlerRefusedError as error:
        raise Fail(code="HANDLER_REFUSED", message=str(error)) from error
    except Exception as error:
        raise Fail(code="HANDLER_ERROR", message=f"{type(error).__name__}: {error}") from error
    headers = {**kind.headers, **task.headers, **added}
    if (bad := bad_header(headers)) is not None:
        raise Fail(code="VALIDATION_INVALID_FIELD", message=f"{bad!r} is not allowed as a header")
    return {name.lower(): value for name, value in headers.items()}


def origin_of(job: JobView) -> str:
    """Return the origin of a task: the key of its limit."""
    parts = urlsplit(cast("Task", job.input).url)
    return f"{parts.scheme}://{(parts.hostname or '').lower()}:{parts.port or ''}"


def direct_origin(config: Config) -> Callable[[JobView], str | None]:
    """Return the key of the breaker: the origin of a direct download. Through a pool, a failure may be the proxy's."""

    def key(job: JobView) -> str | None:
        kind = config.types.get(cast("Task", job.input).type)
        return origin_of(job) if kind is not None and not kind.pool else None

    return key


def pipeline_of(settings: Settings, config: Config | None = None) -> Pipeline:
    """Return the pipeline of these settings."""
    backoff = Backoff.exponential(settings.backoff_seconds, factor=2, cap=BACKOFF_MAX, jitter=Jitter.full())
    limit = ATTEMPT_SECONDS * settings.timeout_seconds
    known = config or settings.load_config()
    stages: list[Stage[..., object]] = [
        stage(
            name="download",
            retry=RetryPolicy(settings.download_retry_limit, backoff),
            breaker=Breaker(
                "origin",
                failure_rate=0.5,
                window=60,
                min_calls=settings.breaker_min_calls,
                open_for=30,
                key=direct_origin(known),
            ),
            limits=[
                Limit("fetchbox-origin", concurrency=settings.origin_concurrency, key=origin_of),
                Limit("fetchbox-tenant", concurrency=settings.tenant_concurrency, key=lambda job: job.owner),
            ],
            timeout=limit,
            idempotent=True,
        )(download),
        stage(
            name="upload",
            retry=RetryPolicy(settings.storage_retry_limit, backoff),
            timeout=limit,
            idempotent=True,
        )(upload),
    ]
    return Pipeline(
        NAME,
        stages,
        resources=[open_clients(settings, known)],
        sinks=[letter_sink(settings)],
        codes=CODES,
        replay=ReplayRules(evidence="optional"),
    )


def open_clients(settings: Settings, config: Config) -> Callable[[], AbstractAsyncContextManager[Clients]]:
    """Return what opens the clients of a worker."""

    @asynccontextmanager
    async def opened() -> AsyncGenerator[Clients]:
        # They log whole URLs, which may hold a key.
        for name in ("httpx", "httpcore"):
            logging.getLogger(name).setLevel(logging.WARNING)
        buckets = Buckets(settings)
        async with Downloader(settings) as downloader:
            clients = Clients(settings, config, load_handlers(config), downloader, buckets)
            clients.spool.mkdir(parents=True, exist_ok=True)
            closing = asyncio.Event()
            sweeping = asyncio.create_task(_sweep_hourly(clients.spool, closing))
            try:
                yield clients
            finally:
                closing.set()
                await asyncio.wait([sweeping])

    return opened


async def _sweep_hourly(spool: Path, closing: asyncio.Event) -> None:
    """Delete what tasks left in the spool a day ago: those that failed for good, were cancelled, or lost their worker."""
    while not closing.is_set():
        await asyncio.to_thread(sweep, spool, time.time() - SPOOL_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(SWEEP_SECONDS):
                await closing.wait()
