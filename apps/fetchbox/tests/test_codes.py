# SPDX-License-Identifier: Apache-2.0
"""The codes: every failure has the right one and its policy, and the page about them has them all."""

from __future__ import annotations

import re
import socket
import ssl
from pathlib import Path

import httpx
import pytest
from obstore.exceptions import GenericError, NotFoundError, PermissionDeniedError, UnauthenticatedError

from apps.fetchbox.codes import CODES, FAMILIES
from apps.fetchbox.pipeline import pipeline_of
from apps.fetchbox.settings import Settings
from apps.fetchbox.transfer.proxies import ProxiesExhaustedError, is_of_proxy
from redrive import Fail, classify

REQUEST = httpx.Request("GET", "http://example.org/")


def status(number: int) -> httpx.HTTPStatusError:
    return httpx.HTTPStatusError("x", request=REQUEST, response=httpx.Response(number, request=REQUEST))


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def s3(number: int, code: str) -> GenericError:
    text = f"Generic S3 error: <Error><Code>{code}</Code></Error>\n\nDebug source:\nServer {{ status: {number}, body: x }}"
    return GenericError(text)


DNS = caused(httpx.ConnectError("x"), socket.gaierror(-2, "unknown"))
RETRIED, FATAL = True, False


@pytest.mark.req("FB-8.3", "FB-1.1")
@pytest.mark.parametrize(
    ("stage", "error", "code", "is_retried"),
    [
        ("download", httpx.ReadTimeout("x"), "DOWNLOAD_TIMEOUT", RETRIED),
        ("download", httpx.ConnectTimeout("x"), "DOWNLOAD_TIMEOUT", RETRIED),
        ("download", TimeoutError(), "DOWNLOAD_TIMEOUT", RETRIED),
        ("download", DNS, "DOWNLOAD_DNS", RETRIED),
        ("download", httpx.ConnectError("refused"), "DOWNLOAD_NETWORK", RETRIED),
        ("download", httpx.ReadError("reset"), "DOWNLOAD_NETWORK", RETRIED),
        ("download", httpx.RemoteProtocolError("cut off"), "DOWNLOAD_NETWORK", RETRIED),
        *(("download", status(number), "DOWNLOAD_HTTP_4XX", RETRIED) for number in (408, 429, 499)),
        *(
            ("download", status(number), "DOWNLOAD_HTTP_4XX", FATAL)
            for number in (400, 401, 403, 404, 405, 406, 409, 410, 413, 418, 422, 425, 451)
        ),
        *(
            ("download", status(number), "DOWNLOAD_HTTP_5XX", RETRIED)
            for number in (500, 501, 502, 503, 504, 505)
        ),
        *(("download", status(number), "DOWNLOAD_HTTP_OTHER", FATAL) for number in (202, 204, 302, 304)),
        ("download", ProxiesExhaustedError(), "DOWNLOAD_PROXY_EXHAUSTED", RETRIED),
        ("download", httpx.InvalidURL("x"), "DOWNLOAD_INVALID_URL", FATAL),
        ("download", httpx.UnsupportedProtocol("x"), "DOWNLOAD_INVALID_URL", FATAL),
        ("upload", s3(500, "InternalError"), "UPLOAD_S3_ERROR", RETRIED),
        ("upload", s3(502, "BadGateway"), "UPLOAD_S3_ERROR", RETRIED),
        ("upload", s3(503, "SlowDown"), "UPLOAD_THROTTLED", RETRIED),
        ("upload", s3(429, "TooManyRequests"), "UPLOAD_THROTTLED", RETRIED),
        ("upload", PermissionDeniedError("x"), "UPLOAD_ACCESS_DENIED", FATAL),
        ("upload", UnauthenticatedError("x"), "UPLOAD_ACCESS_DENIED", FATAL),
        ("upload", s3(403, "AccessDenied"), "UPLOAD_ACCESS_DENIED", FATAL),
        ("upload", NotFoundError("x"), "UPLOAD_INVALID_BUCKET", FATAL),
        ("upload", s3(404, "NoSuchBucket"), "UPLOAD_INVALID_BUCKET", FATAL),
        ("upload", ConnectionResetError(104, "reset"), "UPLOAD_NETWORK", RETRIED),
        ("upload", OSError(28, "no space"), "STORAGE_LOCAL_DISK", FATAL),
        ("download", OSError(5, "I/O error"), "STORAGE_LOCAL_DISK", RETRIED),
        ("download", ZeroDivisionError(), "SYSTEM_PANIC", FATAL),
        ("upload", KeyError("x"), "SYSTEM_PANIC", FATAL),
        *(
            ("download", Fail(code=name, message="x"), name, FATAL)
            for name in CODES.names
            if name.startswith(("VALIDATION_", "AUTH_", "HANDLER_"))
        ),
        ("download", Fail(code="DOWNLOAD_ADDRESS_REFUSED", message="x"), "DOWNLOAD_ADDRESS_REFUSED", FATAL),
        ("download", Fail(code="DOWNLOAD_TOO_LARGE", message="x"), "DOWNLOAD_TOO_LARGE", FATAL),
        ("download", Fail(code="DOWNLOAD_CHECKSUM", message="x"), "DOWNLOAD_CHECKSUM", FATAL),
    ],
)
def test_every_failure_has_its_code_and_is_retried_or_not(
    stage: str, error: Exception, code: str, is_retried: bool
) -> None:
    failure = CODES.translate(classify(error), stage=stage, idempotent=True)

    assert (failure.code, failure.retryable) == (code, is_retried)


@pytest.mark.req("FB-1.1")
def test_the_codes_are_in_the_seven_families_and_the_seed_s_examples_are_among_them() -> None:
    seeds = "VALIDATION_MISSING_FIELD DOWNLOAD_TIMEOUT DOWNLOAD_HTTP_4XX DOWNLOAD_PROXY_EXHAUSTED UPLOAD_S3_ERROR SYSTEM_PANIC"

    assert {name.partition("_")[0] for name in CODES.names} == set(FAMILIES)
    assert set(seeds.split()) <= set(CODES.names)
    assert all(CODES[name].line and CODES[name].hint for name in CODES.names)


@pytest.mark.req("FB-8.3")
def test_the_policies_are_those_of_the_settings() -> None:
    download, upload = pipeline_of(Settings(download_retry_limit=7, storage_retry_limit=2)).stages

    assert (download.name, download.retry.max_attempts) == ("download", 7)
    assert (upload.name, upload.retry.max_attempts) == ("upload", 2)
    assert [
        upload.retry.backoff.delay(n, 0.999) > upload.retry.backoff.delay(n - 1, 0.999) for n in (2, 3)
    ] == [True] * 2


@pytest.mark.req("FB-9.1")
def test_the_page_about_failures_has_every_code_with_what_happens_and_what_to_do() -> None:
    page = (Path(__file__).parents[1] / "failures.md").read_text(encoding="utf-8")
    rows = {
        line.split("|")[1].strip(" `"): line
        for line in page.splitlines()
        if re.match(r"\| `[A-Z0-9_]+[A-Z0-9]`", line)
    }

    assert set(rows) == set(CODES.names)
    for name, row in rows.items():
        entries = [entry for entry in (*CODES.codes, CODES.otherwise) if entry.name == name]
        assert str(entries[-1].hint) in row
        assert ("fails at once" in row) == any(entry.retryable is False for entry in entries)


@pytest.mark.parametrize(
    ("error", "is_the_proxy"),
    [
        (httpx.ProxyError("403 Forbidden"), True),
        (httpx.ConnectError("refused"), True),
        (httpx.ConnectTimeout("slow"), True),
        (status(502), True),
        (status(504), True),
        (status(500), False),
        (status(503), False),
        (status(407), False),
        (httpx.ReadTimeout("slow"), False),
        (caused(httpx.ConnectError("x"), ssl.SSLCertVerificationError(1, "verify failed")), False),
    ],
)
def test_only_what_a_proxy_does_wrong_exhausts_its_pool(error: Exception, is_the_proxy: bool) -> None:
    assert is_of_proxy(error) == is_the_proxy


def test_certificates_that_do_not_fit_are_failures_of_the_network() -> None:
    error = caused(httpx.ConnectError("x"), ssl.SSLCertVerificationError(1, "certificate verify failed"))

    failure = CODES.translate(classify(error), stage="download", idempotent=True)

    assert failure.code.startswith(("DOWNLOAD_", "SYSTEM_"))
