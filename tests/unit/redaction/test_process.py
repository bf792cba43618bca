# SPDX-License-Identifier: Apache-2.0
"""The redactor of the process: the environment at the call, registered secrets, and what it refuses."""

from __future__ import annotations

import os
import threading

import pytest

from redrive.engine.pipeline.codec import storable
from redrive.errors import ConfigurationError
from redrive.redaction import process
from redrive.redaction.literals.search import Literals
from redrive.redaction.process import redact, redact_mapping, register_secret, secret_environment

VALUE = "quite" + "-unlikely-words"
NO_UNICODE = "pä\udce9ss word99"


@pytest.fixture(autouse=True)
def nothing_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what a test registers."""
    monkeypatch.setattr(process, "_known", process._Known({}, frozenset()))


def test_a_secret_of_the_environment_is_hidden_as_it_is_at_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    assert redact(f"got {VALUE}") == f"got {VALUE}"

    monkeypatch.setenv("DB_PASSWORD", VALUE)
    assert redact(f"got {VALUE}") == "got <redacted:secret>"

    monkeypatch.setenv("DB_PASSWORD", "another-" + VALUE)
    assert redact(f"got {VALUE}") == f"got {VALUE}"
    assert redact(f"got another-{VALUE}") == "got <redacted:secret>"

    monkeypatch.delenv("DB_PASSWORD")
    assert redact(f"got another-{VALUE}") == f"got another-{VALUE}"


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("API_TOKEN", "abcd efgh", "abcd efgh"),
        ("APP_KEY", "aB3dE5gH7jK9mN1pQ3", "aB3dE5gH7jK9mN1pQ3"),
        ("DATABASE_URL", "postgres://app:long-enough@db/app", "long-enough"),
        ("REDIS_URL", "redis://:p%40ss-word@cache:6379/0", "p@ss-word"),
    ],
)
def test_what_counts_as_a_secret_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, secret: str
) -> None:
    monkeypatch.setenv(name, value)

    assert secret_environment()[name] == secret


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("API_TOKEN", "short"),
        ("API_TOKEN", "12345678"),
        ("API_TOKEN", "disabled"),
        ("API_TOKEN", "undefined"),
        ("API_TOKEN", "/run/secrets/token"),
        ("API_TOKEN", "https://auth.example.com/token"),
        ("TOKEN_COUNT", "abcdefghijk"),
        ("SOME_KEY", "plain words"),
        ("HOME", "/home/somebody"),
        ("DATABASE_URL", "postgres://postgres:postgres@db/app"),
        ("DATABASE_URL", "postgres://app:short@db/app"),
        ("DATABASE_URL", "postgres://db/app"),
    ],
)
def test_what_does_not(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)

    assert name not in secret_environment()


def test_an_unchanged_environment_is_not_read_again() -> None:
    assert secret_environment() is secret_environment()


def test_a_replaced_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"MY_SECRET": VALUE})

    assert dict(secret_environment()) == {"MY_SECRET": VALUE}


def test_a_registered_secret_is_hidden_everywhere() -> None:
    register_secret(VALUE)
    register_secret(VALUE)

    assert redact(f"got {VALUE}!") == "got <redacted:secret>!"
    assert redact_mapping({"a": [VALUE]}) == {"a": ["<redacted:secret>"]}


def test_literals_of_one_call_are_for_that_call() -> None:
    assert redact(f"got {VALUE}", {VALUE: "<payload:a>"}) == "got <payload:a>"
    assert redact_mapping({"a": [f"x {VALUE} y"]}, {VALUE: "<payload:a>"}) == {"a": ["x <payload:a> y"]}
    assert redact(f"got {VALUE}") == f"got {VALUE}"


@pytest.mark.parametrize("value", ["", "abc", 1234, None])
def test_a_secret_too_short_to_hide_is_refused_without_showing_it(value: object) -> None:
    with pytest.raises(ConfigurationError) as caught:
        register_secret(value)  # type: ignore[arg-type]

    assert "abc" not in str(caught.value)


@pytest.mark.parametrize("value", [b"bytes", None, 3])
def test_only_text_is_redacted_as_text(value: object) -> None:
    with pytest.raises(ConfigurationError, match="str"):
        redact(value)  # type: ignore[arg-type]


def test_secrets_registered_from_many_threads_are_all_known() -> None:
    secrets = [f"{VALUE}-{number:03d}" for number in range(40)]
    threads = [threading.Thread(target=register_secret, args=(secret,)) for secret in secrets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert redact(" ".join(secrets)) == " ".join(["<redacted:secret>"] * len(secrets))


def test_a_secret_that_cannot_be_encoded_is_hidden_as_it_is_and_as_it_is_stored() -> None:
    register_secret(NO_UNICODE)

    assert redact(f"got {NO_UNICODE}") == "got <redacted:secret>"
    assert redact(f"got {storable(NO_UNICODE)}") == "got <redacted:secret>"


def test_a_secret_of_the_environment_may_be_no_unicode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environb, b"SHOP_PASSWORD", b"na\xe9f-pass-word-123")

    assert redact(f"got {os.environ['SHOP_PASSWORD']}") == "got <redacted:secret>"


def test_a_secret_that_cannot_be_compiled_is_refused_without_showing_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever goes wrong with it: the error of a codec holds what it could not encode."""

    def broken(_self: Literals, literals: dict[str, str]) -> None:
        "".join(literals).encode("ascii")

    monkeypatch.setattr(Literals, "__init__", broken)
    with pytest.raises(ConfigurationError) as caught:
        register_secret(NO_UNICODE)

    assert "word99" not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None
