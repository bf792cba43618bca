# SPDX-License-Identifier: Apache-2.0
"""Failed requests: what the answer has, and what only the log has."""

from __future__ import annotations

import logging

import httpx
import msgspec
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse

from redrive.errors import JobNotFoundError
from redrive.web import JsonResponse, Problem, ProblemError, install_problems, request_id
from tests.unit.build import bounded

UNEXPECTED = Problem(500, "UNKNOWN", "Something went wrong. We have logged it.")


class Broken(Exception):
    """No route expects it."""


def application() -> FastAPI:
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    gone = Problem(404, "GONE", "It is gone.")
    install_problems(
        app, unexpected=UNEXPECTED, answers={LookupError: gone}, headers={"X-Frame-Options": "DENY"}
    )

    @app.get("/refused")
    async def refused() -> None:
        raise ProblemError(
            Problem(409, "NOT_READY", "Not yet.", "Wait for it.", {"job_id": 7}), headers={"Retry-After": "3"}
        )

    @app.get("/broken")
    async def broken() -> None:
        raise Broken("no such file: /srv/secret-place with password=hunter2secret")

    @app.get("/missing")
    async def missing() -> None:
        raise JobNotFoundError(job_id=7)

    @app.get("/typed/{number}")
    async def typed(number: int) -> None: ...

    @app.get("/id")
    async def own_id(request: Request) -> PlainTextResponse:
        return PlainTextResponse(request_id(request), headers={"X-Frame-Options": "SAMEORIGIN"})

    @app.get("/value")
    async def value() -> JsonResponse:
        return JsonResponse(UNEXPECTED)

    return app


def get(path: str, headers: dict[str, str] | None = None) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(application(), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            return await client.get(path, headers=headers)

    return bounded(ask())


def test_a_problem_becomes_a_document_with_its_code_and_further_members() -> None:
    answer = get("/refused", {"X-Request-Id": "mine"})

    assert answer.status_code == 409
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.headers["retry-after"], answer.headers["cache-control"]) == ("3", "no-store")
    assert answer.json() == {
        "job_id": 7,
        "type": "about:blank",
        "title": "Not yet.",
        "status": 409,
        "detail": "Wait for it.",
        "code": "NOT_READY",
        "request_id": "mine",
    }


def test_an_unexpected_exception_shows_nothing_and_is_logged_redacted_under_the_id_of_the_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR, "redrive.web"):
        answer = get("/broken")

    assert answer.status_code == 500
    document = answer.json()
    assert (document["code"], document["title"]) == (UNEXPECTED.code, UNEXPECTED.title)
    assert "secret-place" not in answer.text
    assert "Traceback" not in answer.text
    assert document["request_id"] == answer.headers["x-request-id"]
    assert document["request_id"] in caplog.text
    assert "Broken" in caplog.text
    assert "hunter2secret" not in caplog.text


def test_an_expected_exception_and_its_subclasses_get_their_answer() -> None:
    answer = get("/missing")

    assert (answer.status_code, answer.json()["code"]) == (404, "GONE")


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [("/nowhere", 404, "not-found"), ("/typed/hunter2secret", 400, "bad-request")],
)
def test_what_the_framework_refuses_is_a_problem_too(path: str, status: int, code: str) -> None:
    answer = get(path)

    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert "hunter2secret" not in answer.text


def test_every_response_has_the_headers_unless_the_route_set_them() -> None:
    assert get("/nowhere").headers["x-frame-options"] == "DENY"
    assert get("/broken").headers["x-content-type-options"] == "nosniff"
    assert get("/id").headers.get_list("x-frame-options") == ["SAMEORIGIN"]


TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"traceparent": f"00-{TRACE}-b7ad6b7169203331-01", "x-request-id": "mine"}, TRACE),
        ({"x-request-id": "mine-1.2_3"}, "mine-1.2_3"),
        ({"traceparent": f"00-{'0' * 32}-b7ad6b7169203331-01"}, None),
        ({"x-request-id": "a b"}, None),
        ({"x-request-id": "x" * 129}, None),
        ({}, None),
    ],
)
def test_a_request_keeps_the_id_of_its_trace_or_its_own_and_else_gets_one(
    headers: dict[str, str], expected: str | None
) -> None:
    answer = get("/id", headers)

    assert answer.text == answer.headers["x-request-id"]
    if expected is not None:
        assert answer.text == expected
    else:
        assert answer.text.startswith("request-")


def test_a_json_response_is_encoded_by_msgspec() -> None:
    answer = get("/value")

    assert answer.headers["content-type"] == "application/json"
    assert msgspec.json.decode(answer.content, type=Problem) == UNEXPECTED


def test_a_status_has_a_plain_problem() -> None:
    assert Problem.of_status(405) == Problem(405, "method-not-allowed", "Method Not Allowed")


def test_an_application_can_give_plain_problems_its_own_code_and_keeps_status_and_headers() -> None:
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    install_problems(
        app, unexpected=UNEXPECTED, rename=lambda plain: Problem(plain.status, "OWN", "Own.", plain.detail)
    )

    @app.get("/there")
    async def there() -> None: ...

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as client:
            return await client.delete("/there")

    answer = bounded(ask())
    assert (answer.status_code, answer.json()["code"], answer.headers["allow"]) == (405, "OWN", "GET")
