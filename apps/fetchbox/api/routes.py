# SPDX-License-Identifier: Apache-2.0
"""The routes. Every error is a problem document (RFC 9457) with a code of FetchBox.

A manifest is answered with 202 only when the manifest, the job and its tasks are durable. What is retryable is tried three
times inside the service, then the answer is 503.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec
from fastapi import FastAPI, Query, Request, Response

from apps.fetchbox.api.health import Health
from apps.fetchbox.api.jobs import TENANT, Accepted, Jobs, Order, patient, plan_tasks
from apps.fetchbox.handlers import Handler, load_handlers
from apps.fetchbox.manifest import parse, problem
from apps.fetchbox.pipeline import pipeline_of
from apps.fetchbox.settings import Config, Settings, tokens_of
from apps.fetchbox.transfer.storage import Buckets
from redrive import Redrive, connect, redact
from redrive.errors import (
    BodyEncodingError,
    BodyInvalidError,
    BodyTimeoutError,
    BodyTooLargeError,
    StoreError,
)
from redrive.telemetry import TelemetryMiddleware
from redrive.web import (
    JsonResponse,
    Problem,
    ServerEvent,
    event_response,
    install_problems,
    read_limited,
    request_id,
)

logger = logging.getLogger("fetchbox")

KEY_MAX: Final = 255
TENANT_MAX: Final = 64
FOLLOW_SECONDS: Final = 0.25
OFFSET_MAX: Final = 2**63 - 1
OFFSET_DIGITS: Final = 18
RETRY_AFTER: Final = {"Retry-After": "5"}


@dataclass(frozen=True, slots=True)
class Service:
    """What the routes share."""

    settings: Settings
    config: Config
    tokens: dict[str, str]
    handlers: dict[str, Handler]
    buckets: Buckets
    jobs: Jobs
    health: Health

    def tenant_of(self, request: Request) -> str:
        """Return the tenant of a request: by its token if tenants are configured, else by the header X-Tenant."""
        if not self.tokens:
            given = request.headers.get("x-tenant", TENANT)
            is_name = given.isprintable() and 0 < len(given) <= TENANT_MAX and "/" not in given
            if not is_name or given in {".", ".."}:
                raise problem(401, "AUTH_INVALID_CREDENTIALS", "X-Tenant is not the name of a tenant")
            return given
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise problem(401, "AUTH_MISSING_CREDENTIALS", "send Authorization: Bearer and the token")
        for known, name in self.tokens.items():
            if hmac.compare_digest(known.encode(), token.strip().encode()):
                return name
        raise problem(401, "AUTH_INVALID_CREDENTIALS", "this token belongs to no tenant")


def make_app(settings: Settings) -> FastAPI:
    """Return the application; everything wrong with the settings is raised here, before a request is answered."""
    config = settings.load_config()
    tokens, handlers = tokens_of(config), load_handlers(config)
    pipeline = pipeline_of(settings, config)
    settings.root.mkdir(parents=True, exist_ok=True)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        rd = await asyncio.to_thread(connect, settings.database)
        buckets = Buckets(settings)
        await asyncio.to_thread(schedule_retention, rd, settings)
        app.state.service = Service(
            settings, config, tokens, handlers, buckets, Jobs(rd, pipeline), Health(rd, buckets, settings)
        )
        yield
        await asyncio.to_thread(rd.close)

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    install_problems(
        app,
        unexpected=Problem(500, "SYSTEM_PANIC", "FetchBox has a bug. It is logged."),
        answers={
            BodyTooLargeError: Problem(413, "VALIDATION_TOO_LARGE", "The manifest is larger than allowed."),
            BodyInvalidError: Problem(400, "VALIDATION_INVALID_JSON", "The body is damaged."),
            BodyEncodingError: Problem(
                415, "VALIDATION_CONTENT_TYPE", "Content-Encoding must be gzip, or none."
            ),
            BodyTimeoutError: Problem(408, "VALIDATION_TIMEOUT", "The body did not arrive in time."),
            StoreError: Problem(503, "SYSTEM_UNAVAILABLE", "The store is away. Try again."),
        },
    )
    # After the others, and so around them: it answers /metrics itself, and makes a span of every request.
    app.add_middleware(TelemetryMiddleware, database=settings.database)
    app.add_api_route("/jobs", _post, methods=["POST"])
    app.add_api_route("/jobs/{job_id}", _snapshot, methods=["GET"])
    app.add_api_route("/jobs/{job_id}/errors", _errors, methods=["GET"])
    app.add_api_route("/jobs/{job_id}/log", _log, methods=["GET"])
    app.add_api_route("/healthz", _healthz, methods=["GET"])
    app.add_api_route("/livez", _livez, methods=["GET"])
    app.add_api_route("/readyz", _readyz, methods=["GET"])
    return app


def schedule_retention(rd: Redrive, settings: Settings) -> None:
    """Let workers delete tasks, snapshots and dead letters after their time."""
    day = 86_400.0
    tasks = settings.keep_tasks_days * day
    rd.schedules.prune(
        "retention",
        cron="17 * * * *",
        complete=tasks,
        cancelled=tasks,
        skipped=tasks,
        failed=settings.keep_letters_days * day,
        runs=settings.keep_snapshots_days * day,
        actor="fetchbox",
    )


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def _post(request: Request) -> Response:
    service = _service(request)
    tenant = service.tenant_of(request)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise problem(415, "VALIDATION_CONTENT_TYPE", "Content-Type must be application/json")
    key = request.headers.get("idempotency-key")
    if key is not None and not (0 < len(key) <= KEY_MAX and key.isprintable()):
        raise problem(400, "VALIDATION_INVALID_FIELD", f"Idempotency-Key must have 1 to {KEY_MAX} characters")
    limits = service.settings.limits
    body = await read_limited(request, limits.body_max, gzip_max=limits.body_max)
    manifest = parse(body, limits)
    known = service.config.types
    allowed = service.config.tenants[tenant].types if service.tokens else []
    if manifest.type not in known or (allowed and manifest.type not in allowed):
        raise problem(403, "AUTH_UNKNOWN_TYPE", "there is no such job type for you")
    order = Order(
        manifest=manifest,
        body=body,
        kind=known[manifest.type],
        tenant=tenant,
        trace_id=request_id(request),
        idempotency_key=key,
    )
    accepted = await _accept(service, order)
    headers = {"Location": f"/jobs/{accepted.job_id}"}
    if accepted.is_duplicate:
        headers["Idempotent-Replayed"] = "true"
    return JsonResponse(accepted, 202, headers)


async def _accept(service: Service, order: Order) -> Accepted:
    """Store the manifest, then the job with its tasks; each is tried three times."""
    job_id = order.job_id
    handler, limits = service.handlers[order.kind.handler], service.settings.limits
    # Off the loop: a plug-in may take long, and so do many resources.
    tasks = await asyncio.to_thread(plan_tasks, order, job_id, handler, limits)
    bucket = service.buckets.of(order.kind.bucket)
    patiently = patient()
    try:
        await patiently(bucket.put)(order.manifest_key, order.body)
    except Exception as error:
        logger.warning("manifest not stored: %s", redact(str(error).partition("\n")[0]))
        raise _unavailable(code="STORAGE_UNAVAILABLE", detail="the manifest could not be stored") from error
    try:
        accepted: Accepted = await asyncio.to_thread(patiently(service.jobs.open), order, job_id, tasks)
    except StoreError as error:
        raise _unavailable(code="SYSTEM_UNAVAILABLE", detail="the job could not be stored") from error
    return accepted


def _unavailable(*, code: str, detail: str) -> Exception:
    found = problem(503, code, detail)
    found.headers.update(RETRY_AFTER)
    return found


async def _snapshot(request: Request, job_id: str) -> Response:
    service = _service(request)
    tenant = service.tenant_of(request)
    return JsonResponse(await asyncio.to_thread(service.jobs.snapshot, job_id, tenant))


async def _errors(request: Request, job_id: str) -> Response:
    service = _service(request)
    tenant = service.tenant_of(request)
    return JsonResponse({"errors": await asyncio.to_thread(service.jobs.errors, job_id, tenant)})


async def _log(
    request: Request,
    job_id: str,
    offset: Annotated[int, Query(ge=0, le=OFFSET_MAX)] = 0,
    *,
    follow: bool = False,
) -> Response:
    """Return the attempts after an offset; with `follow`, as server-sent events until the job has ended."""
    service = _service(request)
    tenant = service.tenant_of(request)
    lines, _ = await asyncio.to_thread(service.jobs.log, job_id, tenant, offset)
    if not follow:
        last = lines[-1].offset if lines else offset
        return JsonResponse({"lines": lines, "next_offset": last})

    closing: asyncio.Event = getattr(request.app.state, "closing", None) or asyncio.Event()

    async def source(last: str) -> AsyncGenerator[ServerEvent]:
        after = int(last) if last.isdecimal() and len(last) <= OFFSET_DIGITS else offset
        while True:
            found, is_open = await asyncio.to_thread(service.jobs.log, job_id, tenant, after)
            for line in found:
                after = line.offset
                yield ServerEvent(msgspec.to_builtins(line), name="attempt", id=str(line.offset))
            if not is_open:
                yield ServerEvent({"next_offset": after}, name="end")
                return
            if not found:
                with suppress(TimeoutError):
                    async with asyncio.timeout(FOLLOW_SECONDS):
                        await closing.wait()

    return event_response(request, source)


async def _healthz(request: Request) -> Response:
    found = await _service(request).health.components()
    is_well = all(each["status"] in {"ok", "off"} for each in found.values())
    return JsonResponse(
        {"status": "ok" if is_well else "degraded", "components": found}, 200 if is_well else 503
    )


async def _livez() -> Response:
    """Answer while the process does."""
    return JsonResponse({"status": "ok"})


async def _readyz(request: Request) -> Response:
    """Ask the store and the broker, really."""
    found = await _service(request).health.components(only=("store", "broker"))
    wrong = [name for name, each in found.items() if each["status"] == "failed"]
    if wrong:
        raise _unavailable(code="SYSTEM_UNAVAILABLE", detail=f"not ready: {', '.join(wrong)}")
    return JsonResponse({"status": "ok", "components": found})
