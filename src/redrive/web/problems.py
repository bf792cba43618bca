# SPDX-License-Identifier: Apache-2.0
"""Answers to requests that fail: RFC 9457 problem documents with a `code` member.

A document has only what its `Problem` has. Messages, stack traces and paths of exceptions go to the log, redacted, under the
request's id, and the answer carries the same id. So a user can report it, and learns nothing else.
"""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, cast

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from redrive.engine.clock import fresh_name
from redrive.engine.observers import trace_of_caller
from redrive.errors import BodyError, RedriveError
from redrive.redaction.process import redact

_LOGGER: Final = logging.getLogger("redrive.web")
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


class Problem(msgspec.Struct, frozen=True):
    """What a user may know about a request that failed; `members` are further members of the document."""

    status: int
    code: str
    title: str
    detail: str = ""
    members: Mapping[str, object] = {}

    @classmethod
    def of_status(cls, status: int, *, detail: str = "") -> Problem:
        """Return the plain problem of an HTTP status, such as `not-found`."""
        phrase = HTTPStatus(status).phrase
        return cls(status, phrase.lower().replace(" ", "-"), phrase, detail)


class ProblemError(RedriveError):
    """A route answers with this problem."""

    code = "problem"

    def __init__(self, problem: Problem, *, headers: Mapping[str, str] | None = None) -> None:
        self.problem = problem
        self.headers = dict(headers or {})
        super().__init__(f"{problem.status} {problem.code}: {problem.title}", hint=problem.detail)


class JsonResponse(Response):
    """A response whose body is any value that msgspec can encode."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        """Return the value as JSON."""
        return msgspec.json.encode(content)


def request_id(request: Request) -> str:
    """Return the id of this request: its trace id if it has one, else its X-Request-Id, else a new one."""
    return str(request.scope["redrive.request_id"])


def install_problems(
    app: FastAPI,
    *,
    unexpected: Problem,
    answers: Mapping[type[Exception], Problem] | None = None,
    headers: Mapping[str, str] | None = None,
    rename: Callable[[Problem], Problem] = lambda plain: plain,
) -> None:
    """Answer every failed request of this application with a problem document.

    Args:
        app: The application; it must not have been started.
        unexpected: The answer to an exception that nobody expected; the exception is logged.
        answers: Exceptions, with their subclasses, that a route may let through, and the answer to each.
        headers: Headers of every response, a Content-Security-Policy for example.
        rename: Gives the plain problems of bad bodies, bad arguments and unknown paths a code and title of the application.
    """
    handlers: dict[type[Exception], Callable[[Request, Any], Response]] = {
        ProblemError: lambda request, error: _document(request, error.problem, error.headers),
        BodyError: lambda request, error: _document(request, rename(_problem_of_body(error))),
        RequestValidationError: lambda request, error: _document(
            request, rename(_problem_of_arguments(error))
        ),
        # A 405 has a header of its own.
        HTTPException: lambda request, error: _document(
            request, rename(Problem.of_status(error.status_code)), error.headers
        ),
    }
    for kind, problem in (answers or {}).items():
        handlers[kind] = _answer_with(problem)
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)
    app.add_middleware(cast("Any", _Requests), unexpected=unexpected, headers=dict(headers or {}))


def _document(request: Request, problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    document = {
        **problem.members,
        "type": "about:blank",
        "title": problem.title,
        "status": problem.status,
        **({"detail": problem.detail} if problem.detail else {}),
        "code": problem.code,
        "request_id": request_id(request),
    }
    kept = {"Cache-Control": "no-store", **(headers or {})}
    return JsonResponse(document, problem.status, kept, media_type="application/problem+json")


def _answer_with(problem: Problem) -> Callable[[Request, Any], Response]:
    return lambda request, _error: _document(request, problem)


def _problem_of_body(error: BodyError) -> Problem:
    return Problem(error.status, error.code, HTTPStatus(error.status).phrase, str(error))


def _problem_of_arguments(error: RequestValidationError) -> Problem:
    """Name the wrong arguments; their values may be secrets."""
    places = [".".join(str(part) for part in one["loc"]) for one in error.errors()]
    return Problem(400, "bad-request", "Bad Request", f"wrong: {', '.join(places)}")


class _Requests:
    """Gives each request its id, each response its headers, and an answer to exceptions that nobody expected."""

    def __init__(self, app: ASGIApp, *, unexpected: Problem, headers: Mapping[str, str]) -> None:
        self._app = app
        self._unexpected = unexpected
        self._headers = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin", **headers}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        scope["redrive.request_id"] = own = _id_of(request)
        added = [
            (b"x-request-id", own.encode()),
            *((k.lower().encode(), v.encode()) for k, v in self._headers.items()),
        ]
        is_started = False

        async def pass_on(message: Message) -> None:
            nonlocal is_started
            if message["type"] == "http.response.start":
                is_started = True
                there = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(pair for pair in added if pair[0] not in there)]
            await send(message)

        try:
            await self._app(scope, receive, pass_on)
        except ClientDisconnect:
            _LOGGER.info("request %s: the client disconnected", own)
        except Exception as error:  # noqa: BLE001 - a route may raise anything.
            # Logged as a text, because a handler that formats the exception itself would not redact it.
            text = redact("".join(traceback.format_exception(error)))
            _LOGGER.error("request %s: %s", own, text)  # noqa: TRY400 - as above.
            # After a started response there is nothing to add: the server cuts the connection, and the client notices.
            if not is_started:
                await _document(request, self._unexpected)(scope, receive, pass_on)


def _id_of(request: Request) -> str:
    # A request that is traced belongs to the trace of its span, which may have begun here.
    trace = _TRACEPARENT.fullmatch(trace_of_caller() or request.headers.get("traceparent", ""))
    given = request.headers.get("x-request-id", "")
    if trace:
        return trace[1]
    return given if _ID.fullmatch(given) else fresh_name("request")
