# SPDX-License-Identifier: Apache-2.0
"""google-auth refreshing a token against a token endpoint of our own (RFC 6749 section 5.2, and Google's additions)."""

from __future__ import annotations

from pathlib import Path

import google.auth
import google.auth.exceptions
import google.auth.transport.requests
import google.oauth2.credentials
import pytest
from google.auth import _exponential_backoff

from redrive.core.failure import Category, Failure
from redrive.engine.classifier import classify
from tests.wire.server import Behaviour, Certificates, Refusing, Serve, answer, garbage, reset


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library waits between its own retries, which cannot be switched off; the waits are taken out."""
    monkeypatch.setattr(f"{_exponential_backoff.__name__}.time.sleep", lambda _seconds: None)


def _failure(address: str) -> Failure:
    credentials = google.oauth2.credentials.Credentials(
        None, refresh_token="made-up", token_uri=address, client_id="made-up", client_secret="made-up"
    )
    with pytest.raises(google.auth.exceptions.GoogleAuthError) as raised:
        credentials.refresh(google.auth.transport.requests.Request())
    return classify(raised.value)


# developers.google.com/identity/protocols/oauth2/web-server, "Token errors", and RFC 6749 section 5.2
@pytest.mark.req("CR-1.3", "CR-1.6")
@pytest.mark.parametrize(
    ("status", "body", "code", "heals", "word"),
    [
        (
            400,
            {"error": "invalid_grant", "error_description": "Token has been revoked."},
            "AUTH_INVALID",
            False,
            "invalid_grant",
        ),
        (
            401,
            {"error": "invalid_client", "error_description": "Unauthorized"},
            "AUTH_INVALID",
            False,
            "invalid_client",
        ),
        (400, {"error": "unsupported_grant_type"}, "CONFIG_INVALID", False, "unsupported_grant_type"),
        (500, {"error": "internal_failure"}, "UPSTREAM_ERROR", True, "internal_failure"),
        (503, {"error": "temporarily_unavailable"}, "NETWORK_UNAVAILABLE", True, "temporarily_unavailable"),
        (503, b"<html>busy</html>", "UPSTREAM_ERROR", True, None),
    ],
)
def test_a_refused_refresh_means_what_the_token_endpoint_says(
    serve: Serve, status: int, body: bytes | dict[str, str], code: str, heals: bool, word: str | None
) -> None:
    failure = _failure(serve(answer(status, body)).url)

    assert (failure.code, failure.retryable, failure.provider_code) == (code, heals, word)


@pytest.mark.req("CR-1.1")
@pytest.mark.parametrize(("behave", "code"), [(reset, "NETWORK_RESET"), (garbage, "NETWORK_PROTOCOL")])
def test_a_token_endpoint_that_cannot_be_reached_heals(serve: Serve, behave: Behaviour, code: str) -> None:
    failure = _failure(serve(behave).url)

    assert (failure.code, failure.category, failure.retryable) == (code, Category.NETWORK, True)


@pytest.mark.req("CR-1.1")
def test_refused_and_unresolved_are_told_apart(refusing: Refusing) -> None:
    assert _failure(refusing.url).code == "NETWORK_REFUSED"
    assert _failure("http://nowhere.invalid").code == "NETWORK_DNS"


def test_an_untrusted_certificate_does_not_heal(serve: Serve, certificates: Certificates) -> None:
    failure = _failure(serve(answer(200, {}), tls=certificates.untrusted).url)

    assert (failure.code, failure.retryable) == ("TLS_CERTIFICATE", False)


@pytest.mark.req("CR-1.6")
def test_credentials_without_a_way_to_refresh_do_not_heal() -> None:
    credentials = google.oauth2.credentials.Credentials("expired")

    with pytest.raises(google.auth.exceptions.RefreshError) as raised:
        credentials.refresh(google.auth.transport.requests.Request())

    assert (classify(raised.value).code, classify(raised.value).retryable) == ("AUTH_INVALID", False)


def test_a_credentials_file_that_is_missing_is_wrong_configuration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "nothing.json"))

    with pytest.raises(google.auth.exceptions.DefaultCredentialsError) as raised:
        google.auth.default()

    assert (classify(raised.value).code, classify(raised.value).retryable) == ("CONFIG_INVALID", False)
