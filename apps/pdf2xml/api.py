# SPDX-License-Identifier: Apache-2.0
"""The HTTP API and the queue page.

    POST /api/upload               a form with `file` and `mapping`: 201 with the job, 200 with the one that is there
    GET  /api/jobs                 the caller's jobs, newest first
    GET  /api/jobs/:id             one of them, with its events
    GET  /api/jobs/:id/download    its XML
    POST /api/jobs/:id/retry       queue a failed one again
    GET  /metrics, /healthz        for operators

The caller is the owner in the session cookie. A browser that sends a form without the script is sent back to the page.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import copy_context
from pathlib import Path
from typing import Annotated, Final, TypeVar

from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse
from fastapi.staticfiles import StaticFiles
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from msgspec import structs

from apps.pdf2xml.codes import LINES, PAUSED
from apps.pdf2xml.jobs import PAGE, Jobs, JobView, failures_logged, problem
from apps.pdf2xml.live import Feed, Watcher, follow
from apps.pdf2xml.sample import submit_sample
from apps.pdf2xml.settings import Settings
from apps.pdf2xml.uploads import Form, NotPdfError, receive
from redrive.engine.clock import SYSTEM_CLOCK
from redrive.errors import BodyTooLargeError
from redrive.telemetry import TelemetryMiddleware
from redrive.web import (
    JsonResponse,
    ProblemError,
    Session,
    Sessions,
    event_response,
    install_problems,
    installation_secret,
)

HERE: Final = Path(__file__).parent / "page"
ID_MAX: Final = 18
"""Digits of a job id."""
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'"
)
T = TypeVar("T")
Before = Annotated[int | None, Query(ge=0, le=2**63 - 1)]
"""The id of the job before the first in a list; no larger one fits into the store."""


class Service:
    """What the routes share."""

    def __init__(self, settings: Settings, *, has_sample: bool) -> None:
        self.settings = settings
        self.has_sample = has_sample
        self.jobs = Jobs(settings)
        secret = installation_secret(settings.folder / "secret")
        self.sessions = Sessions(secret, cookie="pdf2xml", is_secure=settings.secure_cookie)
        templates = Environment(loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined)
        self.page = templates.get_template("queue.html")
        self._row = templates.get_template("row.html")
        # Reads wait for reads only: not for the disk, and not for commits.
        self._reading = ThreadPoolExecutor(2, "read")
        self._writing = ThreadPoolExecutor(2, "write")
        self.watcher = Watcher(self.jobs, self.read)

    async def read(self, call: Callable[[], T]) -> T:
        """Run a read on its threads."""
        return await asyncio.get_running_loop().run_in_executor(self._reading, call)

    async def write(self, call: Callable[[], T]) -> T:
        """Run a change on its threads, in the context of the request: a job that it submits belongs to the request's trace."""
        return await asyncio.get_running_loop().run_in_executor(self._writing, copy_context().run, call)

    def row(self, job: JobView) -> str:
        """Return a job as a row of the page."""
        return self._row.render(job=job)

    def close(self) -> None:
        """Finish what runs, and close the store."""
        self._reading.shutdown()
        self._writing.shutdown()
        self.jobs.close()

    async def purge_for_ever(self) -> None:
        """Delete what is older than the retention, again and again."""
        while True:
            # What could not be deleted now is deleted the next time.
            with failures_logged("purge"):
                await self.write(self.jobs.purge)
            await SYSTEM_CLOCK.asleep(self.settings.purge_every)


def api(settings: Settings, *, has_sample: bool = False) -> FastAPI:
    """Return the application; with `has_sample`, every new visitor finds a sample file in the queue."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        service = app.state.service = Service(settings, has_sample=has_sample)
        tasks = [asyncio.create_task(service.watcher.run()), asyncio.create_task(service.purge_for_ever())]
        yield
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        service.close()

    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    install_problems(
        app,
        unexpected=problem("UNKNOWN"),
        answers={BodyTooLargeError: problem("TOO_LARGE")},
        rename=lambda plain: structs.replace(plain, code="UNKNOWN", title=LINES["UNKNOWN"]),
        headers={"Content-Security-Policy": POLICY},
    )
    # After the others, and so around them: it answers /metrics itself, and a submitted job belongs to its request's trace.
    app.add_middleware(TelemetryMiddleware, database=settings.database)
    app.mount("/static", StaticFiles(directory=HERE / "static"))
    _add_job_routes(app)
    _add_page_routes(app)
    return app


def _service(request: Request) -> tuple[Service, Session]:
    service: Service = request.app.state.service
    return service, service.sessions.open(request)


def _answer(request: Request, session: Session, body: object, status: int = 200) -> Response:
    """Answer a program with JSON, and a plain form of the page with the page."""
    if request.method == "POST" and "text/html" in request.headers.get("accept", ""):
        response: Response = RedirectResponse("/", 303)
    else:
        response = JsonResponse(body, status)
    response.headers["Cache-Control"] = "no-store"
    session.attach(response)
    return response


def _job_id(given: str) -> int:
    """Return a job id; what cannot be one belongs to no job."""
    if not (given.isascii() and given.isdigit() and len(given) <= ID_MAX):
        raise ProblemError(problem("EXPIRED"))
    return int(given)


async def _refuse_foreign(request: Request) -> None:
    """Refuse a form of another site: it comes without the cookie, and the answer would replace the visitor's session."""
    if request.headers.get("sec-fetch-site", "none") not in {"same-origin", "none"}:
        raise ProblemError(problem("FORBIDDEN"))


def _add_job_routes(app: FastAPI) -> None:
    own_site = [Depends(_refuse_foreign)]

    @app.post("/api/upload", dependencies=own_site)
    async def upload(request: Request) -> Response:
        service, session = _service(request)
        view, is_new = await _upload(request, service, session.owner)
        return _answer(request, session, view, 201 if is_new else 200)

    @app.get("/api/jobs")
    async def jobs(request: Request, before: Before = None) -> Response:
        service, session = _service(request)
        found, is_paused = await service.read(functools.partial(service.jobs.queue, session.owner, before))
        body = {"jobs": found, "is_paused": is_paused, "message": PAUSED if is_paused else None}
        return _answer(request, session, body)

    @app.get("/api/jobs/{job}")
    async def show(request: Request, job: str) -> Response:
        service, session = _service(request)
        shown = await service.read(functools.partial(service.jobs.show, session.owner, _job_id(job)))
        return _answer(request, session, shown)

    @app.get("/api/jobs/{job}/download")
    async def download(request: Request, job: str) -> Response:
        service, session = _service(request)
        find = functools.partial(service.jobs.result, session.owner, _job_id(job))
        path, name = await service.read(find)
        response = FileResponse(path, media_type="application/xml", filename=name)
        response.headers["Cache-Control"] = "private, no-store"
        return response

    @app.post("/api/jobs/{job}/retry", dependencies=own_site)
    async def retry(request: Request, job: str) -> Response:
        service, session = _service(request)
        queued = await service.write(functools.partial(service.jobs.retry, session.owner, _job_id(job)))
        return _answer(request, session, queued, 202)


async def _upload(request: Request, service: Service, owner: str) -> tuple[JobView, bool]:
    """Receive and submit a file; one that fails leaves a failed job, unless it is too large or no form at all."""
    form, draft = Form(), service.jobs.files.new_draft()
    try:
        await receive(request, draft, form, service.settings.max_bytes)
        return await service.write(functools.partial(service.jobs.submit, owner, form, draft))
    except NotPdfError as error:
        await _refuse(service, owner, form, "NOT_PDF", error)
        raise
    except OSError as error:
        await _refuse(service, owner, form, "IO_ERROR", error)
        raise


async def _refuse(service: Service, owner: str, form: Form, code: str, error: Exception) -> None:
    """Record the failed upload, and answer with it."""
    record = functools.partial(service.jobs.refuse, owner, form, code, str(error))
    raise ProblemError(problem(code, job=await service.write(record))) from error


def _add_page_routes(app: FastAPI) -> None:
    @app.get("/")
    async def queue(request: Request, before: Before = None) -> Response:
        service, session = _service(request)
        if service.has_sample and session.cookie is not None:
            await service.write(functools.partial(submit_sample, service.jobs, session.owner))
        jobs, is_paused = await service.read(functools.partial(service.jobs.queue, session.owner, before))
        html = service.page.render(
            rows=[service.row(job) for job in jobs],
            is_paused=is_paused,
            paused=PAUSED,
            older=jobs[-1].id if len(jobs) == PAGE else None,
            is_first=before is None,
            max_bytes=service.settings.max_bytes,
            too_large=LINES["TOO_LARGE"],
            not_pdf=LINES["NOT_PDF"],
        )
        response = HTMLResponse(html, headers={"Cache-Control": "no-store"})
        session.attach(response)
        return response

    @app.get("/events")
    async def events(request: Request) -> Response:
        service, session = _service(request)

        async def look() -> tuple[list[JobView], bool]:
            return await service.read(functools.partial(service.jobs.queue, session.owner))

        return event_response(request, lambda last: follow(last, service.watcher, Feed(service.row), look))

    @app.get("/healthz")
    async def health(request: Request) -> Response:
        service: Service = request.app.state.service
        await service.read(service.jobs.is_paused)
        return JsonResponse({"status": "ok"})
