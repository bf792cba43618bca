# SPDX-License-Identifier: Apache-2.0
"""Exceptions of SDKs that stand for another one: the answer or the connection error inside is what counts."""

from __future__ import annotations

from pathlib import Path

import boto3.exceptions
import google.api_core.exceptions
import google.api_core.retry
import google.genai.errors
import pytest
from boto3.s3.transfer import TransferConfig
from google import genai
from google.genai.types import HttpOptionsDict

from redrive.engine.classifier import classify
from tests.wire.aws import make_client
from tests.wire.clients import PATIENT_S
from tests.wire.server import Refusing, Serve, answer, truncated_body


def _interact(address: str) -> None:
    options: HttpOptionsDict = {
        "base_url": address,
        "timeout": int(PATIENT_S * 1000),
        "retry_options": {"attempts": 1},
    }
    with genai.Client(api_key="made-up", http_options=options) as client:
        client.interactions.create(model="gemini-made-up", input="hi")


@pytest.mark.untraced
@pytest.mark.req("CR-1.2", "CR-1.6")
@pytest.mark.parametrize(
    ("status", "name", "code", "heals"),
    [
        (400, "INVALID_ARGUMENT", "REQUEST_INVALID", False),
        (403, "PERMISSION_DENIED", "AUTH_DENIED", False),
        (404, "NOT_FOUND", "NOT_FOUND", False),
    ],
)
def test_an_answer_to_a_gemini_interaction_means_what_its_status_says(
    serve: Serve, status: int, name: str, code: str, heals: bool
) -> None:
    body = {"error": {"code": status, "message": "as documented", "status": name}}

    with pytest.raises(Exception) as raised:  # noqa: PT011 - the class depends on the operation
        _interact(serve(answer(status, body)).url)
    failure = classify(raised.value)

    assert (failure.code, failure.retryable, failure.http_status) == (code, heals, status)


def test_a_gemini_interaction_that_cannot_connect_is_a_network_failure(refusing: Refusing) -> None:
    with pytest.raises(Exception) as raised:  # noqa: PT011
        _interact(refusing.url)

    assert (classify(raised.value).code, classify(raised.value).retryable) == ("NETWORK_REFUSED", True)


# RFC 6455 section 7.4.1. A live session speaks WebSocket to a fixed host, so its error is built as `live.py` builds it.
@pytest.mark.parametrize(
    ("closed", "code", "heals"),
    [
        (1006, "NETWORK_RESET", True),
        (1007, "REQUEST_INVALID", False),
        (1008, "REQUEST_INVALID", False),
        (1009, "REQUEST_TOO_LARGE", False),
        (1011, "UPSTREAM_ERROR", True),
        (1013, "UPSTREAM_OVERLOADED", True),
    ],
)
def test_a_live_session_ends_with_what_its_close_code_says(closed: int, code: str, heals: bool) -> None:
    with pytest.raises(google.genai.errors.APIError) as raised:
        google.genai.errors.APIError.raise_error(closed, "the reason the server gave", None)
    failure = classify(raised.value)

    assert (failure.code, failure.retryable, failure.http_status) == (code, heals, None)


@pytest.mark.req("CR-1.3")
def test_retries_of_api_core_that_ran_out_are_what_they_ran_into() -> None:
    def always() -> None:
        raise google.api_core.exceptions.ServiceUnavailable("busy")

    retry = google.api_core.retry.Retry(initial=0.001, maximum=0.001, timeout=0.01)
    with pytest.raises(google.api_core.exceptions.RetryError) as raised:
        retry(always)()
    failure = classify(raised.value)

    assert (failure.code, failure.http_status, failure.retryable) == ("NETWORK_UNAVAILABLE", 503, True)


@pytest.mark.req("CR-1.1")
def test_a_download_that_gave_up_is_what_it_ran_into_last(serve: Serve, tmp_path: Path) -> None:
    client = make_client("s3", serve(truncated_body).url)
    config = TransferConfig(num_download_attempts=1, use_threads=False)

    with pytest.raises(Exception) as raised:  # noqa: PT011 - RetriesExceededError of boto3 or of s3transfer
        client.download_file("bucket", "key", str(tmp_path / "target"), Config=config)
    client.close()

    assert type(raised.value).__name__ == "RetriesExceededError"
    assert (classify(raised.value).code, classify(raised.value).retryable) == ("NETWORK_PROTOCOL", True)
    assert isinstance(raised.value, boto3.exceptions.Boto3Error)
