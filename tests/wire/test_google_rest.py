# SPDX-License-Identifier: Apache-2.0
"""Google's REST clients (google-api-python-client, google-api-core, google-genai) against a server that answers as Google documents it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import google.api_core.exceptions
import googleapiclient.discovery  # type: ignore[import-untyped]
import googleapiclient.errors  # type: ignore[import-untyped]
import httplib2  # type: ignore[import-untyped]
import pytest
import requests
from google import genai
from google.api_core.exceptions import GoogleAPICallError
from google.genai.types import HttpOptionsDict

from redrive.core.failure import Category, Failure
from redrive.engine.classifier import classify
from tests.wire.clients import HASTY_S, PATIENT_S
from tests.wire.server import Behaviour, Certificates, Refusing, Serve, answer, garbage, reset, silence

# google-genai subclasses aiohttp's session, which aiohttp warns about.
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")


def _old(status: int, reason: str) -> dict[str, object]:
    """The older shape: developers.google.com/drive/api/guides/handle-errors, which lists the reasons, too."""
    entry = {"domain": "usageLimits", "reason": reason, "message": "as documented"}
    return {"error": {"errors": [entry], "code": status, "message": "as documented"}}


def _new(status: int, name: str, *details: Mapping[str, object]) -> dict[str, object]:
    """The newer shape: cloud.google.com/apis/design/errors, "HTTP mapping"."""
    return {"error": {"code": status, "message": "as documented", "status": name, "details": list(details)}}


def _info(reason: str, **metadata: str) -> dict[str, object]:
    return {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": reason,
        "domain": "googleapis.com",
        "metadata": metadata,
    }


def _quota(quota_id: str) -> dict[str, object]:
    violation = {"quotaMetric": "generativelanguage.googleapis.com/generate_requests", "quotaId": quota_id}
    return {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [violation]}


WAIT = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}

# status, body, code, heals, provider_code, retry_after
ANSWERS = {
    "user rate": (
        403,
        _old(403, "userRateLimitExceeded"),
        "RATE_LIMITED",
        True,
        "userRateLimitExceeded",
        None,
    ),
    "project rate": (403, _old(403, "rateLimitExceeded"), "RATE_LIMITED", True, "rateLimitExceeded", None),
    "daily limit": (
        403,
        _old(403, "dailyLimitExceeded"),
        "QUOTA_EXHAUSTED",
        False,
        "dailyLimitExceeded",
        None,
    ),
    "no right": (
        403,
        _old(403, "insufficientPermissions"),
        "AUTH_DENIED",
        False,
        "insufficientPermissions",
        None,
    ),
    "bad token": (401, _old(401, "authError"), "AUTH_INVALID", False, "authError", None),
    "no file": (404, _old(404, "notFound"), "NOT_FOUND", False, "notFound", None),
    "backend": (500, _old(500, "backendError"), "UPSTREAM_ERROR", True, "backendError", None),
    "bad request": (400, _old(400, "badRequest"), "REQUEST_INVALID", False, "badRequest", None),
    "minute limit": (
        429,
        _new(429, "RESOURCE_EXHAUSTED", _quota("GenerateRequestsPerMinutePerProjectPerModel-FreeTier"), WAIT),
        "RATE_LIMITED",
        True,
        "RESOURCE_EXHAUSTED",
        34.5,
    ),
    # ai.google.dev/gemini-api/docs/rate-limits: requests per day are reset at midnight Pacific time, whatever RetryInfo says
    "day limit": (
        429,
        _new(429, "RESOURCE_EXHAUSTED", _quota("GenerateRequestsPerDayPerProjectPerModel-FreeTier"), WAIT),
        "QUOTA_EXHAUSTED",
        False,
        "GenerateRequestsPerDayPerProjectPerModel-FreeTier",
        34.5,
    ),
    "named limit": (
        429,
        _new(
            429,
            "RESOURCE_EXHAUSTED",
            _info("RATE_LIMIT_EXCEEDED", quota_limit="ReadRequestsPerMinutePerProject"),
        ),
        "RATE_LIMITED",
        True,
        "RATE_LIMIT_EXCEEDED",
        None,
    ),
    # cloud.google.com/apis/design/errors, "Error info"
    "api off": (
        403,
        _new(403, "PERMISSION_DENIED", _info("SERVICE_DISABLED")),
        "AUTH_DENIED",
        False,
        "SERVICE_DISABLED",
        None,
    ),
    # ai.google.dev/gemini-api/docs/troubleshooting: a wrong key is a 400
    "bad key": (
        400,
        _new(400, "INVALID_ARGUMENT", _info("API_KEY_INVALID")),
        "AUTH_INVALID",
        False,
        "API_KEY_INVALID",
        None,
    ),
    "bad argument": (400, _new(400, "INVALID_ARGUMENT"), "REQUEST_INVALID", False, "INVALID_ARGUMENT", None),
    "overloaded": (503, _new(503, "UNAVAILABLE"), "NETWORK_UNAVAILABLE", True, "UNAVAILABLE", None),
    "internal": (500, _new(500, "INTERNAL"), "UPSTREAM_ERROR", True, "INTERNAL", None),
    "too slow": (
        504,
        _new(504, "DEADLINE_EXCEEDED"),
        "NETWORK_GATEWAY_TIMEOUT",
        True,
        "DEADLINE_EXCEEDED",
        None,
    ),
    "aborted": (409, _new(409, "ABORTED"), "CONFLICT", False, "ABORTED", None),
    "no model": (404, _new(404, "NOT_FOUND"), "NOT_FOUND", False, "NOT_FOUND", None),
}

DISCOVERY = {
    "kind": "discovery#restDescription",
    "name": "wire",
    "version": "v1",
    "rootUrl": "https://replaced.invalid/",
    "servicePath": "",
    "baseUrl": "https://replaced.invalid/",
    "batchPath": "batch",
    "schemas": {},
    "resources": {
        "files": {
            "methods": {
                "get": {"id": "wire.files.get", "path": "files", "httpMethod": "GET", "parameters": {}}
            }
        }
    },
}


def _discovered(address: str, timeout: float) -> None:
    document = {**DISCOVERY, "rootUrl": f"{address}/", "baseUrl": f"{address}/"}
    http = httplib2.Http(timeout=timeout)
    with googleapiclient.discovery.build_from_document(document, http=http) as service:
        service.files().get().execute(num_retries=0)


def _api_core(address: str, timeout: float) -> None:
    """The generated REST transports of google-cloud-* do exactly this with an answer of 400 or more."""
    response = requests.get(address, timeout=timeout)
    if response.status_code >= 400:
        raise google.api_core.exceptions.from_http_response(response)


def _genai(address: str, timeout: float) -> None:
    options: HttpOptionsDict = {
        "base_url": address,
        "timeout": int(timeout * 1000),
        "retry_options": {"attempts": 1},
    }
    with genai.Client(api_key="made-up", http_options=options) as client:
        client.models.generate_content(model="gemini-made-up", contents="hi")


def _genai_async(address: str, timeout: float) -> None:
    options: HttpOptionsDict = {
        "base_url": address,
        "timeout": int(timeout * 1000),
        "retry_options": {"attempts": 1},
    }

    async def ask() -> None:
        async with genai.Client(api_key="made-up", http_options=options).aio as client:
            await client.models.generate_content(model="gemini-made-up", contents="hi")

    asyncio.run(ask())


CLIENTS = {
    "googleapiclient": _discovered,
    "api_core": _api_core,
    "genai": _genai,
    "genai_async": _genai_async,
}


@pytest.fixture(params=CLIENTS)
def failure_at(request: pytest.FixtureRequest) -> Callable[..., Failure]:
    def call(address: str, timeout: float = PATIENT_S) -> Failure:
        with pytest.raises(Exception) as raised:  # noqa: PT011 - what is raised is what is tested
            CLIENTS[request.param](address, timeout)
        return classify(raised.value)

    return call


@pytest.mark.req("CR-1.2", "CR-1.6", "CR-1.7")
@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_means_what_its_reason_says(
    serve: Serve, failure_at: Callable[..., Failure], name: str
) -> None:
    status, body, code, heals, word, retry_after = ANSWERS[name]

    failure = failure_at(serve(answer(status, body)).url)

    assert (failure.code, failure.retryable, failure.provider_code) == (code, heals, word)
    assert (failure.http_status, failure.retry_after) == (status, retry_after)


@pytest.mark.req("CR-1.1")
def test_an_answer_that_is_not_googles_keeps_its_status_and_its_wait(
    serve: Serve, failure_at: Callable[..., Failure]
) -> None:
    failure = failure_at(serve(answer(502, b"<html>bad gateway</html>", {"retry-after": "3"})).url)

    assert (failure.code, failure.http_status, failure.retry_after) == ("NETWORK_BAD_GATEWAY", 502, 3.0)


# The asynchronous genai client times the whole call; aiohttp then raises a bare TimeoutError that does not say of what.
@pytest.mark.req("CR-1.1")
@pytest.mark.parametrize(
    ("behave", "codes"),
    [(reset, {"NETWORK_RESET"}), (garbage, {"NETWORK_PROTOCOL"}), (silence, {"NETWORK_TIMEOUT", "TIMEOUT"})],
)
def test_a_connection_that_fails_heals(
    serve: Serve, failure_at: Callable[..., Failure], behave: Behaviour, codes: set[str]
) -> None:
    failure = failure_at(serve(behave).url, HASTY_S if behave is silence else PATIENT_S)

    assert failure.code in codes
    assert (failure.category, failure.retryable) == (Category.NETWORK, True)


@pytest.mark.untraced
@pytest.mark.req("CR-1.1")
def test_refused_and_unresolved_are_told_apart(
    refusing: Refusing, failure_at: Callable[..., Failure]
) -> None:
    assert failure_at(refusing.url).code == "NETWORK_REFUSED"
    assert failure_at("http://nowhere.invalid").code == "NETWORK_DNS"


@pytest.mark.untraced
def test_an_untrusted_certificate_does_not_heal(
    serve: Serve, certificates: Certificates, failure_at: Callable[..., Failure]
) -> None:
    failure = failure_at(serve(answer(200, {}), tls=certificates.untrusted).url)

    assert (failure.code, failure.retryable) == ("TLS_CERTIFICATE", False)


def test_an_api_that_does_not_exist_is_wrong_configuration() -> None:
    with pytest.raises(googleapiclient.errors.UnknownApiNameOrVersion) as raised:
        googleapiclient.discovery.build("nothing", "v0", static_discovery=True, developerKey="made-up")

    assert classify(raised.value).code == "CONFIG_INVALID"


@pytest.mark.parametrize(
    ("kind", "code", "heals"),
    [
        (google.api_core.exceptions.Cancelled, "CANCELLED", False),
        (google.api_core.exceptions.DataLoss, "SCHEMA_INVALID", False),
        (google.api_core.exceptions.Unknown, "UPSTREAM_ERROR", True),
        (google.api_core.exceptions.ServiceUnavailable, "NETWORK_UNAVAILABLE", True),
    ],
)
def test_an_api_core_error_means_what_the_grpc_status_behind_it_means(
    kind: type[GoogleAPICallError], code: str, heals: bool
) -> None:
    failure = classify(kind("no"))

    assert kind.grpc_status_code is not None
    assert failure.provider_code == kind.grpc_status_code.name
    assert (failure.code, failure.retryable) == (code, heals)


def test_an_api_core_error_without_any_status_leaves_it_to_its_cause() -> None:
    raised = google.api_core.exceptions.Unknown("no")
    raised.__cause__ = ConnectionResetError(104, "reset")

    assert classify(raised).code == "NETWORK_RESET"
    assert classify(google.api_core.exceptions.GoogleAPICallError("no")).code == "UPSTREAM_ERROR"


def test_an_api_core_error_without_its_response_is_read_from_its_parts() -> None:
    """A transport that has let go of its response: only built by hand can the exception be without one."""
    raised = google.api_core.exceptions.TooManyRequests("slow", details=[WAIT, _info("RATE_LIMIT_EXCEEDED")])

    failure = classify(raised)

    assert (failure.code, failure.retry_after, failure.provider_code) == (
        "RATE_LIMITED",
        34.5,
        "RATE_LIMIT_EXCEEDED",
    )
